"""Records of a task: completed steps, steps in progress, their journals, and events."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple, cast

from pydantic import BeforeValidator, Field

from holdfast.models.base import ModelAnswer
from holdfast.task.data.calls import Begun, Called, Outcome, Wait
from holdfast.task.data.failures import Failure
from holdfast.task.data.undo import Before, Taken
from holdfast.values.base import ChainRef, Json, Part, Value, canonical, digest, extend
from holdfast.values.messages import Blob, Message, ToolCall, Usage
from holdfast.values.steps import TaskStep


class Handed(Value):
    """JSON data that an AgentWorker made: a step's output, or a memo.

    Attributes:
        output: JSON data.
        stored: Where the archive keeps an output too large for history.
    """

    output: Json = None
    stored: Blob | None = None


class InputRef(NamedTuple):
    """Names the output of a completed step.

    Attributes:
        n: Ordinal of the step.
        digest: Digest of the output.
    """

    n: int
    digest: str


DEPARTED = "departed"
"""Mark of a fork's first note, which is about the steps before its input."""


def _as_calls(given: object) -> object:
    """Read the calls as tasks have recorded them until they had kinds: by their ids alone."""
    if not isinstance(given, list | tuple):
        return given
    calls = cast("list[object]", given)
    return [ToolCall(id=each, name="") if isinstance(each, str) else each for each in calls]


class OpenStep(Value):
    """The part of a step's input that the AgentWorker reads.

    Attributes:
        step: The step.
        state: The task's extra_state at the beginning of the step.
        tool_choice: Tool choice asked for by this run_step, or empty.
        stored: The step's input in the archive, when it is too large for history.
        notes: Messages that precede the step's first model call: feedback, and notes of the task,
            for example on an undo. They follow the input, which they are about, except for the
            notes that `step.behind` counts: they were there before it.
        told: Of a step that asks again because no answer was usable: how many of the notes the
            model has read; -1 for others.
        unanswered: Of such a step: `Message.open_calls` of its newest answer.
        inputs: Step id to the output of each step that this one waited for.
    """

    step: TaskStep
    state: dict[str, Json] = Field(default_factory=dict)
    tool_choice: str = ""
    stored: Blob | None = None
    notes: tuple[Message, ...] = ()
    told: int = -1
    unanswered: Annotated[tuple[ToolCall, ...], BeforeValidator(_as_calls)] = ()
    inputs: dict[str, InputRef] = Field(default_factory=dict[str, InputRef])


def usual_step(n: int) -> dict[str, Json]:
    """Return the wire form of the usual step: its number is its ordinal, it has nothing else."""
    return {"step": {"step_id": f"s{n}"}}


class JournalEntry(Value):
    """One answered call of the step in progress.

    Attributes:
        request: Digest of the request; a different one means that the code has changed.
        answer: The model's answer, for a model call.
        calls: The calls, for tool calls.
        outcomes: Their results in the same order.
        memo: What the AgentWorker made and had recorded, for a memo.
        name: The memo's name.
        last: Whether the budget made the model call the last one, without tools.
        attempts: How often the model call was started, or may have been.
        worker: Identity of the worker that got the answer.
    """

    request: str
    answer: ModelAnswer | None = None
    calls: tuple[ToolCall, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    memo: Handed | None = None
    name: str = ""
    last: bool = False
    attempts: int = 1
    worker: str = ""


class StepResult(Value):
    """Result of the AgentWorker's step. The defaults are the usual step of function calling.

    Attributes:
        output: JSON data.
        echo: Whether the output is the text of the newest answer, which history holds already.
        stored: Where the archive keeps an output too large for history.
        adds: Messages that join the transcript. A string names one that history holds already:
            "input" (the step's input), "n<note>" (a note of the open step), "j<entry>" (the answer
            of a journal entry) or "j<entry>.<call>" (one of its tool results).
        calls: Tool calls that end the step; "j<entry>" stands for all calls of that answer.
        quiet: Whether the results of the calls are the output, and stay out of the transcript.
        next: Following steps; task id left out.
        last: Whether the task has its answer.
        patch: Change of extra_state, a merge patch.
    """

    output: Json = None
    echo: bool = True
    stored: Blob | None = None
    adds: tuple[Message | str, ...] = ("j0",)
    calls: tuple[ToolCall, ...] | str = "j0"
    quiet: bool = False
    next: tuple[TaskStep, ...] = Field(default_factory=lambda: (TaskStep(),))
    last: bool = False
    patch: dict[str, Json] = Field(default_factory=dict)


MarkKind = Literal["start", "said", "hosted", "call", "done", "end"]
"""What a mark stands for; "said": a model said something before the task's answer. "hosted": a tool
of the provider ran inside a model call."""


class Mark(NamedTuple):
    """Something that happened in a step, with its place in the life of the task.

    Attributes:
        number: Counts what happened in the task, from 1, over all its steps.
        kind: What it was.
        batch: Which of the step's batches of calls a call is in, from 0; of "hosted", how many
            answers the step had before.
        i: Its position there; of "said", how many answers the step had before.
    """

    number: int
    kind: MarkKind
    batch: int = 0
    i: int = 0


_PLACE_BITS = 24
_ATTEMPT_BITS = 10

LAST_ATTEMPT = (1 << _ATTEMPT_BITS) - 1
"""Sorts after every attempt to get an answer: the attempt number of a step's results."""

MOST_PLACES = (1 << _PLACE_BITS) - 1


class Offset(NamedTuple):
    """A place in the life of a task.

    Attributes:
        mark: Number of the newest mark.
        attempt: Attempts to get answers since then.
        place: Place in what the newest attempt said.
    """

    mark: int
    attempt: int = 0
    place: int = 0

    def __int__(self) -> int:
        """Return it as one number; below 2 ** 53 for half a million marks."""
        attempt = min(self.attempt, LAST_ATTEMPT)
        place = min(self.place, MOST_PLACES)
        return (self.mark << _ATTEMPT_BITS | attempt) << _PLACE_BITS | place


def mark_of(offset: int) -> int:
    """Return the mark of a place that is given as one number."""
    return offset >> (_ATTEMPT_BITS + _PLACE_BITS)


class StepRecord(Value):
    """One completed step in the ledger.

    Attributes:
        n: Ordinal in the task, from 1: steps are numbered as they are completed.
        opened: Number under which it was opened, when that is another one because steps ran side by
            side; calls and their idempotency keys are named by it.
        step: The step as it was run.
        output: JSON data that the AgentWorker gave.
        stored: Where the archive keeps an output too large for history.
        last: Whether it was the last step.
        next: Steps that it queued.
        adds: Messages that it added to the transcript.
        calls: Its tool calls.
        outcomes: Their outcomes, in the same order.
        journal: Answered calls that are not in `adds`, for the auditor.
        usage: Cost of its model calls.
        patch: Change of extra_state.
        inverse: What undoes that change.
        conflicts: Paths that parallel tools changed to different values.
        started: Time of the first attempt, seconds since the epoch.
        ended: Time of completion.
        digest: Digest of the transcript after the step.
        branch: Branch of the ledger on which it was run.
        before: What it found.
        taken: What it changed in the queue, next to adding `next`.
        marks: When things happened in it, oldest first.
        alone: Whether no other step was open while it ran.
        unheard: When model calls of it were begun that were cut off before their answer.
    """

    n: int
    opened: int = 0
    step: TaskStep
    output: Json = None
    stored: Blob | None = None
    last: bool = False
    next: tuple[TaskStep, ...] = ()
    adds: tuple[Message, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    journal: tuple[JournalEntry, ...] = ()
    usage: Usage = Usage()
    patch: dict[str, Json] = Field(default_factory=dict)
    inverse: dict[str, Json] = Field(default_factory=dict)
    conflicts: tuple[str, ...] = ()
    started: float = 0.0
    ended: float = 0.0
    digest: str = ""
    branch: int = 0
    before: Before = Before()
    taken: Taken = Taken()
    marks: tuple[Mark, ...] = ()
    alone: bool = True
    unheard: tuple[float, ...] = ()

    @property
    def key(self) -> int:
        """The number by which its calls are named."""
        return self.opened or self.n

    def made(self) -> Iterator[tuple[int, int, ToolCall, Outcome]]:
        """Yield all calls of tools that it made, oldest first: batch, position, call, outcome."""
        batch, parts = 0, list[JournalEntry | StepRecord](self.journal)
        for part in (*parts, self):
            for i, (call, outcome) in enumerate(zip(part.calls, part.outcomes, strict=True)):
                yield batch, i, call, outcome
            batch += bool(part.calls)


class ForkOf(Value):
    """Where a fork comes from.

    Attributes:
        task: The task that was forked.
        n: Ordinal of the last step that both share.
    """

    task: str
    n: int


class EventRecord(Value):
    """Something other than a completed step: a command, a failure, a limit.

    Attributes:
        kind: "asked", "command", "refused", "failed", "lost", "limit", "guardrail", "closed" and
            others.
        at: Time, seconds since the epoch.
        by: Who did it, empty for the task itself.
        text: Reason or error.
        body: Facts.
        number: Its place in the life of the task, among the marks; 0 when followers do not get it.
    """

    kind: str
    at: float
    by: str = ""
    text: str = ""
    body: dict[str, Json] = Field(default_factory=dict)
    number: int = 0


OVER_BUDGET = "over_budget"
"""Member of the step_state of a join of steps that the budget ended."""


class SegmentRef(Value):
    """A part of the ledger that is in the archive; its bytes name the part before it.

    So the newest one names them all, and a task carries only that, however often it rolls over.

    Attributes:
        sha256: Digest of the segment's bytes.
        number: Which one it is, counted from the oldest.
        start: Number of entries before it.
        entries: Number of entries in it.
    """

    sha256: str
    number: int = 1
    start: int = 0
    entries: int = 0


def archived_entries(newest: SegmentRef | None) -> int:
    """Return how many entries are archived, by the newest segment."""
    return newest.start + newest.entries if newest is not None else 0


class OpenState(Part):
    """A step in progress, as data: enough to go on with it after any crash or rollover.

    Attributes:
        open: What the AgentWorker reads.
        n: Number under which it was opened: one more than the steps completed or open then.
        at: The transcript that it sees.
        alone: Whether no other step was open at any time.
        started: Time of its first attempt, seconds since the epoch.
        journal: Answered calls, oldest first.
        chain: Length and digest of the journal as the newest activity was given it: a step of one
            model call never needs the digest.
        result: What the AgentWorker gave, once it is known.
        calls: Tool calls that are open now.
        asked: Digest of the request for them, when the AgentWorker waits for their results.
        cleared: Positions of calls that turned out to need no approval.
        before: What the step found.
        state: The extra_state that those calls see.
        outcomes: Position of an open call to its outcome.
        called: Position of an open call to what is known of it, once it was begun.
        begun: Position of an open call that runs as a child task to the results of its guardrails
            and hooks.
        waiting: Position of an open call to its outcome once the time of its wait is over; or to an
            outcome that came from outside before its tool has ended.
        stops: Position of an open call to why the step will stop after it, once the calls next to
            it have ended.
        failure: Why the step stopped.
        limit: "finish" makes the next model call the last, "allow" lets one pass the budget,
            "past" its tenant's day.
        owner: Id of the request that the step is run for, if any.
        marks: When things happened in it, oldest first.
        stream: Whether a client follows its answers while they are made, though the rules of the
            run do not ask for streaming.
        tried: How often its newest activity may have been started by earlier requests to run it.
        unheard: When model calls of it were begun that were cut off before their answer.
        unruled: As the activity said of its calls, see `Advanced`.
        unbegun: Whether it is to begin once more: its activity was stopped before it began, or all
            that it had done was dropped.
        lane: As in `AdvanceInput`, like the next.
        lost: An activity of it whose workers were lost.
    """

    open: OpenStep
    n: int
    started: float
    at: ChainRef = ChainRef()
    alone: bool = True
    journal: tuple[JournalEntry, ...] = ()
    chain: ChainRef = ChainRef()
    result: StepResult | None = None
    calls: tuple[ToolCall, ...] = ()
    asked: str = ""
    cleared: tuple[int, ...] = ()
    before: Before = Before()
    state: dict[str, Json] = Field(default_factory=dict)
    outcomes: dict[int, Outcome] = Field(default_factory=dict[int, Outcome])
    called: dict[int, Called] = Field(default_factory=dict[int, Called])
    begun: dict[int, Begun] = Field(default_factory=dict[int, Begun])
    waiting: dict[int, Outcome] = Field(default_factory=dict[int, Outcome])
    stops: dict[int, Failure] = Field(default_factory=dict[int, Failure])
    failure: Failure | None = None
    limit: Literal["", "allow", "finish", "past"] = ""
    owner: str = ""
    marks: tuple[Mark, ...] = ()
    stream: bool = False
    tried: int = 0
    unheard: tuple[float, ...] = ()
    unruled: bool = False
    unbegun: bool = False
    lane: int = 0
    lost: str = ""

    @property
    def is_unfit(self) -> bool:
        """Whether it stopped at an answer of the model that is not usable, before any call."""
        return (
            self.failure is not None and self.failure.type == "UnfitAnswerError" and not self.calls
        )

    @property
    def waits(self) -> str:
        """What its calls wait for that goes on outside, in words; else empty."""
        asked = (over.asks for over in self.waiting.values())
        return "; ".join(each.said for each in asked if isinstance(each, Wait))

    @property
    def batch(self) -> int:
        """Number of the batches of calls that it has made before the present one."""
        return sum(bool(entry.calls) for entry in self.journal) if self.journal else 0

    def chained(self) -> OpenState:
        """Return a copy of this step with the digest of its whole journal: a query changes none."""
        length, digest = self.chain
        chain = ChainRef(len(self.journal), extend(digest, self.journal[length:]))
        return self.model_copy(update={"chain": chain})


class LeftStep(Value):
    """A step that was dropped before its end, with all that it had done.

    Attributes:
        was: The step as it was left, without what it found.
        branch: Branch of the ledger on which it ran.
        at: When it was left, seconds since the epoch.
        why: Whether it was undone, or is run again from nothing.
        by: Who asked for that.
    """

    was: OpenState
    branch: int = 0
    at: float
    why: Literal["undone", "restarted"]
    by: str = ""


class Entry(Value):
    """One entry of the ledger: a completed step, one that was left, or an event."""

    step: StepRecord | None = None
    left: LeftStep | None = None
    event: EventRecord | None = None


def effect_place(branch: int, key: int, batch: int, i: int) -> str:
    """Name the place of a call in its task: branch, number of the step, batch and position."""
    return f"{branch}.{key}.{batch}.{i}"


# The seal of a closed task: digests of its record that writers of the archive cannot change.
#
# The task's run keeps the digest of its ledger and of its record in its result, its failure or its
# memo: as long as Temporal knows the run, a rewritten record does not fit them. A signature in the
# record itself outlasts that; its key is in the environment of worker processes and of those who
# verify, and never in the archive.

KEY_VARIABLE = "HOLDFAST_SIGNING_KEY"
"""Environment variable with the key that signs records; older keys may follow, after commas."""

_SIGNATURE = "signature"
_PREPARED = "prepared"


class Seal(Value):
    """The digests of a closed task.

    Attributes:
        ledger: Length and digest of the chain of its ledger's entries.
        record: Digest of its record in the archive, the signature left out.
    """

    ledger: ChainRef = ChainRef()
    record: str = ""


def record_digest(record: dict[str, Json]) -> str:
    """Return the digest of a task's record as it is stored, its signature left out."""
    return digest(canonical({k: v for k, v in record.items() if k != _SIGNATURE}))


def is_sealed(record: dict[str, Json], by: str) -> bool:
    """Whether a record, as it is stored, has this digest.

    One that is marked as prepared may also have it without the mark: the activity `close` has
    stored the same record, and an attempt to prepare it, which had been given up, came late.
    """
    plain = {k: v for k, v in record.items() if k != _PREPARED}
    return by in {record_digest(record), record_digest(plain)}


def signed(record: dict[str, Json], task_id: str, what: str = "holdfast task") -> dict[str, Json]:
    """Return a record, or something else that is named, with its signature, if there is a key."""
    keys = _keys()
    if not keys:
        return record
    return {**record, _SIGNATURE: _sign(keys[0], task_id, record_digest(record), what)}


def check_signature(
    record: dict[str, Json], task_id: str, what: str = "holdfast task"
) -> bool | None:
    """Say whether a record's signature is that of a known key; None when there is nothing to check.

    It is that of a task's record, or of what else `signed` was told. There is nothing when no key
    is known, or when the record has no signature.
    """
    given = record.get(_SIGNATURE)
    keys = _keys()
    if not keys or given is None:
        return None
    found = record_digest(record)
    return any(hmac.compare_digest(str(given), _sign(key, task_id, found, what)) for key in keys)


def has_key() -> bool:
    """Whether a key is known that a signature can be checked with."""
    return bool(_keys())


def _keys() -> list[str]:
    return [key.strip() for key in os.environ.get(KEY_VARIABLE, "").split(",") if key.strip()]


def _sign(key: str, task_id: str, record: str, what: str = "holdfast task") -> str:
    text = canonical(cast("Json", [what, task_id, record]))
    return hmac.new(key.encode("utf-8", "surrogateescape"), text, hashlib.sha256).hexdigest()
