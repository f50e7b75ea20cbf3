"""Timeline of a stream: where a step's answers and items are in it, open or completed.

It is computed from the record, so that live readers and later ones get the same events in the same
places. An answer is where the model was asked: behind the mark before the model call. The items
of a step follow once its result is known, in the order of the transcript; calls made in its middle
are where they are made. Outputs of tools are in call order: an early one waits for those before.

Steps that ran next to others have their answers at their end: their marks are interleaved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from holdfast.models.base import ModelAnswer
from holdfast.task.data.records import LAST_ATTEMPT, Entry, EventRecord, Offset
from holdfast.task.happenings import (
    CallAsked,
    ModelAnswered,
    StepBegan,
    StepsUndone,
    step_happenings,
)
from holdfast.task.step_body import StepBody, StepCall
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
        at: Where it is in the stream.
        event: Its event in the ledger.
        void: Pairs of offsets: events from the first on and before the second do not count.
        agent: The agent that the task is back at.
    """

    at: Offset
    event: EventRecord
    void: tuple[tuple[int, int], ...]
    agent: str


Moment = Began | Answered | Said | Undone


class Asking(NamedTuple):
    """Where the answer that an open step waits for will be in the stream."""

    n: int
    k: int
    mark: int
    attempts: int
    started: float


def moments(of: StepBody, agent: str) -> list[Moment]:
    """List the moments of a step as far as it is recorded, in order.

    When the task has ended, the answer that an open step has counts as its final one.

    Args:
        of: The step.
        agent: The agent that the task began with.
    """
    return list(_Step(of, agent).moments())


def undone(entries: Iterable[Entry], undo: StepsUndone, agent: str) -> Undone:
    """Return what an undo has made void: everything but the steps that it left standing.

    Computed from what remains, not from what was undone: a reader that saw an undone step while it
    was in progress and a reader that did not are left with the same events.

    Args:
        entries: The whole ledger.
        undo: The undo.
        agent: The agent that the task began with.
    """
    before: list[Entry] = []
    for entry in entries:
        before.append(entry)
        if entry.event == undo.event:
            break
    number, event = undo.number, undo.event
    standing = active_steps(before)
    kept = {mark.number for step in standing for mark in step.marks}
    # Nothing of the stream stands at an event: it belongs to what stands before it.
    events = (each.event for each in before if each.event is not None)
    noted = {each.number for each in events if each.kind != UNDONE}
    void: list[tuple[int, int]] = []
    for mark in range(1, number):
        first, end = int(Offset(mark)), int(Offset(mark + 1))
        if mark in kept or (mark in noted and not (void and void[-1][1] == first)):
            continue
        if void and void[-1][1] == first:
            first, _ = void.pop()
        void.append((first, end))
    last = standing[-1].step.agent if standing else ""
    return Undone(Offset(number), event, tuple(void), last or agent)


def asking(of: StepBody) -> Asking | None:
    """Return the place of an open step's next answer; None when no model is asked."""
    if not of.alone or of.has_result or of.calls or not of.start:
        return None
    step = _Step(of, "")
    list(step.moments())
    return Asking(of.key, step.k, step.mark, step.attempts, of.started)


class _Step:
    """Walks through the record of one step."""

    def __init__(self, of: StepBody, agent: str) -> None:
        self.of = of
        self.agent = of.step.agent or agent
        self.k = 0
        self.attempts = 0
        self.mark = of.start
        self._batches = of.batches
        self._calls: set[ToolCall] = set()
        self._outputs: list[Message] = []

    def moments(self) -> Iterator[Moment]:
        of = self.of
        if not of.start:
            return
        newest: ModelAnswer | None = None
        for happening in step_happenings(of):
            match happening:
                case StepBegan(number=number):
                    yield Began(Offset(number), self.agent)
                    if not of.alone and of.end:
                        self.mark = of.end
                case ModelAnswered(answer=newest, part=part) if of.alone or of.end:
                    yield self._answered(newest, part.entry.attempts)
                case ModelAnswered(answer=newest):
                    continue
                case CallAsked(call=call) if call.i == 0 and not self._ends_step(call):
                    yield from self._batch(self._batches[call.batch], newest)
                case _:
                    continue
        if of.has_result:
            yield from self._end()
        elif of.is_over and newest is not None and not newest.message.calls:
            yield self._said(Offset(self.mark, LAST_ATTEMPT), newest.message)

    def _ends_step(self, call: StepCall) -> bool:
        """Whether a call is one of the calls that end the step."""
        return self.of.has_result and call.batch == len(self._batches) - 1

    def _answered(self, answer: ModelAnswer, attempts: int) -> Answered:
        self.attempts += attempts
        at = Offset(self.mark, self.attempts)
        told = Answered(at, answer, self.of.key, self.k, self.attempts, attempts, self.of.started)
        self.k += 1
        return told

    def _batch(self, calls: Sequence[StepCall], asked: ModelAnswer | None) -> Iterator[Said]:
        """Yield calls made in the middle of the step, and their outputs."""
        if not calls or not calls[0].asked:
            return
        made = tuple(each.call for each in calls)
        wanted = set(asked.message.calls) if asked is not None else set[ToolCall]()
        at = Offset(calls[0].asked)  # before the answers that follow the mark
        if asked is not None and wanted >= set(made):
            yield self._said(at, asked.message)
        else:
            yield self._said(at, Message(role="assistant", calls=made))
        yield from self._done(calls)
        if self.of.alone:
            self.mark, self.attempts = max(max(each.asked, each.done) for each in calls), 0

    def _end(self) -> Iterator[Said]:
        """Yield the messages that the step adds, then the outputs of the calls that end it."""
        of = self.of
        last = {each.outcome.at for each in of.calls if each.outcome is not None}
        at = Offset(self.mark, LAST_ATTEMPT)
        if of.alone or of.is_completed:
            yield from self._adds(at, [m for k, m in enumerate(of.adds) if k not in last])
        if of.quiet:
            return
        extra = tuple(each.call for each in of.calls if each.call not in self._calls)
        if extra and of.calls[0].asked:
            at = Offset(of.calls[0].asked)
            yield self._said(at, Message(role="assistant", calls=extra))
        yield from self._done(of.calls)

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

    def _done(self, calls: Sequence[StepCall]) -> Iterator[Said]:
        """Yield outputs in call order, each when those before it are done as well."""
        newest = 0
        for each in calls:
            if not each.done or each.outcome is None or each.message is None:
                return
            newest = max(newest, each.done)
            if not each.outcome.is_stopped:
                yield self._said(Offset(newest, 0, each.i * ITEMS), each.message)

    def _said(self, at: Offset, message: Message) -> Said:
        self._calls |= set(message.calls)
        if message.role == "tool":
            self._outputs.append(message)
        return Said(at, message, self.agent)
