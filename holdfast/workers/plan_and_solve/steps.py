"""The steps of a plan: their state, the next ones, and the plan's versions in the task's state.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from holdfast.errors import InvalidArgumentError
from holdfast.values.base import Json, Value
from holdfast.values.checks.json_shapes import is_array, is_object
from holdfast.values.steps import TaskStep
from holdfast.values.text.shown import shown
from holdfast.workers.plan_and_solve.plan import Plan, SubTask, ready, step_ids, terminal

PLANS_KEY = "plans"
"""Key of `ctx.state` for every version of every plan of the task, oldest first.

Each version is `{"plan", "version", "sub_tasks", "reason"}`: the prefix of its steps' ids ("p1"), a
number from 1, the whole plan with the sub-tasks that are done, and the reason of this version:
"made", "refined", "kept: ..." when a refinement could not be used, or "fallback: ..." when no plan
could be read and one sub-task stands for the whole request.
"""


Kind = Literal["sub_task", "refine", "answer"]


class Progress(Value):
    """The `step_state` of every step of a plan but the first, which makes the plan.

    Attributes:
        kind: What the step does.
        plan: Prefix of the ids of the plan's steps.
        request: Position in the conversation of the message that the plan was made for.
        done: Name to step id: of all sub-tasks that are done, for a refinement; of the sub-tasks
            that it depends on, for another step.
        rounds: Refinements queued so far.
        sub_task: The sub-task that the step does.
        answers: Whether the sub-task's result is the task's answer.
        tool_choice: For the first model call of a sub-task that the plan begins with.
    """

    kind: Kind
    plan: str
    request: int
    done: dict[str, str] = Field(default_factory=dict[str, str])
    rounds: int = 0
    sub_task: SubTask | None = None
    answers: bool = False
    tool_choice: str = "auto"


def following(
    plan: Plan, progress: Progress, *, refine: bool, synthesize: bool
) -> tuple[TaskStep, ...]:
    """Make the next steps of a plan; none when the result that is the answer is there already.

    Args:
        plan: The whole plan.
        progress: State of the plan; its `done` has all sub-tasks that are done.
        refine: Queue the sub-tasks that can run now, and a refinement after them; else queue all.
        synthesize: Let a last step write the answer even if there is only one last result.
    """
    left = [each for each in plan.sub_tasks if each.name not in progress.done]
    now = ready(plan, progress.done) if refine else left
    ids = step_ids(progress.plan, [each.name for each in now], progress.done)
    ends = terminal(plan)
    is_over = len(now) == len(left)
    answers = is_over and len(ends) == 1 and not synthesize
    last = ends[0] if answers else ""
    steps = [_step_of(each, ids, progress, last=last) for each in now]
    if answers:
        return tuple(steps)
    if is_over:
        waits = {name: ids[name] for name in ends}
        progress = progress.model_copy(update={"tool_choice": "auto"})
        return (*steps, _step(progress, "answer", waits, f"{progress.plan}-answer"))
    rounds = progress.rounds + 1
    going_on = progress.model_copy(update={"rounds": rounds, "tool_choice": "auto"})
    return (*steps, _step(going_on, "refine", ids, f"{progress.plan}-refine-{rounds}"))


def _step_of(
    sub_task: SubTask, ids: Mapping[str, str], progress: Progress, *, last: str
) -> TaskStep:
    needs = {name: ids[name] for name in sub_task.dependencies}
    mine: dict[str, object] = {"sub_task": sub_task, "answers": sub_task.name == last, "rounds": 0}
    if needs:
        mine["tool_choice"] = "auto"
    return _step(progress.model_copy(update=mine), "sub_task", needs, ids[sub_task.name])


def _step(progress: Progress, kind: Kind, waits: Mapping[str, str], step_id: str) -> TaskStep:
    """Make a step that waits for these sub-tasks, name to step id."""
    state = progress.model_copy(update={"kind": kind, "done": dict(waits)})
    return TaskStep(step_id=step_id, step_state=state.wire(), prev_steps=tuple(waits.values()))


def results(progress: Progress, inputs: Mapping[str, Json]) -> dict[str, Json]:
    """Return name to output, for the sub-tasks that a step waited for.

    Raises:
        InvalidArgumentError: An output is missing; a result made without it would look complete.
    """
    missing = [name for name, step in progress.done.items() if step not in inputs]
    if missing:
        msg = (
            f"There is no result of {', '.join(map(repr, missing))}, which this step builds on."
            " Undo back to the plan to have it made again, or drop this step."
        )
        raise InvalidArgumentError(msg)
    return {name: inputs[step] for name, step in progress.done.items()}


def current(state: Mapping[str, Json], plan: str) -> Plan:
    """Return the newest version of a plan.

    Raises:
        InvalidArgumentError: The state no longer holds the plan.
    """
    for entry in reversed(_versions(state)):
        if entry.get("plan") == plan:
            return Plan(sub_tasks=tuple(map(SubTask.model_validate, entry["sub_tasks"])))
    msg = f"ctx.state[{PLANS_KEY!r}] no longer has plan {plan!r}: no tool may change it."
    raise InvalidArgumentError(msg)


def _versions(state: Mapping[str, Json]) -> list[dict[str, Json]]:
    versions: Json = state.get(PLANS_KEY, [])
    if not is_array(versions) or not all(map(is_object, versions)):
        msg = f"ctx.state[{PLANS_KEY!r}] must be left to the plans; it holds {shown(versions)}."
        raise InvalidArgumentError(msg)
    return versions


def record(state: dict[str, Json], plan: str, now: Plan, reason: str) -> dict[str, Json]:
    """Add a version of a plan to the state; return the step's output that describes it.

    A refinement that changes nothing is in the output only, so that the state grows with changes
    alone.
    """
    before = _versions(state)
    number = sum(entry.get("plan") == plan for entry in before)
    if reason != "unchanged":
        number += 1
        entry = {"plan": plan, "version": number, "reason": reason}
        whole = [each.model_dump(mode="json") for each in now.sub_tasks]
        state[PLANS_KEY] = [*before, {**entry, "sub_tasks": whole}]
    return {"plan": plan, "version": number, "reason": reason, "sub_tasks": list(now.names)}
