"""Steps that wait for others: which are ready, what may be linked, and where new ones go. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import cast

from holdfast.values.steps import TaskStep


def unmet(step: TaskStep, pending: Collection[str]) -> tuple[str, ...]:
    """List the steps that a step still waits for.

    Args:
        step: The step.
        pending: Ids of all steps that are queued or open.
    """
    return tuple(before for before in step.prev_steps if before in pending)


def ready_steps(queue: Sequence[TaskStep], opened: Iterable[str]) -> tuple[TaskStep, ...]:
    """List the queued steps that can run now, in order.

    Args:
        queue: The queued steps.
        opened: Ids of the steps in progress.
    """
    if not queue:
        return ()
    pending = {*opened, *(step.step_id for step in queue)}
    return tuple(step for step in queue if step.is_ready and not unmet(step, pending))


def problem(
    steps: Sequence[TaskStep],
    *,
    queue: Sequence[TaskStep],
    opened: Collection[str],
    known: Collection[str],
    serial: int = 0,
) -> str:
    """Say why steps cannot be queued, or return nothing.

    Args:
        steps: The new steps; ids may be missing.
        queue: The queued steps.
        opened: Ids of the other steps in progress.
        known: Ids of completed steps, the one that queues these among them.
        serial: Number of the newest id, s<number>, that the task itself gave.
    """
    if not steps:
        return ""
    # A step that is queued and not ready may be named again: the new one takes its place.
    waiting = {step.step_id for step in queue if not step.is_ready}
    taken = {*opened, *(step.step_id for step in queue)} - waiting
    ids: set[str] = set()
    for step in steps:
        if step.step_id and (step.step_id in ids or step.step_id in taken):
            return f"Step id {step.step_id!r} is taken by another step that is not done."
        used = step.step_id in known or 0 < serial_of(step.step_id) <= serial
        if step.step_id and used and step.step_id not in waiting:
            return (
                f"Step id {step.step_id!r} was used before in this task. Leave the id out, as"
                " get_next_step() does, or make up another one."
            )
        ids.add(step.step_id)
    there = {*ids, *taken, *waiting, *known} - {""}
    for step in steps:
        unknown = [before for before in step.prev_steps if before not in there]
        if unknown:
            return (
                f"Step {step.step_id!r} would wait for {', '.join(map(repr, unknown))}, which is"
                " not a step of this task, or one done so long ago that its output is not at hand."
                " Link to steps that are queued, in progress, or were done lately with an own id."
            )
    if any(step.prev_steps for step in steps):  # what is queued already has no ring
        named = (step for step in queued_with(queue, steps) if step.step_id)
        ring = circle({step.step_id: step.prev_steps for step in named})
        if ring:
            return f"Steps {' -> '.join(map(repr, ring))} wait for each other: none could ever run."
    return ""


def serial_of(step_id: str) -> int:
    """Return the number of an id that the task itself gave, s<number>; 0 for other ids."""
    return int(step_id[1:]) if step_id[:1] == "s" and step_id[1:].isdecimal() else 0


def queued_with(queue: Sequence[TaskStep], steps: Iterable[TaskStep]) -> tuple[TaskStep, ...]:
    """Return the queue with new steps at its end; one that was not ready gives up its place."""
    new = tuple(steps)
    if not queue or not new:
        return new or tuple(queue)
    ids = {step.step_id for step in new} - {""}
    return (*(step for step in queue if step.step_id not in ids), *new)


def circle(before: Mapping[str, Iterable[str]]) -> list[str]:
    """Return names that wait for each other in a ring, first one repeated; nothing without a ring.

    Args:
        before: Name to the names that it waits for.
    """
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        return cast("list[str]", error.args[1])[::-1]
    return []
