"""The queue of a task: which steps are ready, where new ones go, and what the ledger records. Pure.

`Upcoming` is the part of the ledger that has it; the functions are what it and an undo count by.

Recorded is what changed. A record holds two changes: what happened to the queue between the step
before it and the step (`Before.found`), and what the step itself changed (`Taken`, usually only its
place, as it takes itself and adds its `next`). An undo follows them backwards from the present
queue, one step after the other; a fork follows them forwards from the first step.

Where steps run side by side, those in progress count as queued first.

Notes, follow-ups and outputs to be joined are recorded by one change: from what the step before it
found to what a step finds (`Before.waiting`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from operator import attrgetter

from holdfast.task.data.commands import RunRequest
from holdfast.task.data.records import OVER_BUDGET, InputRef, OpenState, OpenStep, StepRecord
from holdfast.task.data.state import Carried
from holdfast.task.data.undo import (
    FIRST_TAKEN,
    NO_FOLLOWUP,
    NOTHING_WAITS,
    Before,
    FollowUp,
    LastOutput,
    QueueChange,
    Taken,
    Undoable,
    Waiting,
    WaitingChange,
    same,
)
from holdfast.task.ledger.ledger_state import LedgerState
from holdfast.task.ledger.recording import joined, output_digest, turns_of, usage_of
from holdfast.values.base import Json
from holdfast.values.messages import ImagePart, Message, Usage, user
from holdfast.values.steps import TaskStep, circle


def unmet(step: TaskStep, pending: Collection[str]) -> tuple[str, ...]:
    """List the steps that a step still waits for.

    Args:
        step: The step.
        pending: Ids of all steps that are queued or open.
    """
    return tuple(before for before in step.prev_steps if before in pending)


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


Queue = tuple[TaskStep, ...]


STEP_ID: Callable[[TaskStep], str] = attrgetter("step_id")


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
    return Taken(change=QueueChange.between(found, left, STEP_ID))


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
        found = record.before.found
        queue = queue if found is None else found.forward(queue)
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
    if not state.steps:
        return ()
    queue = pending(state.opens, state.queue)
    return queue if state.since is None else state.since.backward(queue)


def recorded_waiting(state: Carried) -> Waiting:
    """Return what waited when the newest completed step of the branch was found."""
    return state.waits_since.backward(waiting(state)) if state.steps else Waiting()


def with_queue(state: Carried, queue: Queue) -> Carried:
    """Return a state with another queue."""
    recorded = recorded_queue(state)
    state = state.model_copy(update={"queue": queue})
    since = QueueChange.if_any(recorded, pending(state.opens, state.queue), STEP_ID)
    return state.model_copy(update={"since": since})


DONE_KEPT = 1000
"""Most completed steps, of those with a name of their own, that later steps can be linked to."""


class Upcoming:
    """Queues steps, and what people say meanwhile.

    Attributes:
        recorded: The queue as the newest completed step left it: the changes that the next record
            and an undo need are counted from it. Empty before the first step.
        found: What waited next to the queue when that step was found; for the same purpose.
    """

    def __init__(self, ledger: LedgerState) -> None:
        """Go on with the queue of this task."""
        self._ledger = ledger
        self._s = s = ledger.s
        self._ready: tuple[object, object, tuple[TaskStep, ...]] = (None, None, ())
        self._noted = (s.notes, _length(s.notes))
        # After a rollover the changes since the last record are counted from what was carried.
        self.recorded = recorded_queue(s)
        self.found = recorded_waiting(s)
        s.since, s.waits_since = None, WaitingChange()

    def carry(self) -> dict[str, object]:
        """Return the changes since the last record, with which the task continues as new."""
        s = self._s
        return {
            "since": QueueChange.if_any(self.recorded, pending(s.opens, s.queue), STEP_ID),
            "waits_since": WaitingChange.between(self.found, waiting(s)),
        }

    def upcoming(self) -> tuple[TaskStep, ...]:
        """The steps in progress, then the queued ones."""
        steps = (*(current.open.step for current in self._s.opens), *self._s.queue)
        return tuple(step.model_copy(update={"task_id": self._ledger.task_id}) for step in steps)

    def ready(self) -> tuple[TaskStep, ...]:
        """List the queued steps that wait for no other."""
        opens, queue = self._s.opens, self._s.queue
        if self._ready[0] is not opens or self._ready[1] is not queue:
            is_only = len(queue) == 1 and queue[0].is_ready and not (opens or queue[0].prev_steps)
            ready = queue if is_only or not queue else _ready(opens, queue)
            self._ready = (opens, queue, ready)
        return self._ready[2]

    def take(self, asked: RunRequest, wanted: str) -> tuple[OpenStep, Before]:
        """Take a step off the queue, with all that waits for the next one.

        Args:
            asked: The request.
            wanted: Id of the step; the first that is ready for an empty one, or one that is not.

        Returns:
            What the step reads, and what an undo of it restores.
        """
        s, ready = self._s, self.ready()
        step = ready[0]
        if wanted not in ("", step.step_id):
            step = next((each for each in ready if each.step_id == wanted), step)
        # A follow-up belongs to one step. Another step that is run first leaves it to wait.
        further = s.further if s.further.step == step.step_id else NO_FOLLOWUP
        # What an undo goes back to; steps that run side by side are undone together.
        before = Before() if s.opens else self.before(further.step)
        place = s.queue.index(step)
        s.queue = (*s.queue[:place], *s.queue[place + 1 :])
        said: tuple[Message, ...] = ()
        stored = further.stored if step.input is None else None  # else the input was edited
        if step.step_id == "s1" and step.input == "" and s.steps == 0:
            stored = self._ledger.given.stored  # the task's own input, kept there when it is large
        if asked.images or asked.brings_input:
            step = step.model_copy(update={"images": asked.images_after(step)})
        if asked.input is not None:
            if step.enters and step.input and further is NO_FOLLOWUP:  # what somebody has said
                said = (user(step.input),)
            step = step.model_copy(update={"input": asked.input})
        notes = joined((*s.notes[: step.behind], *said, *s.notes[step.behind :]))
        s.notes, s.undo_notes, s.further = (), (), NO_FOLLOWUP
        if asked.brings_input:
            step = step.model_copy(update={"behind": len(notes)})
        opened = OpenStep(
            step=step,
            state=s.extra_state,
            tool_choice=asked.tool_choice,
            stored=asked.stored if asked.brings_input else stored,
            notes=notes,
            inputs={id: s.done[id] for id in step.prev_steps if id in s.done}
            if step.prev_steps
            else {},
        )
        return opened, before

    def before(self, further: str = "") -> Before:
        """Return the state as if no step were open, for an undo to restore.

        Args:
            further: Id of the step to be begun if it is a follow-up that its request has queued.
        """
        s = self._s
        spent, turns = Usage(), 0
        for current in s.opens:
            spent += usage_of(current.journal, current.outcomes.values())
            turns += turns_of(current.journal)
        return Before(
            found=QueueChange.if_any(self.recorded, pending(s.opens, s.queue), STEP_ID),
            waiting=WaitingChange.between(self.found, waiting(s)),
            serial=s.serial,
            turns=s.costs.turns - turns,
            usage=s.costs.usage - spent if s.opens else s.costs.usage,
            answered=s.answered,
            concluded=s.concluded,
            transcript=s.transcript,
            beside=max(len(s.opens) - 1, 0),
            last_step=s.last_step,
            answer=self._ledger.answer if s.concluded else None,
            further=further,
        )

    def number(self, steps: Sequence[TaskStep]) -> tuple[TaskStep, ...]:
        """Give ids to the steps that came without one."""
        serial = self._s.serial
        numbered: list[TaskStep] = []
        for step in steps:
            serial += 1
            numbered.append(
                step.model_copy(update={"step_id": step.step_id or f"s{serial}", "task_id": ""})
            )
        self._s.serial = serial
        return tuple(numbered)

    def keep_output(self, record: StepRecord) -> None:
        """Keep a step's output for the steps that wait for it; join last outputs.

        Steps with an id that a worker gave are kept as well: later steps may name them in
        `prev_steps`.
        """
        step_id = record.step.step_id
        waited: set[str] = set()
        for step in self._s.queue:
            waited.update(step.prev_steps)
        if self._s.lasts:
            waited |= {last.step_id for last in self._s.lasts}
        if step_id in waited or not serial_of(step_id):
            done = {**self._s.done, step_id: InputRef(record.n, output_digest(record))}
            extra = [id for id in done if id not in waited]
            for id in extra[: max(len(extra) - DONE_KEPT, 0)]:
                del done[id]
            self._s.done = done
        if self._s.lasts and not self._s.opens:
            self.join_lasts()

    def join_lasts(self) -> None:
        """Queue a step that makes one answer of several last outputs."""
        [join] = self.number([join_of(self._s.lasts)])
        self._s.queue = (join, *self._s.queue)
        self._s.lasts = ()

    @property
    def noted(self) -> int:
        """Length of the texts that wait for the next model call."""
        if self._noted[0] is not self._s.notes:
            self._noted = (self._s.notes, _length(self._s.notes))
        return self._noted[1]

    def add_note(self, note: Message) -> None:
        """Add a message to the next model call."""
        length = self.noted + len(note.text)
        self._s.notes = (*self._s.notes, note)
        self._noted = (self._s.notes, length)

    @property
    def unread(self) -> list[str]:
        """What people have said to the model that no call of it has read."""
        said = (note.text for note in self._s.notes if note.role == "user")
        return [*said, *self._s.followups]

    def follow_up(self, *, is_over: bool = False) -> None:
        """Queue what people have said that the answer does not know yet, or what waited for it.

        Args:
            is_over: Whether the budget is used up. The answer then stays without what was said: a
                message must not turn it into a failure.
        """
        # In one activation with the step's end: words that came during its model call begin the
        # next step, and no client sees an answer in between that lacks them.
        said = [note.text for note in self._s.notes if note.role == "user"]
        if said and not is_over:
            self._s.notes = tuple(note for note in self._s.notes if note.role != "user")
            self._enter("\n\n".join(said))
        elif self._s.followups:
            first, *rest = self._s.followups
            self._s.followups = tuple(rest)
            self._enter(first)

    def ask_further(self, asked: RunRequest) -> None:
        """Queue the follow-up that a request to run a step brings."""
        step_id = self._enter(asked.input or None, asked.images)
        self._s.further = FollowUp(step=step_id, stored=asked.stored)

    def _enter(self, text: str | None, images: tuple[ImagePart, ...] = ()) -> str:
        """Queue a new input of the user; the agent that gave the answer goes on with it.

        Returns:
            The id of the step.
        """
        serial = self._s.serial + 1
        step = TaskStep(
            step_id=f"s{serial}", input=text, images=images, enters=True, behind=len(self._s.notes)
        )
        if self._s.last_step is not None:
            step = step.after(self._s.last_step)
        # The caller that asks further has seen the answer.
        self._s.queue = (*self._s.queue, step)
        self._s.serial = serial
        self._s.answered = False
        self._s.delivery.given = ()
        return step.step_id


def _ready(opens: Sequence[OpenState], queue: Queue) -> Queue:
    # A join runs alone: it makes one answer of what all the others have left.
    if opens and any(current.open.step.is_join for current in opens):
        return ()
    there = {step.step_id for step in pending(opens, queue)}
    ready = [s for s in queue if s.is_ready and not (s.prev_steps and unmet(s, there))]
    joins = [step for step in ready if step.is_join] if len(ready) > 1 else []
    return tuple(joins or ready)


def _length(messages: Iterable[Message]) -> int:
    return sum(len(message.text) for message in messages)
