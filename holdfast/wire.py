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


INLINE_BYTES = 16 * 1024
"""Texts above this size go to the archive; history holds a reference."""

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
        reads: A session whose history precedes the task, but that it does not commit to.
        history: Digest in the archive of a conversation that precedes the task, or empty.
        tool_choice: Tool choice of the first step, or empty.
        dialect: Which API's rules apply.
        model: Model name that replaces the agent's, or empty.
        settings: Model settings laid over the agent's, or None.
    """

    agent: str
    snapshot: str = ""
    session: SessionRef | None = None
    reads: SessionRef | None = None
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


ApprovalKind = Literal["tool", "unknown", "limit", "undo"]


class Approval(Value):
    """Something that waits for a person, or was decided by one for the step in progress.

    Attributes:
        id: `<task id>:<serial>`: enough to decide it from any process.
        kind: A call that needs approval, a call that may have happened, a budget that is used up,
            or an undo that needs approval.
        tool: Tool name.
        call_id: The model's id of the call.
        arguments: The proposed arguments, JSON text.
        digest: Digest of the proposed call: a decision is for these arguments only.
        n: Ordinal of the step.
        i: Position of the call among the step's open calls.
        branch: Branch of the ledger on which it was asked.
        asked: Time, seconds since the epoch.
        expires: Time at which it expires to rejected; 0 for never.
        text: What is known.
        status: "checking" while edited arguments are validated.
        by: Who decided.
        at: When.
        note: What they said.
        effective: Edited arguments, JSON text; empty when they were not edited.
    """

    id: str
    kind: ApprovalKind = "tool"
    tool: str = ""
    call_id: str = ""
    arguments: str = ""
    digest: str = ""
    n: int = 0
    i: int = -1
    branch: int = 0
    asked: float = 0.0
    expires: float = 0.0
    text: str = ""
    status: Literal[
        "open", "checking", "approved", "rejected", "responded", "expired", "closed"
    ] = "open"
    by: str = ""
    at: float = 0.0
    note: str = ""
    effective: str = ""


class Before(Value):
    """What a step found, and an undo brings back.

    Attributes:
        queue: The queued steps, the step itself among them.
        notes: Messages that waited for the next model call.
        followups: Inputs that waited for the task's answer.
        serial: Number of the newest step id.
        turns: Answered model calls.
        usage: Cost of the task.
        answered: Whether the task had its answer.
        concluded: Whether the step before was the last one; a follow-up may be queued since.
        transcript: Length and digest of the transcript.
    """

    queue: tuple[TaskStep, ...] = ()
    notes: tuple[Message, ...] = ()
    followups: tuple[str, ...] = ()
    serial: int = 1
    turns: int = 0
    usage: Usage = Usage()
    answered: bool = False
    concluded: bool = False
    transcript: ChainRef = ChainRef()


class OpenStep(Value):
    """The part of a step's input that the AgentWorker reads.

    Attributes:
        step: The step.
        state: The task's extra_state at the beginning of the step.
        tool_choice: Tool choice asked for by this run_step, or empty.
        stored: The step's input in the archive, when it is too large for history.
        notes: Messages to be seen before the step's first model call: feedback, and what the task
            has to say.
    """

    step: TaskStep
    state: dict[str, Json] = Field(default_factory=dict)
    tool_choice: str = ""
    stored: Blob | None = None
    notes: tuple[Message, ...] = ()


def usual_step(n: int) -> OpenStep:
    """Return the step that needs no words: it only goes on."""
    return OpenStep(step=TaskStep(step_id=f"s{n}"))


class AdvanceInput(Value):
    """Input of the step activity: constant size, whatever came before.

    Attributes:
        n: Ordinal of the step, from 1.
        at: The transcript before the step; the digest is cut to 16 digits.
        journal: The step's answered calls.
        open: What the AgentWorker reads, when small; None with no digest is the usual step: the
            one numbered like its ordinal, without input or state.
        digest: Its digest, when it is too large to be sent: the activity asks the task for it.
        limit: What to do when the worker wants one more model call: "" make it, "stop" report the
            limit, "finish" make it without tools and take its answer as the last.
        tokens: Output tokens that are left for the call; 0 for no limit.
    """

    n: int
    at: ChainRef = ChainRef()
    journal: ChainRef = ChainRef()
    open: OpenStep | None = None
    digest: str = ""
    limit: Literal["", "stop", "finish"] = ""
    tokens: int = 0


class Outcome(Value):
    """What became of one tool call.

    Attributes:
        content: What the model is told; text, or where the archive keeps it.
        is_error: Whether that tells of a failure.
        patch: Change of the task's extra_state, a merge patch.
        status: "unknown" when the worker was lost inside the call.
        attempts: How often the call was started.
        edited: The arguments with which it ran, when a person changed them.
        worker: Identity of the worker that ran it.
    """

    content: Content = ""
    is_error: bool = False
    patch: dict[str, Json] = Field(default_factory=dict)
    status: Literal["done", "failed", "unknown"] = "done"
    attempts: int = 1
    edited: str = ""
    worker: str = ""

    def message(self, call: ToolCall) -> Message:
        """Return the message that tells the model."""
        return Message(role="tool", call_id=call.id, content=self.content, is_error=self.is_error)


class Probed(Value):
    """What a tool's probe found out about a call that may have happened.

    Attributes:
        happened: Whether it did.
        content: Its result, if so.
    """

    happened: bool = False
    content: Content = ""


class JournalEntry(Value):
    """One answered call of the step in progress.

    Attributes:
        request: Digest of what was asked; a different one means that the code has changed.
        answer: The model's answer, for a model call.
        calls: The calls, for tool calls.
        outcomes: Their results in the same order.
        last: Whether the budget made the model call the last one, without tools.
        attempts: How often the model call was started.
        worker: Identity of the worker that got the answer.
    """

    request: str
    answer: ModelAnswer | None = None
    calls: tuple[ToolCall, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    last: bool = False
    attempts: int = 1
    worker: str = ""


class StepResult(Value):
    """What the AgentWorker's step gave. The defaults are the usual step of function calling.

    Attributes:
        output: JSON data.
        echo: Whether the output is the text of the newest answer, which history holds already.
        stored: Where the archive keeps an output too large for history.
        adds: Messages that join the transcript. A string names one that history holds already:
            "input" (the step's input), "n<note>" (a note of the open step), "j<entry>" (the answer
            of a journal entry) or "j<entry>.<call>" (one of its tool results).
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
        attempts: How often the activity was started.
        worker: Identity of the worker.
    """

    request: str = ""
    answer: ModelAnswer | None = None
    result: StepResult | None = None
    calls: tuple[ToolCall, ...] = ()
    asked: str = ""
    patch: dict[str, Json] = Field(default_factory=dict)
    limit: bool = False
    failure: Failure | None = None
    attempts: int = 1
    worker: str = ""


class ToolInput(Value):
    """Input of the tool activity: the call itself is found by reference.

    Attributes:
        n: Ordinal of the step.
        i: Position of the call among the step's open calls.
        digest: Digest of the call.
        state: The task's extra_state, when it is small and not empty.
        big: Whether the state is too large to be sent: the activity asks the task for it.
        call: The call, when a person changed it.
        branch: Branch of the ledger; part of the idempotency key, like the next.
        batch: Number of batches of calls that the step has made before this one.
        step: Id of the step, when it is not "s" and its ordinal.
    """

    n: int
    i: int = 0
    digest: str = ""
    state: dict[str, Json] = Field(default_factory=dict)
    big: bool = False
    call: ToolCall | None = None
    branch: int = 0
    batch: int = 0
    step: str = ""


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
        branch: Branch of the ledger on which it was run.
        before: What it found.
        queue: The queue after it, when a person changed it while the step ran.
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
    branch: int = 0
    before: Before = Before()
    queue: tuple[TaskStep, ...] | None = None


class EffectRef(Value):
    """One tool call of a step, as its undo needs it.

    Attributes:
        call: The call, as it ran.
        content: Its result, or where the archive keeps it.
        status: How it ended.
        ran: Whether it was started at all.
        batch: Which of the step's batches of calls it was in.
        i: Its position there.
    """

    call: ToolCall
    content: Content = ""
    status: Literal["done", "failed", "unknown"] = "done"
    ran: bool = True
    batch: int = 0
    i: int = 0


class Undoable(Value):
    """A step as its undo needs it.

    Attributes:
        n: Ordinal.
        step: The step.
        added: Number of messages that it added to the transcript.
        inverse: What undoes its change of extra_state.
        before: What it found.
        effects: Its tool calls, in the order in which they were asked for.
        branch: Branch on which it ran.
    """

    n: int
    step: TaskStep
    added: int = 0
    inverse: dict[str, Json] = Field(default_factory=dict)
    before: Before = Before()
    effects: tuple[EffectRef, ...] = ()
    branch: int = 0


class UndoRequest(Value):
    """Argument of the `undo` update.

    Attributes:
        to: Ordinal of the last step to keep; -1 for all but the last one.
        residue: Whether effects that cannot be undone refuse the undo, or stay knowingly.
        by: Who asks.
        reason: Why.
    """

    to: int = -1
    residue: Literal["refuse", "keep"] = "refuse"
    by: str = ""
    reason: str = ""


class UndoState(Value):
    """An undo in progress.

    Attributes:
        asked: The request, `to` made explicit.
        done: Keys of the effects that are undone, `<step>.<batch>.<position>`, newest last.
        undone: What was undone, in words.
        remains: What stays in the world.
        check: What somebody should look at.
        steps: Ids of the steps that were left.
        cut: Positions of the open calls that were running when the step was stopped.
        request: Id of the request.
    """

    asked: UndoRequest
    done: tuple[str, ...] = ()
    undone: tuple[str, ...] = ()
    remains: tuple[str, ...] = ()
    check: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    cut: tuple[int, ...] = ()
    request: str = ""


class UndoInput(Value):
    """Input of the undo activity: one effect.

    Attributes:
        n: Ordinal of the step.
        i: Position of the effect in the step.
        effect: The effect.
        branch: Branch on which it ran.
        step: Id of the step, when it is not "s" and its ordinal.
    """

    n: int
    i: int
    effect: EffectRef
    branch: int = 0
    step: str = ""


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
        cleared: Positions of calls that turned out to need no approval.
        before: What the step found.
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
    cleared: tuple[int, ...] = ()
    before: Before = Before()
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
    concluded: bool = False
    failure: Failure | None = None
    seen: dict[str, RunReply] = Field(default_factory=dict)
    receipts: tuple[Receipt, ...] = ()
    published: str = "running"
    published_approvals: str = ""
    serial: int = 0
    undelivered: int = 0
    branch: int = 0
    approvals: tuple[Approval, ...] = ()
    approval_serial: int = 0
    notes: tuple[Message, ...] = ()
    followups: tuple[str, ...] = ()
    undo: UndoState | None = None
    undone_effects: tuple[str, ...] = ()
    residue: tuple[str, ...] = ()
    fork: ForkOf | None = None


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

    @property
    def changes(self) -> bool:
        """Whether this wants the step to be another one than it was."""
        return self.input is not None or self.stored is not None or bool(self.tool_choice)


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
    """Answer to a ViewRequest; lists are pages, ask again for the rest.

    Attributes:
        head: The task's head.
        messages: Messages of the transcript.
        segments: The archived part of the ledger, when messages are asked for that are there.
        base: Number of messages of the present branch that are there.
        open: The open step.
        journal: Its answered calls.
        calls: Its open calls.
        state: The extra_state that those see.
    """

    head: TaskHead | None = None
    messages: tuple[Message, ...] = ()
    segments: tuple[SegmentRef, ...] = ()
    base: int = 0
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
    """

    status: TaskStatus = "finished"


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
        commits: The newest turns, oldest first; a reset is one of them.
        older: Digests in the archive of full lists of commits, before `commits`.
        base: Number of commits in `older`.
        recent: Ids of the tasks that committed last, so that a repeated commit is dropped.
        roll_events: History length at which the session continues as new.
        index_size: Number of commits in a full list.
    """

    commits: tuple[CommitRef, ...] = ()
    older: tuple[str, ...] = ()
    base: int = 0
    recent: tuple[str, ...] = ()
    roll_events: int = 2000
    index_size: int = Field(default=500, ge=1)


TaskInput.model_rebuild()
Advanced.model_rebuild()
Carried.model_rebuild()
