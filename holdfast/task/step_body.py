"""One step as all readers see it: open, completed or left, in one shape.

The ledger keeps a completed step, an open one and one that was left as three different records. A
reader makes a body of each, and need not know which it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from holdfast.models.base import ModelAnswer
from holdfast.models.openai.hosted_items import HostedCall, hosted_calls
from holdfast.task.data.calls import Begun, Called, Decided, Outcome
from holdfast.task.data.failures import Failure
from holdfast.task.data.records import JournalEntry, LeftStep, Mark, OpenState, StepRecord
from holdfast.task.ledger.recording import (
    SAID_IN_ADDS,
    input_message,
    place_of,
    resolve_adds,
    usage_of,
    without_adds,
)
from holdfast.values.base import Json
from holdfast.values.messages import Blob, Message, ToolCall, Usage, shown
from holdfast.values.steps import TaskStep

StepStatus = Literal["open", "done", "last", "undone", "restarted"]
"""Whether a step is over, and how: "last" gave the task's answer, the other two were left."""


@dataclass(frozen=True, kw_only=True)
class StepCall:
    """A tool call of a step, with what is known of it.

    Attributes:
        call: The call as it was asked for.
        batch: Which of the step's batches of calls it is in, from 0.
        i: Its position there.
        outcome: Its outcome, with the whole content; None as long as that is not known.
        said: The message of the transcript with its result, if there is one already.
        called: How it was begun, as long as it has no outcome.
        begun: What guardrails and hooks did before its child task began.
        stop: Why the step will stop after it.
        asked: Its number in the life of the task; 0 for none.
        done: Number of its end there; 0 for none.
    """

    call: ToolCall
    batch: int
    i: int
    outcome: Outcome | None = None
    said: Message | None = None
    called: Called | None = None
    begun: Begun | None = None
    stop: Failure | None = None
    asked: int = 0
    done: int = 0

    @property
    def newest(self) -> Outcome | Called | None:
        """Its outcome, else how it was begun; None when it has not begun."""
        return self.outcome or self.called

    @property
    def child(self) -> str:
        """Id of its child task, for a call of an agent as a tool; else an empty text."""
        return self.newest.child if self.newest is not None else ""

    @property
    def edited(self) -> str:
        """The arguments with which it runs or ran, when a person changed them."""
        return self.newest.edited if self.newest is not None else ""

    @property
    def arguments(self) -> str:
        """The arguments with which it runs or ran, JSON text."""
        return self.edited or self.call.arguments

    @property
    def decided(self) -> tuple[Decided, ...]:
        """What was decided about it, oldest first."""
        return self.newest.decided if self.newest is not None else ()

    @property
    def result(self) -> str:
        """What it gave, or why it failed, in whole; empty as long as that is not known."""
        if self.outcome is not None:
            return shown(self.outcome.content)
        return self.called.error if self.called is not None else ""

    @property
    def is_begun(self) -> bool:
        """Whether it has run, or may have: it may have taken effect."""
        if self.outcome is None:
            return self.called is not None
        return self.outcome.attempts > 0 or self.outcome.status == "unknown"

    @property
    def message(self) -> Message | None:
        """The message by which the model gets its result, once there is one."""
        if self.outcome is None or self.said is not None:
            return self.said
        return self.outcome.message(self.call)


@dataclass(frozen=True, kw_only=True)
class JournalPart:
    """An entry of a step's journal, whole.

    Attributes:
        entry: The entry as it is recorded.
        answer: Its answer, whole, wherever the record has the message.
        at: Position of the answer's message in what the step adds to the transcript, if it is
            there word for word.
        calls: Its calls.
        said: Number of the answer in the life of the task, if it said something before the end of
            the task; else 0.
        hosted: What tools of the provider did inside the model call, each with its number.
    """

    entry: JournalEntry
    answer: ModelAnswer | None = None
    at: int | None = None
    calls: tuple[StepCall, ...] = ()
    said: int = 0
    hosted: tuple[tuple[int, HostedCall], ...] = ()


@dataclass(frozen=True, kw_only=True)
class StepBody:
    """A step, open, completed or left.

    Attributes:
        step: The step.
        n: Ordinal of a completed step; else the number under which it was opened.
        key: The number by which its calls are named.
        branch: Branch of the ledger on which it runs or ran.
        status: Whether it is over, and how.
        is_over: Whether nothing more will happen in it: it is over, or its task is closed.
        started: Time of the first attempt, seconds since the epoch.
        ended: Time of its end; 0 when it has none.
        journal: What was answered in it, oldest first.
        calls: The calls that end it, or that are open in its middle.
        input: Its input as a message, if it has one.
        adds: Messages that it adds to the transcript, as soon as that is known.
        has_result: Whether that is known.
        quiet: Whether the results of its calls stay out of the transcript.
        output: JSON data that the AgentWorker gave, of a completed step.
        stored: Where the archive keeps an output too large for history.
        next: Steps that it queued.
        usage: Cost of its model calls and of the child tasks of its calls.
        digest: Digest of the transcript after it.
        conflicts: Paths that parallel tools changed to different values.
        failure: Why it stopped.
        start: Number of its beginning in the life of the task; 0 for none.
        end: Number of its end there; 0 for none.
        alone: Whether no other step was open while it ran.
        unheard: When model calls of it were begun that were cut off before their answer.
    """

    step: TaskStep
    n: int
    key: int
    branch: int
    status: StepStatus
    is_over: bool
    started: float
    ended: float = 0.0
    journal: tuple[JournalPart, ...] = ()
    calls: tuple[StepCall, ...] = ()
    input: Message | None = None
    adds: tuple[Message, ...] = ()
    has_result: bool = False
    quiet: bool = False
    output: Json = None
    stored: Blob | None = None
    next: tuple[TaskStep, ...] = ()
    usage: Usage
    digest: str = ""
    conflicts: tuple[str, ...] = ()
    failure: Failure | None = None
    start: int = 0
    end: int = 0
    alone: bool = True
    unheard: tuple[float, ...] = ()

    @property
    def last(self) -> bool:
        """Whether it gave the task's answer."""
        return self.status == "last"

    @property
    def is_completed(self) -> bool:
        """Whether it has finished."""
        return self.status in ("done", "last")

    @property
    def is_left(self) -> bool:
        """Whether it was left before its end."""
        return self.status in ("undone", "restarted")

    @property
    def answers(self) -> list[ModelAnswer]:
        """The answers of models, whole, oldest first."""
        return [part.answer for part in self.journal if part.answer is not None]

    @property
    def batches(self) -> list[tuple[StepCall, ...]]:
        """Its calls as they were made together; the newest, maybe empty, come last."""
        return [*(part.calls for part in self.journal if part.calls), self.calls]

    @property
    def hosted(self) -> list[HostedCall]:
        """What tools of the provider did inside its model calls."""
        return [call for part in self.journal for _, call in part.hosted]

    def all_calls(self) -> Iterator[StepCall]:
        """Yield its calls, batch by batch, in call order."""
        for batch in self.batches:
            yield from batch


def body_of(
    of: StepRecord | OpenState | LeftStep, *, branch: int = 0, is_closed: bool = False
) -> StepBody:
    """Return the body of a step.

    Args:
        of: The step as the ledger has it.
        branch: Of an open step: the branch of the ledger on which it runs.
        is_closed: Of an open step: whether its task is closed.
    """
    match of:
        case StepRecord():
            return _completed(of)
        case OpenState():
            return _opened(of, branch, is_over=is_closed)
        case LeftStep():
            return _left(of)


def _completed(record: StepRecord) -> StepBody:
    calls = _Calls(record.marks, record.adds)
    places = answer_places(record.journal, record.adds)
    outcomes = dict(enumerate(record.outcomes))
    return StepBody(
        step=record.step,
        n=record.n,
        key=record.key,
        branch=record.branch,
        status="last" if record.last else "done",
        is_over=True,
        started=record.started,
        ended=record.ended,
        journal=calls.journal(record.journal, places),
        calls=calls.batch(record.calls, outcomes),
        input=record.step.message(),
        adds=record.adds,
        has_result=True,
        quiet={outcome.at for outcome in record.outcomes} == {None},
        output=record.output,
        stored=record.stored,
        next=record.next,
        usage=record.usage,
        digest=record.digest,
        conflicts=record.conflicts,
        start=_number(record.marks, "start"),
        end=_number(record.marks, "end"),
        alone=record.alone,
        unheard=record.unheard,
    )


def _opened(current: OpenState, branch: int, *, is_over: bool) -> StepBody:
    opened, result = current.open, current.result
    has_input = opened.stored is not None or opened.step.message() is not None
    adds = resolve_adds(result, current) if result is not None else ()
    calls = _Calls(current.marks, adds)
    journal, places = current.journal, dict[int, int]()
    if result is not None:
        journal = without_adds(result, current)
        named = ((at, add) for at, add in enumerate(result.adds) if isinstance(add, str))
        found = ((at, place_of(add)) for at, add in named if add.startswith("j"))
        places = {entry: at for at, (entry, call) in found if call is None}
    return StepBody(
        step=opened.step,
        n=current.n,
        key=current.n,
        branch=branch,
        status="open",
        is_over=is_over,
        started=current.started,
        journal=calls.journal(journal, places),
        calls=calls.open_batch(current),
        input=input_message(opened) if has_input else None,
        adds=adds,
        has_result=result is not None,
        quiet=result is not None and result.quiet,
        usage=usage_of(current.journal, current.outcomes.values()),
        failure=current.failure,
        start=_number(current.marks, "start"),
        alone=current.alone,
        unheard=current.unheard,
    )


def _left(left: LeftStep) -> StepBody:
    """Return the body of a step that was left: what it would have added is not known any more."""
    was = left.was.model_copy(update={"result": None})
    body = _opened(was, left.branch, is_over=True)
    return replace(body, status=left.why, ended=left.at)


def answer_places(journal: Sequence[JournalEntry], adds: Sequence[Message]) -> dict[int, int]:
    """Find the messages by which the transcript has answers of a completed step's journal.

    Args:
        journal: The journal; the answers that are in `adds` have no message.
        adds: What the step has added to the transcript.

    Returns:
        Position in the journal to position in `adds`.
    """
    answers = [(k, e.answer.message) for k, e in enumerate(journal) if e.answer is not None]
    said = [k for k, message in answers if message == SAID_IN_ADDS]
    found = [at for at, message in enumerate(adds) if message.role == "assistant"]
    if len(found) > len(said) > 0:  # the AgentWorker made messages of its own
        places: dict[int, int] = {}
        for k, message in answers:
            if message == SAID_IN_ADDS and found:
                places[k] = found.pop(0)
            elif found and _has(adds[found[0]], message):
                del found[0]
        return places
    return dict(zip(said, found, strict=False))


def _has(message: Message, answer: Message) -> bool:
    """Whether a message says what an answer does, or its beginning."""
    if message.calls not in ((), answer.calls) or not (message.content or message.calls):
        return False
    if isinstance(message.content, Blob) or isinstance(answer.content, Blob):
        return message.content == answer.content
    return answer.text.strip().startswith(message.text)


class _Calls:
    """Makes the journal and the calls of one step, batch by batch, with their numbers."""

    def __init__(self, marks: Sequence[Mark], adds: Sequence[Message]) -> None:
        """Begin with the first batch."""
        self._numbers = {(m.kind, m.batch, m.i): m.number for m in marks}
        self._adds = adds
        self._batch = self._answers = 0

    def journal(
        self, journal: Sequence[JournalEntry], places: Mapping[int, int]
    ) -> tuple[JournalPart, ...]:
        """Put texts that `adds` hold into the entries of a journal."""
        return tuple(self._part(entry, places.get(k)) for k, entry in enumerate(journal))

    def batch(
        self, calls: Sequence[ToolCall], outcomes: Mapping[int, Outcome]
    ) -> tuple[StepCall, ...]:
        """Make the calls of a batch with outcomes."""
        return tuple(self._call(i, call, outcomes.get(i)) for i, call in enumerate(calls))

    def open_batch(self, current: OpenState) -> tuple[StepCall, ...]:
        """Make the calls that are open, or were when the step was left."""
        return tuple(
            self._call(
                i,
                call,
                current.outcomes.get(i),
                called=current.called.get(i),
                begun=current.begun.get(i),
                stop=current.stops.get(i),
            )
            for i, call in enumerate(current.calls)
        )

    def _part(self, entry: JournalEntry, at: int | None) -> JournalPart:
        answer = entry.answer
        if answer is not None and answer.message == SAID_IN_ADDS:
            message = Message(role="assistant") if at is None else self._adds[at]
            answer = answer.model_copy(update={"message": message})
        calls = self.batch(entry.calls, dict(enumerate(entry.outcomes)))
        self._batch += bool(calls)
        k = self._answers
        said = 0 if answer is None else self._numbers.get(("said", 0, k), 0)
        items = () if answer is None else answer.message.items
        ran = hosted_calls(items) if items else ()
        hosted = tuple((self._numbers.get(("hosted", k, i), 0), each) for i, each in enumerate(ran))
        self._answers += answer is not None
        return JournalPart(entry=entry, answer=answer, at=at, calls=calls, said=said, hosted=hosted)

    def _call(
        self,
        i: int,
        call: ToolCall,
        outcome: Outcome | None,
        *,
        called: Called | None = None,
        begun: Begun | None = None,
        stop: Failure | None = None,
    ) -> StepCall:
        said: Message | None = None
        if outcome is not None and outcome.at is not None:
            said = self._adds[outcome.at]
            outcome = outcome.model_copy(update={"content": said.content})
        return StepCall(
            call=call,
            batch=self._batch,
            i=i,
            outcome=outcome,
            said=said,
            called=called if outcome is None else None,
            begun=begun,
            stop=stop,
            asked=self._numbers.get(("call", self._batch, i), 0),
            done=self._numbers.get(("done", self._batch, i), 0),
        )


def _number(marks: Sequence[Mark], kind: str) -> int:
    return next((mark.number for mark in marks if mark.kind == kind), 0)
