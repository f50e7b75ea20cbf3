"""What happened in a task, as one typed sequence: the fold of its ledger that all readers share.

Events for programs, streams, hooks, spans, the audit and the command line are short maps of it.

The sequence has the order of the ledger: a completed step is where it ended, an open one at
the end, the calls of a batch one behind the other. What is shown to followers has a `number`,
which grows with the life of the task also where steps or calls ran side by side.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from holdfast.models.base import ModelAnswer
from holdfast.models.openai.hosted_items import HostedCall
from holdfast.task.data.calls import Outcome
from holdfast.task.data.records import Entry, EventRecord, Handed, JournalEntry, OpenState
from holdfast.task.step_body import JournalPart, StepBody, StepCall, body_of
from holdfast.values.messages import Message


@dataclass(frozen=True, kw_only=True)
class InStep:
    """Something that happened in a step.

    Attributes:
        body: The step, with all that is known of it by now.
        at: When, seconds since the epoch. Of calls, by the clock of their worker; what has no time
            of its own came right after what is recorded before it.
        number: Its place in the life of the task, from 1; 0 when it has no place of its own.
    """

    body: StepBody
    at: float
    number: int = 0

    @property
    def time(self) -> float:
        """The time, moved into the time of the step: clocks of workers differ."""
        body = self.body
        end = math.inf if body.status == "open" else body.ended
        return min(max(self.at, body.started), end)


@dataclass(frozen=True, kw_only=True)
class StepBegan(InStep):
    """A step began."""


@dataclass(frozen=True, kw_only=True)
class ModelAnswered(InStep):
    """A model answered; it has a number when it said something before the task's answer.

    Attributes:
        answer: The answer, whole.
        k: How many answers the step had before.
        part: The part of the journal that has it.
    """

    answer: ModelAnswer
    k: int
    part: JournalPart


@dataclass(frozen=True, kw_only=True)
class HostedRan(InStep):
    """A tool of the provider ran inside a model call.

    Attributes:
        call: What it did.
        place: Its position among those of the step.
    """

    call: HostedCall
    place: int


@dataclass(frozen=True, kw_only=True)
class ModelCutOff(InStep):
    """A model call was cut off before its answer; `at` is when it was begun."""


@dataclass(frozen=True, kw_only=True)
class MemoMade(InStep):
    """An AgentWorker had something recorded.

    Attributes:
        memo: What it made.
        entry: The entry of the journal that has it.
    """

    memo: Handed
    entry: JournalEntry


@dataclass(frozen=True, kw_only=True)
class OfCall(InStep):
    """Something that happened to a tool call.

    Attributes:
        call: The call, with all that is known of it by now.
    """

    call: StepCall


@dataclass(frozen=True, kw_only=True)
class CallAsked(OfCall):
    """A tool was called for; it may have to wait for a person before it runs."""


@dataclass(frozen=True, kw_only=True)
class CallBegan(OfCall):
    """A call was begun: from then on it may have taken effect.

    A call with an outcome has this only if it was run.
    """


@dataclass(frozen=True, kw_only=True)
class CallFailed(OfCall):
    """A call failed in a way that is certain to hide no effect; it may be begun again."""


@dataclass(frozen=True, kw_only=True)
class CallDone(OfCall):
    """The outcome of a call is known.

    Attributes:
        outcome: Its outcome, with the whole content.
    """

    outcome: Outcome

    @property
    def message(self) -> Message:
        """The message by which the model gets its result."""
        return self.call.said or self.outcome.message(self.call.call)


@dataclass(frozen=True, kw_only=True)
class StepEnded(InStep):
    """A step ended."""


@dataclass(frozen=True, kw_only=True)
class StepLeft(InStep):
    """A step was left before its end: undone, or to be run again from nothing."""


@dataclass(frozen=True, kw_only=True)
class Noted:
    """Something other than what a step does: a command, a decision, a guardrail, a limit.

    Attributes:
        event: Its event in the ledger.
        at: When, seconds since the epoch.
        branch: Branch of the ledger on which it happened.
        number: Its place in the life of the task; 0 when it has none.
    """

    event: EventRecord
    at: float
    branch: int = 0
    number: int = 0


@dataclass(frozen=True, kw_only=True)
class CallUndone(Noted):
    """The effect of a call was taken back.

    Attributes:
        place: The call: its place in the task, or the id of its child task.
    """

    place: str


@dataclass(frozen=True, kw_only=True)
class StepsUndone(Noted):
    """Steps were undone.

    Attributes:
        first: Ordinal of the first step that the undo took.
        steps: Ids of the steps, oldest first, also of steps in progress.
    """

    first: int
    steps: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TaskClosed(Noted):
    """The task began to close; nothing follows."""


Happening = InStep | Noted
"""One thing that happened in a task."""


class Fold:
    """Reads a ledger bit by bit: followers give it only what is new.

    Attributes:
        branch: The present branch of the ledger, as far as it was read.
        is_closed: Whether the task was closed.
    """

    def __init__(self, *, is_closed: bool = False) -> None:
        """Have read nothing yet.

        Args:
            is_closed: Whether the task is known to be closed.
        """
        self.branch = 0
        self.is_closed = is_closed

    def entries(self, entries: Iterable[Entry]) -> Iterator[Happening]:
        """Yield what happened by entries of the ledger, which follow those read before."""
        for entry in entries:
            if entry.step is not None:
                self.branch = entry.step.branch
                yield from step_happenings(body_of(entry.step))
            elif entry.left is not None:
                yield from step_happenings(body_of(entry.left))
            elif entry.event is not None:
                noted = noted_of(entry.event, self.branch)
                yield noted
                self.is_closed = self.is_closed or isinstance(noted, TaskClosed)
                self.branch += isinstance(noted, StepsUndone)

    def opens(self, opens: Iterable[OpenState]) -> Iterator[InStep]:
        """Yield what has happened in the steps that are open, or were when the task was closed.

        All of it, each time: what is known of an open step grows in any place.
        """
        for current in opens:
            body = body_of(current, branch=self.branch, is_closed=self.is_closed)
            yield from step_happenings(body)


def happenings(entries: Iterable[Entry], opens: Iterable[OpenState] = ()) -> Iterator[Happening]:
    """Yield what happened in a task, in the order of its ledger.

    Args:
        entries: The ledger, from its beginning.
        opens: The steps in progress, now or when the task ended.
    """
    fold = Fold()
    yield from fold.entries(entries)
    yield from fold.opens(opens)


def in_order(found: Iterable[Happening]) -> list[Happening]:
    """Return what has a number in the order in which it happened, without steps that were left.

    What such a step did is void: later followers of the task do not get it.
    """
    kept = (each for each in found if each.number and not _is_left(each))
    return sorted(kept, key=lambda each: each.number)


def _is_left(happening: Happening) -> bool:
    return isinstance(happening, InStep) and happening.body.is_left


def step_happenings(body: StepBody) -> Iterator[InStep]:
    """Yield what happened in a step, as far as it is recorded."""
    yield StepBegan(body=body, at=body.started, number=body.start)
    after, k = body.started, 0
    for part in body.journal:
        newest = after
        for happening in _of_part(body, part, k, after):
            newest = max(newest, happening.time)
            yield happening
        after, k = newest, k + (part.answer is not None)
    for began in body.unheard:
        yield ModelCutOff(body=body, at=began)
    for call in body.calls:
        yield from call_happenings(body, call, after)
    if body.is_completed:
        yield StepEnded(body=body, at=body.ended, number=body.end)
    elif body.is_left:
        yield StepLeft(body=body, at=body.ended)


def _of_part(body: StepBody, part: JournalPart, k: int, after: float) -> Iterator[InStep]:
    """Yield what happened by an entry of the journal."""
    if part.answer is not None:
        at = part.answer.at or after
        number = part.said
        yield ModelAnswered(body=body, at=at, number=number, answer=part.answer, k=k, part=part)
        for place, (own, ran) in enumerate(part.hosted):
            yield HostedRan(body=body, at=at, number=own, call=ran, place=place)
    if part.entry.memo is not None:
        yield MemoMade(body=body, at=after, memo=part.entry.memo, entry=part.entry)
    for call in part.calls:
        yield from call_happenings(body, call, after)


def call_happenings(body: StepBody, call: StepCall, after: float) -> Iterator[OfCall]:
    """Yield what happened to a call of a step.

    Args:
        body: The step.
        call: The call.
        after: When the calls of its batch were asked for; one that no worker ran was over when it
            was decided.
    """
    yield CallAsked(body=body, call=call, at=after, number=call.asked)
    outcome, called = call.outcome, call.called
    if outcome is not None:
        decided = outcome.decided[-1].at if outcome.decided else 0.0
        at = outcome.ended or max(decided, after)
        if outcome.attempts > 0:
            yield CallBegan(body=body, call=call, at=max(at - outcome.took, 0))
        yield CallDone(body=body, call=call, at=at, number=call.done, outcome=outcome)
    elif called is None:
        if call.begun is not None:  # its child task is about to start
            yield CallBegan(body=body, call=call, at=after)
    else:
        decided = called.decided[-1].at if called.decided else 0.0
        yield CallBegan(body=body, call=call, at=max(decided, called.at))
        if called.error:
            yield CallFailed(body=body, call=call, at=max(decided, called.ended or called.at))


def noted_of(event: EventRecord, branch: int = 0) -> Noted:
    """Return the happening of an event of the ledger.

    Args:
        event: The event.
        branch: Branch of the ledger on which it was noted.
    """
    body, number = event.body, event.number
    match event.kind:
        case "undone":
            return StepsUndone(
                event=event,
                at=event.at,
                branch=branch,
                number=number,
                first=int(body.get("n", 0)),
                steps=tuple(body.get("steps", ())),
            )
        case "effect_undone":
            place = str(body.get("key") or body.get("task", ""))
            return CallUndone(event=event, at=event.at, branch=branch, place=place)
        case "closed":
            return TaskClosed(event=event, at=event.at, branch=branch, number=number)
        case _:
            return Noted(event=event, at=event.at, branch=branch, number=number)
