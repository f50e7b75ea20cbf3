"""What becomes of a model's call of a handoff, for AgentWorkers whose agents hand tasks over."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from holdfast.task.data.calls import Outcome
from holdfast.task.handoff_calls import IGNORED, called_handoff, transfer_message
from holdfast.values.messages import ToolCall
from holdfast.values.steps import TaskStep, TaskStepOutput

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
