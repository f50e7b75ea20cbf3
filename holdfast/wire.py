"""What crosses the boundaries: inputs and results of workflows, activities, updates and queries.

Names are short because history keeps every byte of them, for every step of every task.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from holdfast.chain import ChainRef
from holdfast.messages import Blob, Content, Message, ToolCall, Usage
from holdfast.models.base import ModelAnswer
from holdfast.settings import Budget, ModelSettings
from holdfast.steps import TaskStatus, TaskStep
from holdfast.tool_policy import ToolPolicy
from holdfast.values import Json, Value, canonical, digest


class Dialect(Value):
    """Where the step API and the OpenAI Agents SDK differ; a task carries one of them.

    Attributes:
        unknown_tool: Tell the model, or end the task with ModelBehaviorError.
        tool_error: Tell the model the exception's text, or a fixed text without detail.
    """

    unknown_tool: Literal["tell", "raise"] = "tell"
    tool_error: Literal["text", "fixed"] = "text"


STEPS = Dialect()
PARKED = "parked"
"""Detail of an error by which an update says that the task waits with it."""

AGENTS_SDK = Dialect(unknown_tool="raise", tool_error="fixed")


class SessionRef(Value):
    """A session, as it was when the task began.

    Attributes:
        id: Workflow id of the session.
        name: The name that people use.
        commits: Number of commits that the task sees; `describe` finds it out.
    """

    id: str
    name: str
    commits: int = 0


class TaskHead(Value):
    """What stays the same over a whole task and every activity needs.

    Attributes:
        agent: Name of the agent.
        snapshot: Digest of the agent's snapshot; empty until `describe` has run.
        session: The session, if any.
        history: Digest in the archive of a conversation that precedes the task, or empty.
        tool_choice: Tool choice of the first step, or empty.
        dialect: Which API's rules apply.
        model: Model name that replaces the agent's, or empty.
        settings: Model settings laid over the agent's, or None.
    """

    agent: str
    snapshot: str = ""
    session: SessionRef | None = None
    history: str = ""
    tool_choice: str = ""
    dialect: Dialect = STEPS
    model: str = ""
    settings: ModelSettings | None = None


def known_head(head: TaskHead, described: Described | None) -> TaskHead:
    """Return the head with what `describe` found out."""
    if described is None:
        return head
    session = head.session
    if session is not None:
        session = session.model_copy(update={"commits": described.commits})
    return head.model_copy(update={"snapshot": described.snapshot, "session": session})


class TaskInput(Value):
    """Input of the task workflow.

    Attributes:
        head: What stays the same.
        input: The user's request; empty when `stored` holds it.
        stored: The request in the archive, when it is too large for history.
        extra_state: Shared state at the beginning.
        budget: Limits, or None.
        automatic: Run steps without being asked.
        finalize: Finalize by itself once the last step is done.
        heartbeat: Seconds without a sign of life after which a worker counts as lost.
        roll_events: History length at which the task continues as new.
        carried: State of the run before, after continue-as-new.
    """

    head: TaskHead
    input: str = ""
    stored: Blob | None = None
    extra_state: dict[str, Json] = Field(default_factory=dict)
    budget: Budget | None = None
    automatic: bool = False
    finalize: bool = False
    heartbeat: float = 20.0
    roll_events: int = 2000
    carried: Carried | None = None


class Described(Value):
    """Result of `describe`.

    Attributes:
        snapshot: Digest of the agent's snapshot, which is in the archive.
        policies: Tool name to policy.
        timeout: Longest time of one model attempt in seconds.
        attempts: Most attempts of one model call.
        step: First step as the AgentWorker made it; defaults mean the usual first step.
        commits: Number of the session's commits that the task sees.
    """

    snapshot: str
    policies: dict[str, ToolPolicy] = Field(default_factory=dict)
    timeout: float = 600.0
    attempts: int = 10
    step: TaskStep = TaskStep()
    commits: int = 0


class OpenStep(Value):
    """The part of a step's input that the AgentWorker reads.

    Attributes:
        step: The step.
        state: The task's extra_state at the beginning of the step.
        tool_choice: Tool choice asked for by this run_step, or empty.
        stored: The step's input in the archive, when it is too large for history.
    """

    step: TaskStep
    state: dict[str, Json] = Field(default_factory=dict)
    tool_choice: str = ""
    stored: Blob | None = None


def usual_step(n: int) -> OpenStep:
    """Return the step that needs no words: it only goes on."""
    return OpenStep(step=TaskStep(step_id=f"s{n}"))


class AdvanceInput(Value):
    """Input of the step activity: constant size, whatever came before.

    Attributes:
        n: Ordinal of the step, from 1.
        at: The transcript before the step.
        journal: The step's answered calls.
        open: What the AgentWorker reads, when small; None with no digest is the usual step: the
            one numbered like its ordinal, without input or state.
        digest: Its digest, when it is too large to be sent: the activity asks the task for it.
        limit: What to do when the worker wants one more model call: "" make it, "stop" report the
            limit, "finish" make it without tools and take its answer as the last.
    """

    n: int
    at: ChainRef = ChainRef()
    journal: ChainRef = ChainRef()
    open: OpenStep | None = None
    digest: str = ""
    limit: Literal["", "stop", "finish"] = ""


class Outcome(Value):
    """What became of one tool call.

    Attributes:
        content: What the model is told; text, or where the archive keeps it.
        is_error: Whether that tells of a failure.
        patch: Change of the task's extra_state, a merge patch.
        status: "unknown" when the worker was lost inside the call.
        attempts: How often the call was started.
    """

    content: Content = ""
    is_error: bool = False
    patch: dict[str, Json] = Field(default_factory=dict)
    status: Literal["done", "failed", "unknown"] = "done"
    attempts: int = 1

    def message(self, call: ToolCall) -> Message:
        """Return the message that tells the model."""
        return Message(role="tool", call_id=call.id, content=self.content, is_error=self.is_error)


class JournalEntry(Value):
    """One answered call of the step in progress.

    Attributes:
        request: Digest of what was asked; a different one means that the code has changed.
        answer: The model's answer, for a model call.
        calls: The calls, for tool calls.
        outcomes: Their results in the same order.
    """

    request: str
    answer: ModelAnswer | None = None
    calls: tuple[ToolCall, ...] = ()
    outcomes: tuple[Outcome, ...] = ()


class StepResult(Value):
    """What the AgentWorker's step gave. The defaults are the usual step of function calling.

    Attributes:
        output: JSON data.
        echo: Whether the output is the text of the newest answer, which history holds already.
        stored: Where the archive keeps an output too large for history.
        adds: Messages that join the transcript. A string names one that history holds already:
            "input" (the step's input), "j<entry>" (the answer of a journal entry) or
            "j<entry>.<call>" (one of its tool results).
        calls: Tool calls that end the step; "j<entry>" stands for all calls of that answer.
        next: Following steps; task id left out.
        last: Whether the task has its answer.
        patch: Change of extra_state, a merge patch.
    """

    output: Json = None
    echo: bool = True
    stored: Blob | None = None
    adds: tuple[Message | str, ...] = ("j0",)
    calls: tuple[ToolCall, ...] | str = "j0"
    next: tuple[TaskStep, ...] = (TaskStep(),)
    last: bool = False
    patch: dict[str, Json] = Field(default_factory=dict)


class Advanced(Value):
    """Result of the step activity.

    Attributes:
        request: Digest of the model call that was made; left out when the step is over.
        answer: Its answer; None when no call was made.
        result: The step's result, when the step is over.
        calls: Tool calls that the step waits for in its middle.
        asked: Digest of that request for tools.
        patch: Change of extra_state made before those calls.
        limit: The step wants a model call that the limit forbids.
        failure: Why the step stopped after its model call, whose answer is paid and kept.
    """

    request: str = ""
    answer: ModelAnswer | None = None
    result: StepResult | None = None
    calls: tuple[ToolCall, ...] = ()
    asked: str = ""
    patch: dict[str, Json] = Field(default_factory=dict)
    limit: bool = False
    failure: Failure | None = None


class ToolInput(Value):
    """Input of the tool activity: the call itself is found by reference.

    Attributes:
        n: Ordinal of the step.
        i: Position of the call among the step's open calls.
        digest: Digest of the call.
        state: The task's extra_state, when it is small and not empty.
        big: Whether the state is too large to be sent: the activity asks the task for it.
        call: The call, when a person changed it.
    """

    n: int
    i: int = 0
    digest: str = ""
    state: dict[str, Json] = Field(default_factory=dict)
    big: bool = False
    call: ToolCall | None = None


def call_digest(call: ToolCall) -> str:
    """Digest by which a tool activity checks that it found the call that was scheduled."""
    return digest(canonical(call.wire()))[:8]


class Failure(Value):
    """Why a step or a task stopped.

    Attributes:
        type: Class name of the error.
        message: Its text.
    """

    type: str
    message: str


class StepRecord(Value):
    """One completed step in the ledger.

    Attributes:
        n: Ordinal in the task, from 1.
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
    """

    n: int
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


class EventRecord(Value):
    """Something other than a completed step: a command, a failure, a limit.

    Attributes:
        kind: "command", "refused", "failed", "limit", "closed".
        at: Time, seconds since the epoch.
        by: Who did it, empty for the task itself.
        text: Reason or error.
        body: Facts.
    """

    kind: str
    at: float
    by: str = ""
    text: str = ""
    body: dict[str, Json] = Field(default_factory=dict)


class Entry(Value):
    """One entry of the ledger."""

    step: StepRecord | None = None
    event: EventRecord | None = None


class SegmentRef(Value):
    """A part of the ledger that is in the archive.

    Attributes:
        sha256: Digest of the segment's bytes.
        steps: Number of step records in it.
        messages: Number of messages that they added.
        entries: Number of entries.
    """

    sha256: str
    steps: int = 0
    messages: int = 0
    entries: int = 0


class Receipt(Value):
    """What became of a command.

    Attributes:
        id: The command's id.
        verb: What was asked.
        status: "applied", "refused", or "recorded" while no worker has seen it.
        reason: Why it was refused.
    """

    id: str
    verb: str
    status: Literal["applied", "refused", "recorded"]
    reason: str = ""


class OpenState(Value):
    """The step in progress, as data: enough to go on with it after any crash or rollover.

    Attributes:
        open: What the AgentWorker reads.
        n: Ordinal of the step.
        started: Time of its first attempt, seconds since the epoch.
        journal: Answered calls, oldest first.
        chain: Digest of the journal.
        result: What the AgentWorker gave, once it is known.
        calls: Tool calls that are open now.
        asked: Digest of the request for them, when the AgentWorker waits for their results.
        state: The extra_state that those calls see.
        outcomes: Position of an open call to its outcome.
        failure: Why the step stopped.
        limit: "finish" makes the next model call the last, "allow" lets one pass the budget.
        owner: Id of the request that the step is run for, if any.
    """

    open: OpenStep
    n: int
    started: float
    journal: tuple[JournalEntry, ...] = ()
    chain: str = ""
    result: StepResult | None = None
    calls: tuple[ToolCall, ...] = ()
    asked: str = ""
    state: dict[str, Json] = Field(default_factory=dict)
    outcomes: dict[int, Outcome] = Field(default_factory=dict[int, Outcome])
    failure: Failure | None = None
    limit: Literal["", "allow", "finish"] = ""
    owner: str = ""


class Carried(Value):
    """The task's state: what continue-as-new hands on, and what the archive keeps of a task."""

    created: float = 0.0
    described: Described | None = None
    queue: tuple[TaskStep, ...] = ()
    extra_state: dict[str, Json] = Field(default_factory=dict)
    transcript: ChainRef = ChainRef()
    steps: int = 0
    turns: int = 0
    usage: Usage = Usage()
    segments: tuple[SegmentRef, ...] = ()
    current: OpenState | None = None
    automatic: bool = False
    paused: str = ""
    answered: bool = False
    failure: Failure | None = None
    seen: dict[str, RunReply] = Field(default_factory=dict)
    receipts: tuple[Receipt, ...] = ()
    published: str = "running"
    serial: int = 0
    undelivered: int = 0


class RunRequest(Value):
    """Argument of the `run` update.

    Attributes:
        all: Run until the task has its answer or needs somebody; else run one step.
        input: New user input for the step.
        step: Id of the queued step to run; empty for the first one.
        tool_choice: Tool choice of the step.
        restart: Throw the step's journal away and start it anew.
        stored: The input in the archive, when it is too large for history.
    """

    all: bool = False
    input: str | None = None
    stored: Blob | None = None
    step: str = ""
    tool_choice: str = ""
    restart: bool = False

    @property
    def attaches(self) -> bool:
        """Whether this asks only for the output of the step in progress."""
        return self == RunRequest()


class RunReply(Value):
    """Result of the `run` update: a reference, never the output itself.

    Attributes:
        n: Ordinal of the step that was run; 0 when none was.
        status: "done", "waiting" (for a person), "paused", "moved" (continued as new: ask again).
    """

    n: int = 0
    status: Literal["done", "waiting", "paused", "moved"] = "done"


class ViewRequest(Value):
    """What an activity lacks.

    Attributes:
        have: Messages of the transcript that it holds.
        upto: Messages that it needs.
        head: Whether it needs the task's head.
        open: Whether it needs the open step.
        journal: Journal entries that it holds.
        calls: Whether it needs the open calls.
    """

    have: int = 0
    upto: int = 0
    head: bool = False
    open: bool = False
    journal: int = -1
    calls: bool = False


class View(Value):
    """Answer to a ViewRequest; lists are pages, ask again for the rest."""

    head: TaskHead | None = None
    messages: tuple[Message, ...] = ()
    segments: tuple[SegmentRef, ...] = ()
    open: OpenStep | None = None
    journal: tuple[JournalEntry, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    state: dict[str, Json] = Field(default_factory=dict)


class CloseInput(Value):
    """Input of the closing activity.

    Attributes:
        status: Status that the task closes with.
        at: The transcript.
        commit: Whether the session gets this task's turn.
        failure: Verdict or reason that ended the task, if it is not finished.
    """

    status: TaskStatus
    at: ChainRef = ChainRef()
    commit: bool = False
    failure: Failure | None = None


class TaskRecord(Value):
    """A closed task in the archive, under its id.

    Attributes:
        task: The task.
        head: Agent, session and rules.
        segments: The ledger, oldest first.
        failure: The verdict that ended it, if any.
        output: Output of the last step.
        stored: Where the archive keeps that output, when it is large.
        transcript: Length and digest of the transcript.
        current: The step that was open when the task ended, if it did not end well.
    """

    task: Json
    head: TaskHead
    segments: tuple[SegmentRef, ...] = ()
    failure: Failure | None = None
    output: Json = None
    stored: Blob | None = None
    transcript: ChainRef = ChainRef()
    current: OpenState | None = None


class TaskResult(Value):
    """Result of the task workflow.

    Attributes:
        status: How it closed.
        text: The answer's text when it is small; else the archive has it.
    """

    status: TaskStatus = "finished"
    text: str | None = None


class CommitRef(Value):
    """One turn of a session.

    Attributes:
        task: Task that committed it.
        sha256: Digest in the archive of the list of messages; empty for a reset.
        count: Number of messages.
    """

    task: str
    sha256: str = ""
    count: int = 0


class SessionState(Value):
    """What a session's continue-as-new hands on.

    Attributes:
        commits: Turns, oldest first, since the last reset.
        older: Digests in the archive of lists of 500 commits each, before `commits`.
        base: Number of commits in `older`.
        recent: Ids of the tasks that committed last, so that a repeated commit is dropped.
    """

    commits: tuple[CommitRef, ...] = ()
    older: tuple[str, ...] = ()
    base: int = 0
    recent: tuple[str, ...] = ()


TaskInput.model_rebuild()
Advanced.model_rebuild()
Carried.model_rebuild()
