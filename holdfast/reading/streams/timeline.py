"""When a step's answers and items are told: from its record, open or completed, always the same.

An answer is told where the model was asked: behind the mark that stands before it. The items of a
step are told once its result is known, in the order of the transcript; calls made in its middle,
when they are made. Outputs of tools are told in call order, so one that is done early waits for
those before it.

Steps that ran beside others tell their answers at their end: their marks are interleaved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from holdfast.models.base import ModelAnswer
from holdfast.task.data.records import (
    Entry,
    EventRecord,
    JournalEntry,
    Mark,
    OpenState,
    Outcome,
    StepRecord,
)
from holdfast.task.data.stream_offset import LAST_ATTEMPT, Offset
from holdfast.task.ledger.references import SAID_IN_ADDS, resolve_adds, told
from holdfast.task.undo import UNDONE, active_steps
from holdfast.values.messages import Message, ToolCall

ITEMS = 256
"""Places for the items of one message."""


class Began(NamedTuple):
    """A step begins."""

    at: Offset
    agent: str


class Answered(NamedTuple):
    """An answer is known.

    Attributes:
        at: Where its events begin.
        answer: The answer.
        n: Number under which the step was opened.
        k: How many answers the step had before.
        attempts: Attempts to get answers since the mark, those for this one included.
        own: Attempts to get this one.
        started: When the step began, seconds since the epoch.
    """

    at: Offset
    answer: ModelAnswer
    n: int
    k: int
    attempts: int
    own: int
    started: float


class Said(NamedTuple):
    """Something joins the transcript: an answer, an output."""

    at: Offset
    message: Message
    agent: str


class Undone(NamedTuple):
    """Steps were undone.

    Attributes:
        at: Where it is told.
        event: What the ledger says of it.
        void: Pairs of offsets: what is told from the first on and before the second does not count.
        agent: The agent that the task is back at.
    """

    at: Offset
    event: EventRecord
    void: tuple[tuple[int, int], ...]
    agent: str


Moment = Began | Answered | Said | Undone


class Asking(NamedTuple):
    """Where an open step would tell the answer that it waits for."""

    n: int
    k: int
    mark: int
    attempts: int
    started: float


def moments(of: StepRecord | OpenState, agent: str, *, over: bool = False) -> list[Moment]:
    """List what is to be told of a step as far as it is recorded, in order.

    Args:
        of: The step.
        agent: The agent that the task began with.
        over: Whether the task has ended: the answer that an open step has is its last word then.
    """
    return list(_Step(of, agent).moments(over=over))


def undone(entries: Iterable[Entry], event: EventRecord, agent: str) -> Undone:
    """Say what an undo has made void: all that is not of the steps that it left standing.

    So it is the same for whoever has seen a step in progress, which has left no record, and for
    whoever has not.

    Args:
        entries: The whole ledger.
        event: The undo.
        agent: The agent that the task began with.
    """
    before: list[Entry] = []
    for entry in entries:
        before.append(entry)
        if entry.event == event:
            break
    number = number_of(event)
    standing = active_steps(before)
    kept = {mark.number for step in standing for mark in step.marks}
    void: list[tuple[int, int]] = []
    for mark in range(1, number):
        first, end = int(Offset(mark)), int(Offset(mark + 1))
        if mark in kept:
            continue
        if void and void[-1][1] == first:
            first, _ = void.pop()
        void.append((first, end))
    last = standing[-1].step.agent if standing else ""
    return Undone(Offset(number), event, tuple(void), last or agent)


def number_of(event: EventRecord) -> int:
    """Return the place of an undo in the life of its task."""
    return int(event.body.get("number", 0))


def undos(entries: Iterable[Entry]) -> list[EventRecord]:
    """List the undos among entries of a ledger."""
    events = (entry.event for entry in entries)
    return [event for event in events if event is not None and event.kind == UNDONE]


def asking(of: OpenState) -> Asking | None:
    """Say where the next answer of an open step is told; None when it waits for none to be told."""
    if not of.alone or of.result is not None or of.calls or not of.marks:
        return None
    step = _Step(of, "")
    list(step.moments())
    return Asking(of.n, step.k, step.mark, step.attempts, of.started)


class _Step:
    """Walks through the record of one step."""

    def __init__(self, of: StepRecord | OpenState, agent: str) -> None:
        self.of = of
        step = of.step if isinstance(of, StepRecord) else of.open.step
        self.agent = step.agent or agent
        self.k = 0
        self.attempts = 0
        self.mark = of.marks[0].number if of.marks else 0
        self._calls: set[ToolCall] = set()
        self._outputs: list[Message] = []

    def moments(self, *, over: bool = False) -> Iterator[Moment]:
        of = self.of
        if not of.marks:
            return
        yield Began(Offset(self.mark), self.agent)
        ended = next((m.number for m in of.marks if m.kind == "end"), None)
        if not of.alone and ended is not None:
            self.mark = ended
        answers = iter(_answers(of))
        newest: ModelAnswer | None = None
        batch = 0
        for entry in of.journal:
            if entry.answer is not None:
                newest = next(answers)
                if of.alone or ended is not None:
                    yield self._answered(newest, entry.attempts)
            elif entry.calls:
                yield from self._batch(batch, entry, newest)
                batch += 1
        if isinstance(of, OpenState) and of.result is None:
            yield from self._batch(batch, of, newest)
            if over and newest is not None and not newest.message.calls:
                yield self._said(Offset(self.mark, LAST_ATTEMPT), newest.message)
        else:
            yield from self._end(batch)

    def _answered(self, answer: ModelAnswer, attempts: int) -> Answered:
        self.attempts += attempts
        at = Offset(self.mark, self.attempts)
        n = self.of.key if isinstance(self.of, StepRecord) else self.of.n
        told = Answered(at, answer, n, self.k, self.attempts, attempts, self.of.started)
        self.k += 1
        return told

    def _batch(
        self, batch: int, of: JournalEntry | OpenState, asked: ModelAnswer | None
    ) -> Iterator[Said]:
        """Tell calls made in the middle of the step, and their outputs."""
        marks = self._marks(batch)
        first = next((m.number for m in marks if m.kind == "call"), 0)
        if not of.calls or not first:
            return
        wanted = set(asked.message.calls) if asked is not None else set[ToolCall]()
        at = Offset(first)  # before the answers that follow the mark
        if asked is not None and wanted >= set(of.calls):
            yield self._said(at, asked.message)
        else:
            yield self._said(at, Message(role="assistant", calls=of.calls))
        outcomes = of.outcomes
        known = outcomes if isinstance(outcomes, dict) else dict(enumerate(outcomes))
        yield from self._done(batch, of.calls, known)
        if self.of.alone:
            self.mark, self.attempts = max(m.number for m in marks), 0

    def _end(self, batch: int) -> Iterator[Said]:
        """Tell what joins the transcript, then the outputs of the calls that end the step."""
        of = self.of
        if isinstance(of, StepRecord):
            last = {outcome.at for outcome in of.outcomes}
            adds = [m for at, m in enumerate(of.adds) if at not in last]
            quiet = last == {None}
        else:
            result = of.result
            adds = list(resolve_adds(result, of)) if result is not None else []
            quiet = result is not None and result.quiet
        at = Offset(self.mark, LAST_ATTEMPT)
        if of.alone or isinstance(of, StepRecord):
            yield from self._adds(at, adds)
        if quiet:
            return
        extra = tuple(call for call in of.calls if call not in self._calls)
        marks = self._marks(batch)
        if extra and marks:
            yield self._said(Offset(marks[0].number), Message(role="assistant", calls=extra))
        known = dict(enumerate(of.outcomes)) if isinstance(of, StepRecord) else of.outcomes
        yield from self._done(batch, of.calls, known)

    def _adds(self, at: Offset, adds: Sequence[Message]) -> Iterator[Said]:
        for message in adds:
            match message.role:
                case "assistant":
                    is_told = any(call in self._calls for call in message.calls)
                case "tool":
                    is_told = message in self._outputs
                case _:
                    is_told = True
            if not is_told:
                yield self._said(at, message)
            at = at._replace(place=at.place + ITEMS)

    def _done(
        self, batch: int, calls: Sequence[ToolCall], outcomes: Mapping[int, Outcome]
    ) -> Iterator[Said]:
        """Tell outputs in call order, each when those before it are done as well."""
        done = {m.i: m.number for m in self._marks(batch) if m.kind == "done"}
        newest = 0
        for i, call in enumerate(calls):
            if i not in done or i not in outcomes:
                return
            newest = max(newest, done[i])
            at = Offset(newest, 0, i * ITEMS)
            if not outcomes[i].is_stopped:
                yield self._said(at, self._output(call, outcomes[i]))

    def _output(self, call: ToolCall, outcome: Outcome) -> Message:
        """Find what a call gave: a completed step may hold it among its messages only."""
        return told(self.of.adds if isinstance(self.of, StepRecord) else (), call, outcome)

    def _said(self, at: Offset, message: Message) -> Said:
        self._calls |= set(message.calls)
        if message.role == "tool":
            self._outputs.append(message)
        return Said(at, message, self.agent)

    def _marks(self, batch: int) -> list[Mark]:
        return [m for m in self.of.marks if m.kind in ("call", "done") and m.batch == batch]


def _answers(of: StepRecord | OpenState) -> Iterator[ModelAnswer]:
    """Yield the answers of a step whole: a record may hold their messages elsewhere."""
    adds = of.adds if isinstance(of, StepRecord) else ()
    said = iter([message for message in adds if message.role == "assistant"])
    for entry in of.journal:
        if entry.answer is None:
            continue
        if entry.answer.message == SAID_IN_ADDS:
            message = next(said, Message(role="assistant"))
            yield entry.answer.model_copy(update={"message": message})
        else:
            yield entry.answer
