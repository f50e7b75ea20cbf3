"""The queue of a task: which steps are ready, where new ones go, and what the ledger records. Pure.

Recorded is what changed. A record holds two changes: what happened to the queue between the step
before it and the step (`Before.found`), and what the step itself changed (`Taken`, usually only its
place, as it takes itself and adds its `next`). An undo follows them backwards from the present
queue, one step after the other; a fork follows them forwards from the first step.

Where steps run side by side, those in progress count as queued first.

Notes, follow-ups and outputs to be joined are recorded by one change: from what the step before it
found to what a step finds (`Before.waiting`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import cast

from holdfast.task.data.records import OVER_BUDGET, OpenState, StepRecord
from holdfast.task.data.state import Carried
from holdfast.task.data.undo import (
    FIRST_TAKEN,
    NOTHING_WAITS,
    LastOutput,
    QueueChange,
    Taken,
    Undoable,
    Waiting,
    same,
)
from holdfast.values.base import Json
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
    pending = {*opened, *[step.step_id for step in queue]}
    ready = [s for s in queue if s.is_ready and not (s.prev_steps and unmet(s, pending))]
    return tuple(ready)


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


Queue = tuple[TaskStep, ...]


def change_of(old: Sequence[TaskStep], new: Sequence[TaskStep]) -> QueueChange:
    """Return what turns one queue into another."""
    return QueueChange.between(old, new, key=lambda step: step.step_id)


def change_if_any(old: Sequence[TaskStep], new: Sequence[TaskStep]) -> QueueChange | None:
    """Return what turns one queue into another, or None when they are the same."""
    return None if same(old, new) else change_of(old, new)


def found_by(change: QueueChange | None, left: Queue) -> Queue:
    """Return the queue that a step found.

    Args:
        change: What changed since the step before it.
        left: The queue that the step before it left.
    """
    return left if change is None else change.forward(left)


def left_before(change: QueueChange | None, found: Queue) -> Queue:
    """Return the queue that the step before left, from the one that a step found."""
    return found if change is None else change.backward(found)


def taken_from(found: Queue, left: Queue, step: TaskStep, queued: int) -> Taken:
    """Return what a step changed in the queue.

    Args:
        found: The queue that it found.
        left: The queue that it left.
        step: The step as it was run.
        queued: Number of steps that it queued.
    """
    place = 0
    if found and found[0].step_id != step.step_id:
        ids = [each.step_id for each in found]
        place = ids.index(step.step_id) if step.step_id in ids else 0
    if same(_put_back(left, step, place, queued), found):
        return Taken(place=place) if place else FIRST_TAKEN
    return Taken(change=change_of(found, left))


def queue_before(target: Undoable, left: Queue) -> Queue:
    """Return the queue that a step found, from the one that it left."""
    # Usually a step takes only itself. All else was recorded as a whole change.
    change = target.taken.change
    if change is not None:
        return change.backward(left)
    return _put_back(left, target.step, target.taken.place, target.queued)


def _put_back(left: Queue, step: TaskStep, place: int, queued: int) -> Queue:
    # A step queues its next steps at the end, and nothing is queued between its begin and its end
    # without a change of its own.
    kept = left[: len(left) - queued]
    return (*kept[:place], step, *kept[place:])


def queue_after(path: Iterable[StepRecord]) -> Queue:
    """Return the queue that the last step of a branch left.

    Args:
        path: All steps of the branch, oldest first.
    """
    # Forwards, as they were recorded: the records of a branch are a fold, so a fork needs no copy.
    queue: Queue = ()
    for record in path:
        queue = found_by(record.before.found, queue)
        taken = record.taken
        if taken.change is not None:
            queue = taken.change.forward(queue)
        else:
            queue = (*queue[: taken.place], *queue[taken.place + 1 :], *record.next)
    return queue


def waiting_at(path: Iterable[StepRecord]) -> Waiting:
    """Return what waited next to the queue when the last step of a branch was found.

    Args:
        path: All steps of the branch, oldest first.
    """
    found = Waiting()
    for record in path:
        found = record.before.waiting.forward(found)
    return found


def pending(opens: Sequence[OpenState], queue: Queue) -> Queue:
    """Return the queue as if no step were open: those in progress are first in it."""
    if not opens:
        return queue
    return (*(current.open.step for current in opens), *queue)


def waiting(state: Carried) -> Waiting:
    """Return what waits next to the queue, as if no step were open: their notes wait again."""
    notes = state.notes
    for current in reversed(state.opens):
        notes = (*current.open.notes, *notes)
    if not (notes or state.followups or state.lasts):
        return NOTHING_WAITS
    return Waiting(notes=notes, followups=state.followups, lasts=state.lasts)


def lasts_after(lasts: tuple[LastOutput, ...], record: StepRecord) -> tuple[LastOutput, ...]:
    """Return the last outputs that wait to be joined once a step is done.

    Args:
        lasts: Those before it.
        record: The step.
    """
    if record.alone or not record.last:
        return lasts
    over = any(entry.last for entry in record.journal)
    mine = LastOutput(n=record.key, step_id=record.step.step_id, over_budget=over)
    return tuple(sorted((*lasts, mine), key=lambda last: last.n))


def join_of(lasts: Sequence[LastOutput], *, step_id: str = "") -> TaskStep:
    """Return the step that makes one answer of last outputs."""
    # Any of them counts, whichever was done last: the order in which they finish varies.
    over = any(last.over_budget for last in lasts)
    state: dict[str, Json] = {OVER_BUDGET: True} if over else {}
    ids = tuple(last.step_id for last in lasts)
    return TaskStep(step_id=step_id, prev_steps=ids, is_join=True, step_state=state)


def recorded_queue(state: Carried) -> Queue:
    """Return the queue that the newest completed step of the branch left; empty without one."""
    return left_before(state.since, pending(state.opens, state.queue)) if state.steps else ()


def recorded_waiting(state: Carried) -> Waiting:
    """Return what waited when the newest completed step of the branch was found."""
    return state.waits_since.backward(waiting(state)) if state.steps else Waiting()


def with_queue(state: Carried, queue: Queue) -> Carried:
    """Return a state with another queue."""
    recorded = recorded_queue(state)
    state = state.model_copy(update={"queue": queue})
    return state.model_copy(
        update={"since": change_if_any(recorded, pending(state.opens, state.queue))}
    )
