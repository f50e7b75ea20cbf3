"""The default AgentWorker: ask the model, run the tools it calls, until it answers in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.errors import InvalidArgumentError
from holdfast.messages import Message, ToolCall, assistant
from holdfast.steps import TaskStep, TaskStepOutput
from holdfast.values import Json
from holdfast.workers.base import AgentWorker
from holdfast.workers.handing_over import hand_over

if TYPE_CHECKING:
    from holdfast.models.base import ModelAnswer
    from holdfast.workers.context import StepContext

BUDGET_REACHED = (
    "Not run: the budget of tool calls for this task is used up. Answer with what is known."
)


class FunctionCallingAgentWorker(AgentWorker):
    """Function calling: one model call and its tool calls make a step.

    Args:
        max_function_calls: Most tool calls of one task, or None for no limit. Calls beyond it get a
            result that says so, and one answer without tools ends the task.
        allow_parallel_tool_calls: Whether one answer may call several tools. When False, the first
            call is run and the others get a result that asks for one at a time.

    Raises:
        InvalidArgumentError: `max_function_calls` is no number of calls, or
            `allow_parallel_tool_calls` no bool.
    """

    hands_over: ClassVar[bool] = True

    def __init__(
        self,
        *,
        max_function_calls: int | None = None,
        allow_parallel_tool_calls: bool = True,
    ) -> None:
        """Keep the two limits."""
        _check(max_function_calls, allow_parallel_tool_calls)
        self.max_function_calls = max_function_calls
        self.allow_parallel_tool_calls = allow_parallel_tool_calls

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        """Ask the model once; end the step with its tool calls, or the task with its answer."""
        told = step.message()
        if told is not None:
            ctx.add(told)
        used, refused = _progress(step)
        for call_id, reason in refused:
            ctx.add(Message(role="tool", call_id=call_id, content=reason, is_error=True))
        exhausted = self.max_function_calls is not None and used >= self.max_function_calls
        no_tools = exhausted or ctx.limit_reached
        answer = await ctx.call_model(tool_choice="none" if no_tools else ctx.tool_choice)
        if no_tools and answer.message.calls:
            answer = answer.model_copy(update={"message": assistant(answer.text)})
        ctx.add(answer.message)
        if not answer.message.calls:
            return TaskStepOutput(output=answer.text, task_step=step, is_last=True)
        run, refuse = self._allot(answer.message.calls, used)
        handed = await hand_over(step, ctx, answer, run, refuse)
        if handed is not None:
            return handed
        direct = _sole_direct_call(run, refuse, ctx)
        if direct is not None:
            return await self._return_direct(direct, step, ctx, answer)
        state = self._with_progress(step, used + len(run), refuse)
        next_step = step.get_next_step(step_state=state)
        return TaskStepOutput(
            output=answer.text, task_step=step, next_steps=(next_step,), calls=run
        )

    async def _return_direct(
        self, call: ToolCall, step: TaskStep, ctx: StepContext, answer: ModelAnswer
    ) -> TaskStepOutput:
        """Run the one call now: its result is the answer, unless it failed."""
        [result] = await ctx.call_tools([call])
        ctx.add(result.message)
        if result.is_error:
            used, _ = _progress(step)
            state = self._with_progress(step, used + 1, [])
            following = (step.get_next_step(step_state=state),)
            return TaskStepOutput(output=answer.text, task_step=step, next_steps=following)
        ctx.add(assistant(result.content))
        return TaskStepOutput(output=result.content, task_step=step, is_last=True)

    def _allot(
        self, calls: tuple[ToolCall, ...], used: int
    ) -> tuple[tuple[ToolCall, ...], list[tuple[str, str]]]:
        """Split calls into those to run and those to refuse, with the reason for each."""
        room = len(calls)
        reason = BUDGET_REACHED
        if not self.allow_parallel_tool_calls and room > 1:
            room = 1
            reason = "Not run: call one tool at a time. Call it again if it is still needed."
        if self.max_function_calls is not None and self.max_function_calls - used < room:
            room = max(0, self.max_function_calls - used)
            reason = BUDGET_REACHED
        return calls[:room], [(call.id, reason) for call in calls[room:]]

    def _with_progress(
        self, step: TaskStep, used: int, refused: list[tuple[str, str]]
    ) -> dict[str, Json]:
        """Hand on what the next step must know: nothing, unless there is a limit."""
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
            f" {most!r:.80}. Pass None for no limit."
        )
        raise InvalidArgumentError(msg)
    if not isinstance(is_parallel, bool):
        msg = f"allow_parallel_tool_calls must be True or False; it was {is_parallel!r:.80}."
        raise InvalidArgumentError(msg)


def _progress(step: TaskStep) -> tuple[int, list[tuple[str, str]]]:
    """Read how many calls were run, and which calls of the last answer were refused."""
    refused = step.step_state.get("refused_calls", [])
    return step.step_state.get("function_calls", 0), [(r[0], r[1]) for r in refused]


def _sole_direct_call(
    run: tuple[ToolCall, ...], refused: list[tuple[str, str]], ctx: StepContext
) -> ToolCall | None:
    if len(run) != 1 or refused:
        return None
    policy = ctx.agent.policies.get(run[0].name)
    return run[0] if policy is not None and policy.return_direct else None


OpenAIAgentWorker = FunctionCallingAgentWorker
"""The name under which LlamaIndex's users know the worker for OpenAI's function calling."""
