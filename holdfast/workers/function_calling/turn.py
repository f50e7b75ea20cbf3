"""What follows a model's answer: an end, another turn, tool calls, or a handoff."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Literal

from holdfast.errors import ModelBehaviorError, ModelRefusalError
from holdfast.models.base import ModelAnswer
from holdfast.models.openai.item_checks import kind_of
from holdfast.task.data.agent_snapshot import AgentSnapshot
from holdfast.task.data.calls import Outcome
from holdfast.task.data.failures import KIND, REFUSAL, TURN_FOLLOWS
from holdfast.task.handoff_calls import IGNORED, called_handoff, handed_to, transfer_message
from holdfast.values.base import Json
from holdfast.values.messages import Message, ToolCall, clean
from holdfast.values.steps import TaskStep, TaskStepOutput, ToolOutput
from holdfast.values.text.redact import redact

if TYPE_CHECKING:
    from holdfast.models.base import ModelAnswer
    from holdfast.workers.context.context import StepContext

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
    """End a step by handing the task over, if the model's answer wants that.

    The other calls are run first, then the handoff; of several handoffs, the first counts. If
    somebody has given the handoff up, the agent goes on itself.

    Args:
        step: The step.
        ctx: Its context; the answer is in the transcript already.
        answer: The answer.
        run: Those of its calls that may be run.
        refused: (id, reason) of those that may not.

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
    is_told = policy.effect == "read"  # there is no on_handoff
    changes_view = handoffs.changes_view(chosen.name)
    if is_told:
        handoffs.tell(chosen, Outcome(content=transfer_message(policy.handoff)))
    if others and is_told and not changes_view:
        others, rest = [], [*others, *rest]  # nothing here needs their results
    for result in await ctx.call_tools(others):
        ctx.add(result.message)
    if not is_told:
        results = await ctx.call_tools(rest)
        ctx.adds.extend(result.message for result in results)
        rest = []
        if results[-1].is_error:
            return _stays(step, answer)
    history = None
    with handoffs.recorded(policy.handoff) if is_told else nullcontext():  # else its call was
        if changes_view:
            history = await handoffs.view(ctx, chosen, answer.message, handoffs.messages(rest))
    following = TaskStep(agent=policy.handoff, history=history)
    return TaskStepOutput(
        output=answer.text, task_step=step, next_steps=(following,), calls=tuple(rest)
    )


async def told_of(calls: Sequence[ToolCall], ctx: StepContext) -> dict[int, Outcome]:
    """Return what becomes of those of a step's calls that are not run, by position.

    Raises:
        ModelBehaviorError: The model called something that was not on offer, and that is a verdict.
    """
    told = {} if ctx.handoffs is None else ctx.handoffs.told(calls)
    return {**await ctx.offer.refused(calls, ctx.state), **_cut_off(calls, ctx), **told}


def _cut_off(calls: Sequence[ToolCall], ctx: StepContext) -> dict[int, Outcome]:
    """Refuse calls of answers that were cut off: nobody knows what their arguments lack."""
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
"""What an answer is: tool calls, a final output, a refusal that ends the run, no output at all
where the agent's type wants one, or work of the provider's own tools without a word. After the last
two, the model is asked once more."""

HOSTED = frozenset(
    {
        "code_interpreter_call",
        "file_search_call",
        "image_generation_call",
        "mcp_call",
        "tool_search_call",
        "web_search_call",
    }
)
"""Items of tools that the provider runs itself."""

BUDGET_REACHED = (
    "Not run: the budget of tool calls for this task is used up. Answer with what is known."
)
ONE_AT_A_TIME = "Not run: call one tool at a time. Call it again if it is still needed."
LONGEST_REFUSAL = 2000
NO_OUTPUT = "Model returned no final output for the structured output type."


def follows(answer: ModelAnswer, agent: AgentSnapshot, *, may_refuse: bool) -> Follows:
    """Say what an answer is.

    Args:
        answer: The answer.
        agent: The agent that gave it.
        may_refuse: Whether the words of a refusal are an answer like any other.
    """
    if answer.message.calls:
        return "tools"
    kinds = {kind_of(item) for item in answer.message.items}
    if kinds & HOSTED and "message" not in kinds and not answer.text:
        return "work"
    if answer.refusal:
        return "answer" if may_refuse else "refusal"
    return "nothing" if agent.output is not None and not answer.text else "answer"


def refusal(answer: ModelAnswer) -> ModelRefusalError:
    """Make the verdict on a refusal."""
    said = clean(redact(answer.refusal))[:LONGEST_REFUSAL]
    verdict = ModelRefusalError(said)
    verdict.facts = {KIND: "model_refusal", REFUSAL: said}
    return verdict


def invalid_output(text: str, *, again: bool = False) -> ModelBehaviorError:
    """Make the verdict on an answer that is not what the agent's output type wants."""
    verdict = ModelBehaviorError(text)
    facts: dict[str, Json] = {KIND: "invalid_final_output"}
    verdict.facts = {**facts, TURN_FOLLOWS: True} if again else facts
    return verdict


def allot(
    calls: tuple[ToolCall, ...], *, left: int | None, parallel: bool
) -> tuple[tuple[ToolCall, ...], list[tuple[str, str]]]:
    """Split calls into those to run and those to refuse.

    Args:
        calls: What the model wants.
        left: Most calls that may still be run; None for no limit.
        parallel: Whether one answer may call several tools.

    Returns:
        The calls to run; the id and the reason of each of the others.
    """
    room, reason = len(calls), BUDGET_REACHED
    if not parallel and room > 1:
        room, reason = 1, ONE_AT_A_TIME
    if left is not None and left < room:
        room, reason = max(0, left), BUDGET_REACHED
    return calls[:room], [(call.id, reason) for call in calls[room:]]


def sole_direct_call(
    run: Sequence[ToolCall], refused: Sequence[object], agent: AgentSnapshot
) -> ToolCall | None:
    """Return the one call whose result is the answer of the task, if its tool says so."""
    if len(run) != 1 or refused:
        return None
    policy = agent.policies.get(run[0].name)
    return run[0] if policy is not None and policy.return_direct else None


def may_end(run: Sequence[ToolCall], behavior: str) -> bool:
    """Whether the results of these calls may be the end: the step then waits for them."""
    if not run or not behavior:
        return False
    return behavior in ("first", "ask") or any(call.name in _names(behavior) for call in run)


def final_result(results: Sequence[ToolOutput], behavior: str) -> ToolOutput | None:
    """Return the result that is the final output, for all behaviours but a function's."""
    if behavior == "first":
        return results[0]
    return next((result for result in results if result.tool_name in _names(behavior)), None)


def who_used_tools(first: AgentSnapshot, transcript: Sequence[Message]) -> set[str]:
    """Name the agents that have used tools in a task.

    Args:
        first: The agent that it began with, and its team.
        transcript: Its messages, oldest first. They do not say whose they are, but handoffs do.
    """
    used: set[str] = set()
    now = first
    calls: dict[str, ToolCall] = {}
    for message in transcript:
        if message.calls:
            used.add(now.name)
            calls = {call.id: call for call in message.calls}
        elif message.role == "tool" and message.call_id in calls:
            now = first.of(handed_to(calls[message.call_id], message, now.policies) or now.name)
    return used


def _names(behavior: str) -> frozenset[str]:
    return frozenset(behavior.split(",")) - {""} if "," in behavior else frozenset()
