"""Steps that wait for others: which are ready, what may be linked, and where new ones go. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from holdfast.steps import TaskStep


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
                f"Step {step.step_id!r} would wait for {', '.join(map(repr, unknown))}, which is no"
                " step of this task, or one done so long ago that its output is not at hand. Link"
                " to steps that are queued, in progress, or were done lately under an id of your"
                " own."
            )
    circle = _circle(queued_with(queue, steps))
    if circle:
        return f"Steps {' -> '.join(map(repr, circle))} wait for each other: none could ever run."
    return ""


def serial_of(step_id: str) -> int:
    """Return the number of an id that the task itself gave, s<number>; 0 for other ids."""
    return int(step_id[1:]) if step_id[:1] == "s" and step_id[1:].isdecimal() else 0


def queued_with(queue: Sequence[TaskStep], steps: Iterable[TaskStep]) -> tuple[TaskStep, ...]:
    """Return the queue with new steps at its end; one that was not ready gives up its place."""
    new = tuple(steps)
    ids = {step.step_id for step in new} - {""}
    return (*(step for step in queue if step.step_id not in ids), *new)


def _circle(steps: Sequence[TaskStep]) -> list[str]:
    """Return a circle of steps that wait for each other, or nothing."""
    before = {step.step_id: step.prev_steps for step in steps if step.step_id}
    cleared: set[str] = set()
    for start, first in before.items():
        path: list[str] = []
        stack = [(start, iter(first))] if start not in cleared else []
        while stack:
            step, rest = stack[-1]
            if not path or path[-1] != step:
                path.append(step)
            following = next((p for p in rest if p in before and p not in cleared), None)
            if following is None:
                cleared.add(step)
                path.pop()
                stack.pop()
            elif following in path:
                return [*path[path.index(following) :], following]
            else:
                stack.append((following, iter(before[following])))
    return []
