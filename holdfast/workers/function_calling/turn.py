"""Decide how a turn goes on after the model's answer: end, another turn, tool calls, handoff."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Literal, TypeVar

from holdfast.errors import ModelBehaviorError, ModelRefusalError
from holdfast.models.base import ModelAnswer
from holdfast.models.openai.hosted_items import RUN_BY_PROVIDER
from holdfast.models.openai.item_checks import kind_of
from holdfast.task.data.agent_snapshot import AgentSnapshot, policy_of
from holdfast.task.data.calls import Outcome
from holdfast.task.data.failures import INVALID_OUTPUT, KIND, REFUSAL, TURN_FOLLOWS
from holdfast.task.handoff_calls import IGNORED, called_handoff, handed_to, transfer_message
from holdfast.values.base import Json
from holdfast.values.messages import Message, ToolCall, clean
from holdfast.values.steps import TaskStep, TaskStepOutput, ToolOutput
from holdfast.values.text.redact import redact
from holdfast.workers.tool_use import FIRST, is_named, may_be_final

if TYPE_CHECKING:
    from holdfast.models.base import ModelAnswer
    from holdfast.workers.context.context import StepContext

ResultT = TypeVar("ResultT", bound=ToolOutput)

CUT_OFF = (
    "Not run: the answer was cut off, and may lack the end of this call. Call again what is still"
    " needed, with less at once."
)


async def hand_over(
    step: TaskStep,
    ctx: StepContext,
    answer: ModelAnswer,
    run: Sequence[ToolCall],
    refused: Sequence[tuple[str, str]] = (),
) -> TaskStepOutput | None:
    """End a step by handing the task over, if the model's answer calls a handoff.

    The other calls are run first, then the handoff; of several handoffs, the first counts. If the
    handoff's own call ends with an error, as when a reviewer gives it up, the agent goes on itself.

    Args:
        step: The step.
        ctx: Its context; the answer is in the transcript already.
        answer: The answer.
        run: The calls of the answer that may be run.
        refused: (id, reason) of the calls that may not be run.

    Returns:
        The step's output, or None when no call hands the task over.
    """
    handoffs, policies = ctx.handoffs, ctx.agent.policies
    if handoffs is None:
        return None
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


async def told_of(calls: Sequence[ToolCall], ctx: StepContext) -> dict[int, Outcome]:
    """Return the outcomes of a step's calls that are not run, by position.

    Raises:
        ModelBehaviorError: The model called a tool that was not on offer, and the rules of the
            Agents SDK end the run for that.
    """
    told = {} if ctx.handoffs is None else ctx.handoffs.told(calls)
    refused = await ctx.offer.refused(calls, ctx.state)
    decided = await ctx.code.decided(calls, ctx.state)
    return {**decided, **refused, **_cut_off(calls, ctx), **told}


def _cut_off(calls: Sequence[ToolCall], ctx: StepContext) -> dict[int, Outcome]:
    """Refuse the calls of answers that were cut off, because their arguments may be incomplete."""
    cut = [entry.answer for entry in ctx.journal if entry.answer and entry.answer.is_cut_off]
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
"""Kinds of a model's answer: tool calls; a final output; a refusal that ends the run; "nothing" in
the place of the output that the agent's type requires; "work" of the provider's own tools without
any text, or calls of an earlier turn once more. After the last two, the model is called again."""

BUDGET_REACHED = (
    "Not run: the budget of tool calls for this task is used up. Answer with what is known."
)
ONE_AT_A_TIME = "Not run: call one tool at a time. Call it again if it is still needed."
LONGEST_REFUSAL = 2000
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
    kinds = {kind_of(item) for item in answer.message.items}
    if kinds & RUN_BY_PROVIDER and "message" not in kinds and not answer.text:
        return "work"
    if answer.refusal:
        return "answer" if may_refuse else "refusal"
    return "nothing" if agent.output is not None and not answer.text else "answer"


def refusal(answer: ModelAnswer) -> ModelRefusalError:
    """Make the error that ends a run whose model refuses."""
    said = clean(redact(answer.refusal))[:LONGEST_REFUSAL]
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


def sole_direct_call(
    run: Sequence[ToolCall], refused: Sequence[object], agent: AgentSnapshot
) -> ToolCall | None:
    """Return the call, if it is the only one and its tool has `return_direct`."""
    if len(run) != 1 or refused:
        return None
    policy = policy_of(agent.policies, run[0])
    return run[0] if policy is not None and policy.return_direct else None


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
