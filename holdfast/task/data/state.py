"""The state of a task and of a session, and the values by which a task is started and answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from holdfast.task.data.calls import Approval, LongCall, StandingRule
from holdfast.task.data.children import ChildState, ParentRef, UndoAnswer
from holdfast.task.data.commands import Receipt, RunReply
from holdfast.task.data.failures import Failure
from holdfast.task.data.guard_rules import Guarded, GuardRule
from holdfast.task.data.head import RunChange, TaskHead, ToolPolicy
from holdfast.task.data.records import Entry, ForkOf, InputRef, OpenState, SegmentRef
from holdfast.task.data.undo import FollowUp, LastOutput, QueueChange, UndoState, WaitingChange
from holdfast.values.base import ChainRef, Json, Part, Value, canonical, digest
from holdfast.values.messages import NOTHING, Blob, Dollars, ImagePart, Message, Usage
from holdfast.values.runs.status import TaskStatus
from holdfast.values.settings import ATTEMPTS, Budget
from holdfast.values.steps import TaskStep

PARKED = "parked"
"""Detail of an error by which an update says that the task waits with it."""


def known_head(head: TaskHead, described: Described | None) -> TaskHead:
    """Return the head, completed by the result of `describe`."""
    if described is None:
        return head
    session = head.session
    if session is not None:
        seen = described.commits
        session = session.model_copy(update={"commits": seen.length, "digest": seen.digest})
    return head.model_copy(update={"snapshot": described.snapshot, "session": session})


HEAD_DIGITS = 16
"""Digits of the digest by which a process knows that it has the head of the task."""


def head_digest(head: TaskHead) -> str:
    """Return the digest of a completed head, see `HEAD_DIGITS`."""
    return digest(canonical(head.wire()))[:HEAD_DIGITS]


class TaskInput(Value):
    """Input of the task workflow.

    Attributes:
        head: What stays the same.
        input: The user's request; empty when `stored` holds it.
        stored: The request in the archive, when it is too large for history.
        images: Images of the request.
        extra_state: Shared state at the beginning.
        budget: Limits, or None.
        automatic: Run steps without a request.
        finalize: Finalize without a request once the last step is done.
        heartbeat: Seconds without a sign of life after which a worker counts as lost.
        roll_events: History length at which the task continues as new.
        carried: State of the run before, after continue-as-new.
        parent: The parent task, for a call of an agent as a tool.
        held: Who has paused the parent and why, else empty.
        on_dollars: What happens once the budget in money is used up; empty for what the budget
            says.
        secret: Shared with the parent, if there is one: the signals between them carry it.
        described: What the activity `describe` would find out, if who started the task serves its
            agent and has found it out.
        run_request: Id of a request to run the task to its end, as if it had come with the start
            by the update `run`; its client fetches the reply by that update, if at all.
        start_at: Time at which the pause that it begins with ends, seconds since the epoch; 0 for
            never.
        paused: Who has paused it from its beginning, and why; else empty.
    """

    head: TaskHead
    input: str = ""
    stored: Blob | None = None
    images: tuple[ImagePart, ...] = ()
    extra_state: dict[str, Json] = Field(default_factory=dict)
    budget: Budget | None = None
    automatic: bool = False
    finalize: bool = False
    heartbeat: float = Field(default=20.0, gt=0, allow_inf_nan=False)
    roll_events: int = Field(default=2000, ge=1)
    carried: Carried | None = None
    parent: ParentRef | None = None
    held: str = ""
    on_dollars: Literal["", "ask", "finish", "fail"] = ""
    secret: str = ""
    described: Described | None = None
    run_request: str = ""
    start_at: float = 0.0
    paused: str = ""

    @property
    def has_request(self) -> bool:
        """Whether it says what the task is to do, or goes on with a task that knows."""
        request = (self.input, self.stored, self.images, self.head.history, self.carried)
        return any(request)


MOST_LOST = 5
"""Attempts of one activity that may be lost: one that ends its worker would do so for ever."""


class AgentRules(Value):
    """Rules by which the task runs the steps of an agent.

    Attributes:
        model: Name of its model, for labels.
        policies: Tool name to policy.
        timeout: Longest time of one model attempt in seconds.
        attempts: Most attempts of one model call.
        parallel: Most steps that run at the same time when the task runs on its own.
        guards: Its guardrails.
    """

    model: str = ""
    policies: dict[str, ToolPolicy] = Field(default_factory=dict)
    timeout: float = 600.0
    attempts: int = ATTEMPTS
    parallel: int = 1
    guards: tuple[GuardRule, ...] = ()

    @property
    def starts(self) -> int:
        """Most starts of the activity of a step: lost workers are no attempts that failed."""
        return max(self.attempts, MOST_LOST)


class Described(AgentRules):
    """Result of `describe`: the rules of the agent that the task begins with, and more.

    Attributes:
        snapshot: Digest of the agent's snapshot, which is in the archive.
        team: Name to rules of the other agents that the task may be handed to.
        run_guards: Guardrails that the run brought along.
        step: First step as the AgentWorker made it; defaults mean the usual first step.
        commits: The session's commits that the task sees.
        notifies: Whether the worker process has notifiers, see `AgentRunner.local`.
        ahead: The tasks of the session whose turn comes first; then it has found out nothing else.
    """

    snapshot: str
    team: dict[str, AgentRules] = Field(default_factory=dict[str, AgentRules])
    run_guards: tuple[GuardRule, ...] = ()
    step: TaskStep = TaskStep()
    commits: ChainRef = ChainRef()
    notifies: bool = False
    ahead: tuple[str, ...] = ()

    def rules(self, agent: str) -> AgentRules:
        """Return the rules of an agent; without a name, or for another one, those of the first."""
        return self.team.get(agent, self)


class Closing(Part):
    """The end of a task that was accepted, until it is closed.

    Attributes:
        status: The status that it is to have then.
        why: Who ends it and why, for an end by a command.
        is_prepared: Whether approvals were closed and child tasks notified; the archive follows.
        failures: How many attempts to close it have failed.
        due: Time of the next attempt, seconds since the epoch; 0 while one is being made.
    """

    status: TaskStatus
    why: str = ""
    is_prepared: bool = False
    failures: int = 0
    due: float = 0.0


class Delivery(Part):
    """Who has got which output: a part of the task's state.

    Attributes:
        seen: Id of a request to the reply that it got: the same request gets it again.
        undelivered: Completed steps, which had waited, whose outputs no request has fetched yet.
        given: Completed steps whose outputs were sent to callers that have not shown yet that they
            got them, by asking for more or by the signal `given`; with these callers.
        rounds: Request of `run_steps_in_queue` to its steps and their ordinals, 0 until done.
    """

    seen: dict[str, RunReply] = Field(default_factory=dict[str, RunReply])
    undelivered: tuple[int, ...] = ()
    given: tuple[tuple[int, tuple[str, ...]], ...] = ()
    rounds: dict[str, dict[str, int]] = Field(default_factory=dict[str, dict[str, int]])


class Costs(Part):
    """What a task has cost: a part of its state.

    Attributes:
        turns: Number of model calls; an undo restores it, and the next.
        usage: Cost that counts for the budget.
        spent: Cost of all model calls and child tasks, also of the ones that an undo or a new start
            has taken back, except for tasks in `children`.
        max_dollars: The task's own budget in money, once a person has raised it.
        past_day: What the task may cost in all past its tenant's day, once a person has said so.
        raised: By how much people have raised the budget in child tasks that were dropped.
        lost: The most that lost calls can have cost, those of dropped child tasks included.
    """

    turns: int = 0
    usage: Usage = Usage()
    spent: Usage = Usage()
    max_dollars: Dollars | None = None
    past_day: Dollars = NOTHING
    raised: Dollars = NOTHING
    lost: Dollars = NOTHING


class Recorded(Value):
    """The entries of a task: a part of its state.

    Attributes:
        segment: Newest archived segment of the ledger; each names the one before it.
        ledger: Length and digest of the chain of all entries of the ledger.
        marks: Number of the last thing that happened.
        commands: The ids of the newest commands, packed: a repeated one is dropped.
        entries: Events that came while the ledger was being archived.
        lines: A line for each archived step, packed; see `holdfast.task.ledger.recording`.
        receipts: Receipts of the newest commands, oldest first.
    """

    segment: SegmentRef | None = None
    ledger: ChainRef = ChainRef()
    marks: int = 0
    commands: str = ""
    entries: tuple[Entry, ...] = ()
    lines: tuple[str, ...] = ()
    receipts: tuple[Receipt, ...] = ()


PARTS: Mapping[str, type[Value]] = {"delivery": Delivery, "costs": Costs, "log": Recorded}
"""Parts of `Carried`. On the wire their fields are among those of `Carried` itself, as they were
before there were parts: tasks of each version are read, and read this."""


class Carried(Part):
    """The task's state: what continue-as-new hands on, and what the archive keeps of a task.

    Attributes:
        log: Its entries, and what was archived of them.
        since: What changed in the queue since the newest record, the steps in progress counted as
            queued first; None for nothing.
        waits_since: How what waits next to the queue differs from what the step of that record
            found.
        opens: Steps in progress, by number.
        delivery: Who has got which output.
        done: Completed steps that others may name in `prev_steps`: the ones with an id that a
            worker gave, and the ones that queued steps name already.
        lasts: The last outputs of steps that ran next to others; to be joined.
        unclear_undos: Key of an effect, as in `undone_effects`, to what is known of an undo of it
            that may have taken effect: it is not called again unless a person decides so.
        undo_notes: Notes to the model on undos since the last step was begun, also after an undo
            that goes further back.
        last_step: The step that gave the task's answer, if another agent than the first ran it: a
            follow-up is for that agent.
        further: The follow-up that a request to run a step has queued, until the step is begun.
        inputs: The run's input, as far as guardrails have passed it: once, whatever is undone.
        outputs: The final output, likewise.
        costs: What the task has cost.
        path: (branch, ordinal of the first step of it) for the completed steps of the present
            branch, oldest first: with the ordinal, a branch names a step for good.
        standing: Decisions that hold for later calls, by the id of their approval, oldest first.
        to_session: Such decisions in transit to the task's session, oldest first.
        children: Id to state of each child task. A finished one is dropped once its step is
            archived: the record of the step names it.
        settled: Number of child tasks that were dropped from `children`.
        said: Number of the newest order sent to any of them.
        published: Status that lists show; with the ids of the approvals in the memo, the number of
            all that are open, and the number of decisions for later calls.
        noticed: The open approvals that people were notified of.
        paused_by_run: Whether a streamed run that was to stop after its turn has paused the task:
            running its state resumes it. What a person has paused, a person resumes.
        paused_after: Number of a mark: while the task is paused, a step that began after it goes no
            further; 0 when steps in progress must be finished.
        paused_until: Time at which a pause ends; 0 for never.
        held: Who paused the parent task, and why, else empty.
        heard: Number of the newest order of this task's own parent.
        undo_answer: Newest answer to an undo that the parent has ordered.
        verdict: The failure with which the task is to end.
        closing: The end that was accepted, if any.
        lanes: How many lanes of steps may have kept an answer in the archive.
        tries_again: Whether the parent has ordered a retry of the failed step; the next failure
            resets it.
        long_calls: The calls in progress with which the task may continue as new.
        answer: The task's answer, once the step that gave it is archived.
        changed: Settings of the run that were given since the task began; None for none.
        ahead: The tasks of the session that it waits for, in their order.
    """

    created: float = 0.0
    described: Described | None = None
    queue: tuple[TaskStep, ...] = ()
    since: QueueChange | None = None
    waits_since: WaitingChange = WaitingChange()
    extra_state: dict[str, Json] = Field(default_factory=dict)
    transcript: ChainRef = ChainRef()
    steps: int = 0
    costs: Costs = Field(default_factory=Costs)
    log: Recorded = Recorded()
    opens: tuple[OpenState, ...] = ()
    automatic: bool = False
    paused: str = ""
    paused_by_run: bool = False
    paused_after: int = 0
    paused_until: float = 0.0
    answered: bool = False
    concluded: bool = False
    failure: Failure | None = None
    delivery: Delivery = Field(default_factory=Delivery)
    published: str = "running"
    published_approvals: tuple[str, ...] = ()
    published_count: int = 0
    published_rules: int = 0
    noticed: tuple[str, ...] = ()
    serial: int = 0
    branch: int = 0
    approvals: tuple[Approval, ...] = ()
    approval_serial: int = 0
    notes: tuple[Message, ...] = ()
    followups: tuple[str, ...] = ()
    undo: UndoState | None = None
    undone_effects: tuple[str, ...] = ()
    unclear_undos: dict[str, str] = Field(default_factory=dict[str, str])
    residue: tuple[str, ...] = ()
    fork: ForkOf | None = None
    done: dict[str, InputRef] = Field(default_factory=dict[str, InputRef])
    lasts: tuple[LastOutput, ...] = ()
    undo_notes: tuple[Message, ...] = ()
    last_step: TaskStep | None = None
    further: FollowUp = FollowUp()
    inputs: Guarded = Guarded()
    outputs: Guarded = Guarded()
    path: tuple[tuple[int, int], ...] = ()
    standing: dict[str, StandingRule] = Field(default_factory=dict[str, StandingRule])
    to_session: tuple[StandingRule, ...] = ()
    children: dict[str, ChildState] = Field(default_factory=dict[str, ChildState])
    settled: int = 0
    said: int = 0
    held: str = ""
    heard: int = 0
    undo_answer: UndoAnswer | None = None
    verdict: Failure | None = None
    closing: Closing | None = None
    tries_again: bool = False
    lanes: int = 0
    long_calls: tuple[LongCall, ...] = ()
    answer: Json = None
    changed: RunChange | None = None
    ahead: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _grouped(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        data = dict(cast("dict[str, object]", given))
        for name, kind in PARTS.items():
            data.setdefault(name, {key: data.pop(key) for key in kind.model_fields if key in data})
        return data

    @model_serializer(mode="wrap")
    def _flat(self, write: SerializerFunctionWrapHandler) -> dict[str, Json]:
        data: dict[str, Json] = write(self)
        for name in PARTS:
            data |= data.pop(name, {})
        return data


class TaskRecord(Value):
    """A closed task in the archive, under its id.

    Attributes:
        task: The task.
        head: Agent, session and rules.
        segment: Newest segment of the ledger; each names the one before it.
        failure: The verdict that ended it, if any.
        output: Output of the last step.
        stored: Where the archive keeps that output, when it is large.
        transcript: Length and digest of the transcript.
        opens: The steps that were open when the task ended, if it did not end well.
        ledger: Length and digest of the chain of the ledger's entries.
        ended: When it began to close, seconds since the epoch.
        app: Its app; empty in records of before.
        turn: What the task's session has got of it; None for nothing.
        prepared: Whether the task's end was not in its history yet when this was written. Such a
            record counts only together with the seal that the end leaves there, see
            `holdfast.reading.reader`.
        signature: Signature of all the rest by the key of the worker process, if it has one.
    """

    task: Json
    head: TaskHead
    segment: SegmentRef | None = None
    failure: Failure | None = None
    output: Json = None
    stored: Blob | None = None
    transcript: ChainRef = ChainRef()
    opens: tuple[OpenState, ...] = ()
    ledger: ChainRef = ChainRef()
    ended: float = 0.0
    app: str = ""
    turn: CommitRef | None = None
    prepared: bool = False
    signature: str = ""


COMMIT = "commit"
"""Name of the signal that brings a session a turn."""

RULE = "rule"
"""Name of the signal that brings a session a decision for later calls in its tasks."""

REVOKE = "revoke"
"""Name of the signal that ends such a decision; its argument is the rule, with who has ended it."""


CLAIM = "claim"
"""Name of the signal by which a task gets in line in its session, or leaves the line."""

TURN = "turn"
"""Name of the signal that tells a task that its turn in the session may have come."""


class Claim(Value):
    """A change of the line of a session, or news for a task of it.

    Attributes:
        task: The task that gets in line, once; empty for none.
        if_free: Whether it does so only if no task is in line.
        gone: Tasks that have left the line: they have ended.
        callers: As of its head.
        beat: How often its client, which has not created it yet, has said so again.
    """

    task: str = ""
    if_free: bool = False
    gone: tuple[str, ...] = ()
    callers: tuple[tuple[str, str], ...] = ()
    beat: int = 0


class CommitRef(Value):
    """One turn of a session.

    Attributes:
        task: Task that committed it.
        sha256: Digest in the archive of the list of messages; empty for a reset.
        count: Number of messages.
        replaces: Number of turns in force that it takes the place of.
        after: Number of commits that its sender had seen, when it replaces turns: it is dropped if
            there are others by now.
        erases: Task whose turn it takes the place of, whatever came after: that was erased.
    """

    task: str
    sha256: str = ""
    count: int = 0
    replaces: int = Field(default=0, ge=0)
    after: int = 0
    erases: str = ""


class SessionState(Value):
    """What a session's continue-as-new hands on.

    Attributes:
        commits: The newest turns, oldest first; a reset is one of them.
        older: Digests in the archive of full lists of commits, before `commits`.
        base: Number of commits in `older`.
        digest: Digest of the chain of all commits.
        recent: Ids of the tasks that committed last, so that a repeated commit is dropped.
        roll_events: History length at which the session continues as new.
        index_size: Number of commits in a full list.
        unused: Seconds without a signal after which the session rests in the archive; 0 for never.
        rules: The newest decisions for later calls in its tasks, oldest first, also ended ones.
        line: Tasks in the order in which they came: the first has the floor, the others wait.
        claims: Id to the newest claim of those whose claims say more than that.
    """

    commits: tuple[CommitRef, ...] = ()
    older: tuple[str, ...] = ()
    base: int = 0
    digest: str = ""
    recent: tuple[str, ...] = ()
    roll_events: int = 2000
    index_size: int = Field(default=500, ge=1)
    unused: float = Field(default=86_400.0, ge=0)
    rules: tuple[StandingRule, ...] = ()
    line: tuple[str, ...] = ()
    claims: dict[str, Claim] = Field(default_factory=dict[str, Claim])


TaskInput.model_rebuild()
Carried.model_rebuild()
TaskRecord.model_rebuild()
