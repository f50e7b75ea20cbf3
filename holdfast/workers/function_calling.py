"""The default AgentWorker: call the model and run its tool calls, until it answers with text.

This is the loop of the OpenAI Agents SDK, handoffs included. After an answer a turn goes on
with its end, another turn, tool calls or a handoff.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, ClassVar, Literal, TypeVar

from holdfast.errors import ModelBehaviorError, ModelRefusalError, UnfitAnswerError
from holdfast.models.base import ModelAnswer
from holdfast.models.openai.hosted_items import RUN_BY_PROVIDER
from holdfast.models.openai.item_contents import kind_of
from holdfast.task.data.calls import Outcome
from holdfast.task.data.failures import INVALID_OUTPUT, KIND, REFUSAL, TURN_FOLLOWS
from holdfast.task.data.head import (
    IGNORED,
    AgentSnapshot,
    called_handoff,
    handed_to,
    policy_of,
    transfer_message,
)
from holdfast.values.base import Json, sense
from holdfast.values.checks.gate import check_arguments, safe_text
from holdfast.values.messages import Message, ToolCall, assistant, system
from holdfast.values.steps import TaskStep, TaskStepOutput, ToolOutput
from holdfast.workers.base import AgentWorker, at_least
from holdfast.workers.context.offer import StepHandoffs
from holdfast.workers.tool_use import FIRST, is_named, may_be_final

if TYPE_CHECKING:
    from holdfast.workers.context.context import StepContext


ResultT = TypeVar("ResultT", bound=ToolOutput)

CUT_OFF = (
    "Not run: the answer was cut off, and may lack the end of this call. Call again what is still"
    " needed, with less at once."
)


async def hand_over(
    handoffs: StepHandoffs,
    step: TaskStep,
    ctx: StepContext,
    answer: ModelAnswer,
    run: Sequence[ToolCall],
    *,
    refused: Sequence[tuple[str, str]],
) -> TaskStepOutput | None:
    """End a step by handing the task over, if the model's answer calls a handoff.

    The other calls are run first, then the handoff; of several handoffs, the first counts. If the
    handoff's own call ends with an error, as when a reviewer gives it up, the agent goes on itself.

    Args:
        handoffs: The agent's handoffs.
        step: The step.
        ctx: Its context; the answer is in the transcript already.
        answer: The answer.
        run: The calls of the answer that may be run.
        refused: (id, reason) of the calls that may not be run.

    Returns:
        The step's output, or None when no call hands the task over.
    """
    policies = ctx.agent.policies
    offered = {spec.name for spec in ctx.agent.handoffs}
    wanted = [c for c in run if called_handoff(c, policies) and c.name in offered]
    if not wanted:
        return None
    chosen, *ignored = wanted
    reasons = dict(refused)
    others = [call for call in run if call not in wanted]
    rest = [call for call in answer.message.calls if call.id in reasons]
    for call in rest:
        handoffs.tell(call, _not_run(reasons[call.id]))
    for call in ignored:
        handoffs.tell(call, Outcome(content=IGNORED, status="failed", attempts=0))
    rest += [*ignored, chosen]
    policy = policies[chosen.name]
    # Without an `on_handoff` function there is nothing to run: the call is settled right here.
    is_told = policy.effect == "read"
    changes_view = handoffs.changes_view(chosen.name)
    if is_told:
        name = policy.handoff_name or policy.handoff
        handoffs.tell(chosen, Outcome(content=transfer_message(name)))
    if others and is_told and not changes_view:
        # The next agent's view does not depend on their results, so they can run after the step,
        # which saves an activity.
        others, rest = [], [*others, *rest]
    for result in await ctx.call_tools(others):
        ctx.add(result.message)
    if not is_told:
        results = await ctx.call_tools(rest)
        ctx.adds.extend(result.message for result in results)
        rest = []
        if results[-1].is_error:
            return _stays(step, answer)
    history = None
    # A call of `on_handoff` has recorded the handoff already.
    with handoffs.recorded(policy.handoff) if is_told else nullcontext():
        if changes_view:
            history = await handoffs.view(ctx, chosen, answer.message, handoffs.messages(rest))
    following = TaskStep(agent=policy.handoff, history=history)
    return TaskStepOutput(
        output=answer.text, task_step=step, next_steps=(following,), calls=tuple(rest)
    )


_SERVER: Callable[[ToolCall], str] = operator.attrgetter("server")


async def told_of(calls: Sequence[ToolCall], ctx: StepContext) -> dict[int, Outcome]:
    """Return the outcomes of a step's calls that are not run, by position.

    Raises:
        ModelBehaviorError: The model called a tool that was not on offer, and the rules of the
            Agents SDK end the run for that.
    """
    if not calls:
        return {}
    told = {} if ctx.handoffs is None else ctx.handoffs.told(calls)
    refused = await ctx.offer.refused(calls, ctx.state)
    of_servers = any(map(_SERVER, calls))
    decided = await ctx.code.decided(calls, ctx.state) if of_servers else {}
    cut = [entry.answer for entry in ctx.record.all if entry.answer and entry.answer.is_cut_off]
    return {**decided, **refused, **(_cut_off(calls, cut) if cut else {}), **told}


def _cut_off(calls: Sequence[ToolCall], cut: Sequence[ModelAnswer]) -> dict[int, Outcome]:
    """Refuse the calls of answers that were cut off, because their arguments may be incomplete."""
    return {
        i: _not_run(CUT_OFF)
        for i, call in enumerate(calls)
        if any(call in answer.message.calls for answer in cut)
    }


def _not_run(reason: str) -> Outcome:
    return Outcome(content=reason, is_error=True, status="failed", attempts=0)


def _stays(step: TaskStep, answer: ModelAnswer) -> TaskStepOutput:
    state = {key: value for key, value in step.step_state.items() if key != "refused_calls"}
    following = step.get_next_step(step_state=state)
    return TaskStepOutput(output=answer.text, task_step=step, next_steps=(following,))


Follows = Literal["tools", "answer", "refusal", "nothing", "work"]
"""Kinds of a model's answer: tool calls; a final output; a refusal that ends the run; "nothing"
where the agent's type requires an output; "work" of the provider's own tools without any text, or
calls of an earlier turn once more. After the last two, the model is called again."""

BUDGET_REACHED = (
    "Not run: the budget of tool calls for this task is used up. Answer with what is known."
)
ONE_AT_A_TIME = "Not run: call one tool at a time. Call it again if it is still needed."
MOST_REPEATS = 5
NO_OUTPUT = "Model returned no final output for the structured output type."


def follows(answer: ModelAnswer, agent: AgentSnapshot, *, may_refuse: bool) -> Follows:
    """Return the kind of an answer.

    Args:
        answer: The answer.
        agent: The agent whose turn it is.
        may_refuse: Whether a refusal is an answer like any other.
    """
    if answer.message.calls:
        return "tools"
    if answer.repeated:
        return "work"
    if answer.message.items and not answer.text:
        kinds = {kind_of(item) for item in answer.message.items}
        if "message" not in kinds and any(kind.endswith("_call") for kind in kinds):
            return "work"
    if answer.refusal:
        return "answer" if may_refuse else "refusal"
    return "nothing" if agent.output is not None and not answer.text else "answer"


def refusal(answer: ModelAnswer) -> ModelRefusalError:
    """Make the error that ends a run whose model refuses."""
    said = safe_text(answer.refusal)
    verdict = ModelRefusalError(said)
    verdict.facts = {KIND: "model_refusal", REFUSAL: said}
    return verdict


def invalid_output(text: str, *, again: bool = False) -> ModelBehaviorError:
    """Make the error for an answer that does not fit the agent's output type."""
    verdict = ModelBehaviorError(text)
    facts: dict[str, Json] = {KIND: INVALID_OUTPUT}
    verdict.facts = {**facts, TURN_FOLLOWS: True} if again else facts
    return verdict


def allot(
    calls: tuple[ToolCall, ...], *, left: int | None, parallel: bool
) -> tuple[tuple[ToolCall, ...], list[tuple[str, str]]]:
    """Split calls into those to run and those to refuse.

    Requests of the provider for an approval are not run here, and do not count.

    Args:
        calls: The model's calls.
        left: Most calls that may still be run; None for no limit.
        parallel: Whether one answer may call several tools.

    Returns:
        The calls to run; id and reason of each refused call.
    """
    own = [k for k, call in enumerate(calls) if not call.server]
    room, reason = len(own), BUDGET_REACHED
    if not parallel and room > 1:
        room, reason = 1, ONE_AT_A_TIME
    if left is not None and left < room:
        room, reason = max(0, left), BUDGET_REACHED
    refused = own[room:]
    run = tuple(call for k, call in enumerate(calls) if k not in refused)
    return run, [(calls[k].id, reason) for k in refused]


def may_end(run: Sequence[ToolCall], behavior: str) -> bool:
    """Whether the results of these calls may end the run, so that the step waits for them."""
    return any(may_be_final(call.name, behavior) for call in run)


def final_result(results: Sequence[ResultT], behavior: str) -> ResultT | None:
    """Return the result that is the final output, for every behaviour but a function."""
    if behavior == FIRST:
        return results[0]
    return next((each for each in results if is_named(each.tool_name, behavior)), None)


def has_used_tools(name: str, first: AgentSnapshot, transcript: Iterable[Message]) -> bool:
    """Whether an agent has used a tool in a task; no message after its first use is looked at.

    Args:
        name: Its name.
        first: The agent that the task began with, and its team.
        transcript: The task's messages, oldest first. They do not name their agent; it is found by
            following the handoffs.
    """
    now = first
    calls: dict[str, ToolCall] = {}
    for message in transcript:
        kinds = {kind_of(item) for item in message.items}
        is_use = kinds & RUN_BY_PROVIDER or any(not call.server for call in message.calls)
        if is_use and now.name == name:
            return True
        if message.calls:
            calls = {call.id: call for call in message.calls}
        elif message.role == "tool" and message.call_id in calls:
            now = first.of(handed_to(calls[message.call_id], message, now.policies) or now.name)
    return False


REPEATS = "repeats"
"""Marks the message about repeated calls; providers do not get it."""

TOLD_OF_REPEATS = (
    "You have made the same call {n} times in a row, and its result was the same each time. Do"
    " something else, or answer with what you know."
)


def repeats(messages: Sequence[Message]) -> tuple[tuple[ToolCall, ...], int]:
    """Count how often in a row the newest calls were made with the same results.

    Args:
        messages: The conversation, oldest first; it ends with these results. What anybody but the
            model says ends the row.

    Returns:
        The calls of the newest answer, and the number of answers.
    """
    count, wanted = 0, None
    calls: tuple[ToolCall, ...] = ()
    results: list[tuple[str, bool]] = []
    for message in reversed(messages):
        if message.role == "tool":
            results.append((message.text, message.is_error))
        elif message.role == "assistant" and message.calls:
            made = ([(call.name, sense(call.arguments)) for call in message.calls], results)
            if wanted is None:
                wanted, calls = made, message.calls
            if made != wanted:
                break
            count, results = count + 1, []
        elif message.call_id != REPEATS:
            break
    return calls, count


class FunctionCallingAgentWorker(AgentWorker):
    """Function calling: one model call and its tool calls make a step.

    Args:
        max_repeats: How often in a row the model may make the same calls with the same results.
            Then a message says so, once; after as many again the step waits for a person, who may
            run it once more, say something, undo or end. None for no limit; a dict sets it by tool,
            as `{"status": 100}`.
        max_function_calls: Most tool calls of one task, or None for no limit. Calls beyond it get a
            result that says so, and one answer without tools ends the task.
        allow_parallel_tool_calls: Whether one answer may call several tools. When False, the first
            call is run and the others get a result that asks for one at a time.

    Raises:
        InvalidArgumentError: A limit is not a number of calls, or `allow_parallel_tool_calls` not a
            bool.
    """

    hands_over: ClassVar[bool] = True

    def __init__(
        self,
        *,
        max_function_calls: int | None = None,
        allow_parallel_tool_calls: bool = True,
        max_repeats: int | Mapping[str, int | None] | None = MOST_REPEATS,
    ) -> None:
        """Keep the limits."""
        if max_function_calls is not None:
            at_least(0, "max_function_calls", max_function_calls)
        given = {"allow_parallel_tool_calls": allow_parallel_tool_calls}
        check_arguments(FunctionCallingAgentWorker.__init__, **given)
        by_tool = max_repeats if isinstance(max_repeats, Mapping) else {"max_repeats": max_repeats}
        for name, most in by_tool.items():
            if most is not None:
                at_least(1, name, most)
        self.max_repeats = max_repeats
        self.max_function_calls = max_function_calls
        self.allow_parallel_tool_calls = allow_parallel_tool_calls

    def __eq__(self, other: object) -> bool:
        """Whether it has the same class and limits: agents declared alike are equal."""
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        """Return the same for equal ones; the limits may be changed."""
        return hash(type(self))

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        """Call the model; end the step with its tool calls, or the task with its answer."""
        used = _take_in(step, ctx)
        if not ctx.adds and ctx.rules.output_attempts:  # the step begins with results of tools
            self._heed_repeats(ctx)
        exhausted = self.max_function_calls is not None and used >= self.max_function_calls
        is_last = ctx.limit_reached
        no_tools = exhausted or is_last
        choice = "none" if no_tools else ctx.tool_choice
        check = functools.partial(_checked, ctx, no_tools=no_tools, is_last=is_last)
        answer = await ctx.ask(check, choice=choice)
        may_refuse = ctx.dialect.unknown_tool == "tell"
        match follows(answer, ctx.agent, may_refuse=may_refuse):
            case "tools":
                ctx.add(answer.message)
                return await self._use_tools(step, ctx, answer, used)
            case "refusal":
                raise refusal(answer)
            case "nothing" if "invalid_final_output" in ctx.rules.error_handlers:
                raise invalid_output(NO_OUTPUT, again=True)
            case "nothing" | "work":
                return _asks_again(step, ctx, answer)
            case "answer":
                ctx.add(answer.message)
                return TaskStepOutput(output=_final(ctx, answer), task_step=step, is_last=True)

    def _most_of(self, call: ToolCall) -> int | None:
        given = self.max_repeats
        return given.get(call.name, MOST_REPEATS) if isinstance(given, Mapping) else given

    def _heed_repeats(self, ctx: StepContext) -> None:
        """Say to the model that it makes the same calls again and again, or have the step wait.

        Raises:
            UnfitAnswerError: The model went on after that.
        """
        calls, count = repeats(ctx.messages)
        limits = [self._most_of(call) for call in calls]
        most = max((each for each in limits if each is not None), default=None)
        if most is None or None in limits or count < most or count % most or ctx.is_asked_again:
            return
        if count == most:
            told = system(TOLD_OF_REPEATS.format(n=count))
            ctx.add(told.model_copy(update={"call_id": REPEATS}))
            return
        made = ", ".join(f"{call.name}({call.arguments})" for call in calls)
        raise UnfitAnswerError(
            f"The model has made the same calls {count} times in a row, with the same results each"
            f" time: {safe_text(made)}. It was told after {most}.",
            remedy="Say something by feedback, then run the step again; or undo, or end the task."
            f" Run without feedback, it goes on for {most} more. The agent's"
            " worker=FunctionCallingAgentWorker(max_repeats=...) sets the limit.",
        )

    async def _use_tools(
        self, step: TaskStep, ctx: StepContext, answer: ModelAnswer, used: int
    ) -> TaskStepOutput:
        """End the step with its tool calls; wait for them if their results may end the run."""
        most, refuse = self.max_function_calls, list[tuple[str, str]]()
        run, parallel = answer.message.calls, self.allow_parallel_tool_calls
        if most is not None or not parallel:
            left = None if most is None else most - used
            run, refuse = allot(run, left=left, parallel=parallel)
            used += sum(not call.server for call in run)
        if ctx.handoffs is not None and not answer.is_cut_off:
            handed = await hand_over(ctx.handoffs, step, ctx, answer, run, refused=refuse)
            if handed is not None:
                return handed
        state = self._with_progress(step, used, refuse)
        following = TaskStepOutput(
            output=answer.text, task_step=step, next_steps=(step.get_next_step(step_state=state),)
        )
        if answer.is_cut_off:  # none of them is run: `turn.told_of` settles them as cut off
            return following.model_copy(update={"calls": run})
        policy = policy_of(ctx.agent.policies, run[0]) if len(run) == 1 and not refuse else None
        if policy is not None and policy.return_direct:
            return await _return_direct(run[0], ctx, following)
        behavior = ctx.agent.behavior
        if behavior and may_end([call for call in run if _is_of_tool(call, ctx)], behavior):
            return await _follow(run, ctx, following)
        return following.model_copy(update={"calls": run})

    def _with_progress(
        self, step: TaskStep, used: int, refused: list[tuple[str, str]]
    ) -> dict[str, Json]:
        """Make the next step's state, with the count of calls if there is a limit."""
        state = dict(step.step_state)
        state.pop("refused_calls", None)
        if self.max_function_calls is not None:
            state["function_calls"] = used
        if refused:
            state["refused_calls"] = [list(pair) for pair in refused]
        return state


def _take_in(step: TaskStep, ctx: StepContext) -> int:
    """Add the step's input and the refusals of calls; return how many calls the task has run."""
    told = step.message()
    if told is not None:
        ctx.add(told)
    for call_id, reason in step.step_state.get("refused_calls", ()):
        ctx.add(Message(role="tool", call_id=call_id, content=reason, is_error=True))
    used: int = step.step_state.get("function_calls", 0)
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
            raise ModelBehaviorError(BUDGET_REACHED)
        answer = answer.model_copy(update={"message": assistant(answer.text)})
    if follows(answer, ctx.agent, may_refuse=True) == "answer":
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
        raise invalid_output(str(error)) from error


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
        final = final_result(results, ctx.agent.behavior)
        if final is None:
            return following
        output = ctx.code.final(final)
    if ctx.agent.output is None and not isinstance(output, str):
        output = str(output)
    return TaskStepOutput(output=output, task_step=following.task_step, is_last=True)


def _is_of_tool(call: ToolCall, ctx: StepContext) -> bool:
    """Whether the outcome of a call is the result of a tool on offer.

    The answer to an approval request of the provider's server is not such a result, though the
    server may be called as a namespace is.
    """
    return not call.server and ctx.offer.has(call.name)


OpenAIAgentWorker = FunctionCallingAgentWorker
"""The name of this worker in LlamaIndex."""
