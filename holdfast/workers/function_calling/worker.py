"""The default AgentWorker: call the model and run its tool calls, until it answers with text."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.errors import InvalidArgumentError, ModelBehaviorError
from holdfast.values.base import Json
from holdfast.values.messages import Message, ToolCall, assistant
from holdfast.values.steps import TaskStep, TaskStepOutput
from holdfast.values.text.shown import shown
from holdfast.workers.base import AgentWorker
from holdfast.workers.function_calling import turn
from holdfast.workers.function_calling.turn import hand_over

if TYPE_CHECKING:
    from holdfast.models.base import ModelAnswer
    from holdfast.workers.context.context import StepContext


class FunctionCallingAgentWorker(AgentWorker):
    """Function calling: one model call and its tool calls make a step.

    Args:
        max_function_calls: Most tool calls of one task, or None for no limit. Calls beyond it get a
            result that says so, and one answer without tools ends the task.
        allow_parallel_tool_calls: Whether one answer may call several tools. When False, the first
            call is run and the others get a result that asks for one at a time.

    Raises:
        InvalidArgumentError: `max_function_calls` is not a number of calls, or
            `allow_parallel_tool_calls` not a bool.
    """

    hands_over: ClassVar[bool] = True

    def __init__(
        self,
        *,
        max_function_calls: int | None = None,
        allow_parallel_tool_calls: bool = True,
    ) -> None:
        """Keep the limits."""
        _check(max_function_calls, allow_parallel_tool_calls)
        self.max_function_calls = max_function_calls
        self.allow_parallel_tool_calls = allow_parallel_tool_calls

    def __eq__(self, other: object) -> bool:
        """Whether it is of the same class with the same limits: agents declared alike are equal."""
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        """Return the same for equal ones; the limits may be changed."""
        return hash(type(self))

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        """Call the model; end the step with its tool calls, or the task with its answer."""
        used = _take_in(step, ctx)
        exhausted = self.max_function_calls is not None and used >= self.max_function_calls
        is_last = ctx.limit_reached
        no_tools = exhausted or is_last
        choice = "none" if no_tools else ctx.tool_choice
        check = functools.partial(_checked, ctx, no_tools=no_tools, is_last=is_last)
        answer = await ctx.ask(check, choice=choice)
        may_refuse = ctx.dialect.unknown_tool == "tell"
        match turn.follows(answer, ctx.agent, may_refuse=may_refuse):
            case "tools":
                ctx.add(answer.message)
                return await self._use_tools(step, ctx, answer, used)
            case "refusal":
                raise turn.refusal(answer)
            case "nothing" if "invalid_final_output" in ctx.rules.error_handlers:
                raise turn.invalid_output(turn.NO_OUTPUT, again=True)
            case "nothing" | "work":
                return _asks_again(step, ctx, answer)
            case "answer":
                ctx.add(answer.message)
                return TaskStepOutput(output=_final(ctx, answer), task_step=step, is_last=True)

    async def _use_tools(
        self, step: TaskStep, ctx: StepContext, answer: ModelAnswer, used: int
    ) -> TaskStepOutput:
        """End the step with its tool calls; wait for them if their results may end the run."""
        most = self.max_function_calls
        left = None if most is None else most - used
        run, refuse = turn.allot(
            answer.message.calls, left=left, parallel=self.allow_parallel_tool_calls
        )
        used += sum(not call.server for call in run)
        handed = None if answer.is_cut_off else await hand_over(step, ctx, answer, run, refuse)
        if handed is not None:
            return handed
        state = self._with_progress(step, used, refuse)
        following = TaskStepOutput(
            output=answer.text, task_step=step, next_steps=(step.get_next_step(step_state=state),)
        )
        if answer.is_cut_off:  # none of them is run: `turn.told_of` settles them as cut off
            return following.model_copy(update={"calls": run})
        direct = turn.sole_direct_call(run, refuse, ctx.agent)
        if direct is not None:
            return await _return_direct(direct, ctx, following)
        if turn.may_end([call for call in run if _is_of_tool(call, ctx)], ctx.agent.behavior):
            return await _follow(run, ctx, following)
        return following.model_copy(update={"calls": run})

    def _with_progress(
        self, step: TaskStep, used: int, refused: list[tuple[str, str]]
    ) -> dict[str, Json]:
        """Make the next step's state, with the count of calls if there is a limit."""
        state = {k: v for k, v in step.step_state.items() if k != "refused_calls"}
        if self.max_function_calls is not None:
            state["function_calls"] = used
        if refused:
            state["refused_calls"] = [list(pair) for pair in refused]
        return state


def _check(most: Any, is_parallel: Any) -> None:
    if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 0):
        msg = (
            f"max_function_calls counts tool calls, so it must be a whole number, 0 or more; it was"
            f" {shown(most)}. Pass None for no limit."
        )
        raise InvalidArgumentError(msg)
    if not isinstance(is_parallel, bool):
        msg = f"allow_parallel_tool_calls must be True or False; it was {shown(is_parallel)}."
        raise InvalidArgumentError(msg)


def _progress(step: TaskStep) -> tuple[int, list[tuple[str, str]]]:
    """Return the number of calls run so far, and the refused calls of the last answer."""
    refused = step.step_state.get("refused_calls", [])
    return step.step_state.get("function_calls", 0), [(r[0], r[1]) for r in refused]


def _take_in(step: TaskStep, ctx: StepContext) -> int:
    """Add the step's input and the refusals of calls; return how many calls the task has run."""
    told = step.message()
    if told is not None:
        ctx.add(told)
    used, refused = _progress(step)
    for call_id, reason in refused:
        ctx.add(Message(role="tool", call_id=call_id, content=reason, is_error=True))
    return used


def _checked(
    ctx: StepContext, answer: ModelAnswer, *, no_tools: bool, is_last: bool
) -> ModelAnswer:
    """Return an answer, without its calls where none may be made.

    Raises:
        ModelBehaviorError: It is the final one, and does not fit the agent's output type; or it
            calls tools though none is left, and may be asked for again.
    """
    if no_tools and answer.message.calls:
        if not is_last:
            raise ModelBehaviorError(turn.BUDGET_REACHED)
        answer = answer.model_copy(update={"message": assistant(answer.text)})
    if turn.follows(answer, ctx.agent, may_refuse=True) == "answer":
        _final(ctx, answer)
    return answer


def _final(ctx: StepContext, answer: ModelAnswer) -> Json:
    """Read the final answer.

    Raises:
        ModelBehaviorError: It does not fit the agent's output type.
    """
    if answer.refusal:
        return answer.text
    try:
        return ctx.code.read(answer.text)
    except ModelBehaviorError as error:
        raise turn.invalid_output(str(error)) from error


def _asks_again(step: TaskStep, ctx: StepContext, answer: ModelAnswer) -> TaskStepOutput:
    """Take another turn after an answer without output."""
    if answer.message.items or answer.text:
        ctx.add(answer.message)
    return TaskStepOutput(output="", task_step=step, next_steps=(step.get_next_step(),))


async def _return_direct(
    call: ToolCall, ctx: StepContext, following: TaskStepOutput
) -> TaskStepOutput:
    """Run the one call now; its result is the answer, unless it failed."""
    [result] = await ctx.call_tools([call])
    ctx.add(result.message)
    if result.is_error:
        return following
    ctx.add(assistant(result.content))
    return TaskStepOutput(output=result.content, task_step=following.task_step, is_last=True)


async def _follow(
    run: Sequence[ToolCall], ctx: StepContext, following: TaskStepOutput
) -> TaskStepOutput:
    """Run the calls now, and end the run if the agent's behaviour makes a result the output."""
    given = await ctx.call_tools(run)
    for result in given:
        ctx.add(result.message)
    results = [each for call, each in zip(run, given, strict=True) if _is_of_tool(call, ctx)]
    if ctx.agent.behavior == "ask":
        said = await ctx.code.follow(ctx.state, results)
        if not said.is_final_output:
            return following
        output = said.final_output
    else:
        final = turn.final_result(results, ctx.agent.behavior)
        if final is None:
            return following
        output = ctx.code.final(final)
    if ctx.agent.output is None and not isinstance(output, str):
        output = str(output)
    return TaskStepOutput(output=output, task_step=following.task_step, is_last=True)


def _is_of_tool(call: ToolCall, ctx: StepContext) -> bool:
    """Whether the outcome of a call is the result of a tool on offer.

    The answer to a request of the provider's server for an approval is none, though the server may
    be called as a namespace is.
    """
    return not call.server and ctx.offer.has(call.name)


OpenAIAgentWorker = FunctionCallingAgentWorker
"""The name of this worker in LlamaIndex."""
