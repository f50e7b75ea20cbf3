"""What crosses the boundaries: inputs and results of workflows, activities and queries.

Names are short because history keeps every byte of them, for every step of every task.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from holdfast.models.base import ModelAnswer
from holdfast.task.data.calls import Approval, Begun, Outcome, StandingRule
from holdfast.task.data.failures import Failure
from holdfast.task.data.guard_rules import GuardRule
from holdfast.task.data.head import SessionRef, TaskHead
from holdfast.task.data.records import (
    Entry,
    Handed,
    JournalEntry,
    OpenState,
    OpenStep,
    Seal,
    SegmentRef,
    StepResult,
)
from holdfast.task.data.state import CommitRef, TaskInput
from holdfast.values.base import ChainRef, Json, Value
from holdfast.values.messages import NOTHING, Blob, Content, Dollars, Message, ToolCall, Usage
from holdfast.values.runs.approval_rules import ApprovalRule
from holdfast.values.runs.status import TaskStatus
from holdfast.values.settings import ATTEMPTS
from holdfast.values.steps import Task

INLINE_BYTES = 16 * 1024
"""Texts above this size go to the archive; history holds a reference.

These are the texts of messages, the results of tools, and outputs. What a task must read to go on
stays in history whatever its size: arguments of calls, `step_state`, inputs of next steps, patches
of the state. Above 256 KB Temporal's external storage takes the whole value that holds them.
"""


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
            limit, "finish" make it without tools and take its answer as the last, "past" make it
            also past its tenant's day.
        tokens: Output tokens that are left for the call; 0 for no limit.
        branch: Branch of the ledger; part of the id of the step's span.
        stream: Whether a client follows the answer while it is made, though the rules of the run
            do not ask for streaming.
        tried: How often the activity was started before, by earlier requests to run the step.
        apart: Whether tools must not run in the activity: a guardrail may stop the step first.
        dollars: What is reserved for the model call; None without a budget in money.
        keeps: Whether money for a last answer must be left after the call.
        head: Digest of the task's head, cut to 16 digits, for the first step: the process that has
            described the agent just now need not ask for the head. Else as for `ToolInput`.
        attempts: Number of the attempt whose failed model call stops the step, without attempts
            that a rate limit ended.
        root: Of a call of an agent: the first task of all that it works for.
        lane: Number of the step among those in progress, from 0; of two at once each has its own.
        lost: An earlier activity of the step whose workers were all lost, as in `KeptAnswer`.
    """

    n: int
    at: ChainRef = ChainRef()
    journal: ChainRef = ChainRef()
    open: OpenStep | None = None
    digest: str = ""
    limit: Literal["", "stop", "finish", "past"] = ""
    tokens: int = 0
    branch: int = 0
    stream: bool = False
    tried: int = 0
    apart: bool = False
    dollars: Dollars | None = None
    keeps: bool = False
    head: str = ""
    attempts: int = ATTEMPTS
    root: str = ""
    lane: int = 0
    lost: str = ""


class UsedDay(Value):
    """A tenant's day that is used up: a model call was not made.

    Attributes:
        what: What is used up, for a person.
        ends: When the next day begins, seconds since the epoch.
        of_dollars: Whether it is the money; else the tokens.
    """

    what: str
    ends: float
    of_dollars: bool = False


class GuardInput(Value):
    """Input of the guard activity: constant size; what is checked is found by reference.

    Attributes:
        step: The step whose input or output is checked.
        rule: The guardrail.
        i: Its position among those of its agent, or of the run.
    """

    step: AdvanceInput
    rule: GuardRule
    i: int = 0


class NoticeInput(Value):
    """Input of the notify activity.

    Attributes:
        id: Identifies the message.
        approval: The approval that people are notified of.
    """

    id: str
    approval: Approval


class KeepInput(Value):
    """Input of the activity that brings a session a decision for later calls.

    Attributes:
        session: The session.
        rule: The decision.
    """

    session: SessionRef
    rule: StandingRule


class RecallInput(Value):
    """Input of the activity that asks a session for its decisions on a call.

    Attributes:
        session: Workflow id of the session.
        tool: Name of the tool.
        agent: Name of the agent that calls it.
    """

    session: str
    tool: str
    agent: str


class Probed(Value):
    """What a tool's probe found out about a call that may have happened.

    Attributes:
        happened: Whether it did.
        content: Its result, if so.
    """

    happened: bool = False
    content: Content = ""


_USUAL_RESULT = StepResult()
"""Shared: pydantic copies a default that cannot be hashed each time that it reads a value."""


class Advanced(Value):
    """Result of the activity `step`.

    Attributes:
        request: Digest of the model call that was made; left out when the step is over.
        answer: Its answer; None when no call was made.
        memos: What the AgentWorker had recorded, in order.
        early: How many of those came before the answer.
        result: The step's result, None when the step is not over. The default is the usual step.
        calls: Tool calls that the step waits for in its middle.
        told: Position of a call to its outcome, when the tool was not on offer, so that it is not
            run, or when it was run in this activity; then its worker is left out when it is the
            one of this result, and its end as `Outcome.without_end` does.
        cut: Positions of calls that were begun in this activity, or in a lost attempt of it, and
            must be run again.
        going: Positions of calls that were begun in this activity and go on by themselves, until
            activities of their own take them over.
        stopped: Position of a call that was run in this activity to why the step stops after it.
        asked: Digest of that request for tools.
        patch: Change of extra_state made before those calls.
        limit: The step wants a model call that the limit forbids.
        used_day: The tenant's day that is used up, if that is the limit.
        unbegun: The step did not begin, because the task was stopped before.
        needs: What that call can cost at most, if the money reserved for it was too little.
        lost: The most that an earlier attempt of the call can have cost, whose worker was lost.
        unruled: Whether the task's session had no decision for later calls when the calls became
            known, so that it need not be asked for those of each.
        failure: Why the step stopped after its model call. The answer is recorded all the same: it
            is paid for.
        attempts: How often the activity was started.
        worker: Identity of the worker.
        kept: Whether the activity has kept its answer in the archive.
    """

    request: str = ""
    answer: ModelAnswer | None = None
    memos: tuple[JournalEntry, ...] = ()
    early: int = 0
    result: StepResult | None = Field(default_factory=lambda: _USUAL_RESULT)
    calls: tuple[ToolCall, ...] = ()
    told: dict[int, Outcome] = Field(default_factory=dict[int, Outcome])
    cut: tuple[int, ...] = ()
    going: tuple[int, ...] = ()
    stopped: dict[int, Failure] = Field(default_factory=dict[int, Failure])
    asked: str = ""
    patch: dict[str, Json] = Field(default_factory=dict)
    limit: bool = False
    used_day: UsedDay | None = None
    unbegun: bool = False
    needs: Dollars | None = None
    lost: Dollars = NOTHING
    unruled: bool = False
    failure: Failure | None = None
    attempts: int = 1
    worker: str = ""
    kept: bool = False

    @property
    def outcomes(self) -> dict[int, Outcome]:
        """The outcomes of `told`, with the ends that were left out."""
        answered = self.answer.at if self.answer is not None else 0.0
        return {i: each.with_end(answered) for i, each in self.told.items()}


NOTHING_DONE = Advanced(result=None)
"""The step wants nothing, and is not over either."""


class EffectMark(Value):
    """The mark in the archive of a call that must not be repeated.

    Attributes:
        task: The task.
        what: Tool, or undo of a tool, with its arguments.
        activity: Id of the activity in its run.
        scheduled: When it was scheduled by the server's clock, seconds since the epoch.
        started: When it was handed to a worker, by the same clock.
        begun: When the call began, by the clock of its worker.
        worker: Identity of that worker.
        ended: When its outcome was known; 0 before.
        status: That outcome: "done", "failed".
        asks: Whether `activity` has called nothing, but is to ask a person about the call that the
            mark before this one tells of.
    """

    task: str
    what: str
    activity: str
    scheduled: float
    started: float
    begun: float
    worker: str
    ended: float = 0.0
    status: str = ""
    asks: bool = False


class ErasedTurn(Value):
    """A turn that is erased.

    Attributes:
        task: Task that has committed it.
        session: Workflow id of its session.
        queue: Queue of the session.
    """

    task: str
    session: str
    queue: str


Kind = Literal["task", "session", "person"]
"""What can be erased, or held."""


class Erasure(Value):
    """An erasure that a person, or a rule of retention, asks for.

    Attributes:
        task: What they have named: a task's id, a session's workflow id (with keys its code), or
            the code of a person. Codes tell no name.
        kind: Which of these it is.
        tasks: All tasks that are erased: child tasks too, and forks if these were named as well.
        sessions: Workflow ids of the sessions that are erased as a whole; codes of them in a
            certificate whose `task` is a code.
        records: Digests of the records of the tasks.
        turns: Turns of the tasks in sessions that stay.
        mailboxes: Workflow ids of the mailboxes whose events the tasks have waited for.
        unread: Tasks that may belong to it or not, as their records are
            damaged.
        abandoned: Tasks that were open, and were ended for it.
        held_by: What holds of it would be for.
        by: Who has asked.
        reason: Why.
        asked: When, seconds since the epoch.
        queue: Queue of the workers that erase.
    """

    task: str
    kind: Kind = "task"
    tasks: tuple[str, ...]
    sessions: tuple[str, ...] = ()
    records: dict[str, str] = Field(default_factory=dict)
    turns: tuple[ErasedTurn, ...] = ()
    mailboxes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    abandoned: tuple[str, ...] = ()
    held_by: tuple[str, ...] = ()
    by: str
    reason: str
    asked: float
    queue: str


class Retention(Value):
    """How long the tasks of an agent are kept once they are closed.

    Attributes:
        app: The app; a task whose record does not say its app is kept.
        agent: The agent that the tasks began with.
        days: For how many days.
        rate: Most tasks that are erased in a minute.
        by: Who has set it.
        batch: Most tasks of one run of the workflow.
        erased: How many the runs before have erased.
        after: End and id of the last task that they have looked at.
    """

    app: str
    agent: str
    days: float = Field(gt=0)
    rate: float = Field(default=60.0, gt=0)
    by: str
    batch: int = Field(default=500, ge=1)
    erased: int = 0
    after: tuple[float, str] = (0.0, "")


class KeptAnswer(Value):
    """What the activity of a step keeps in the archive before it runs calls.

    Attributes:
        activity: The activity, as `activity_key` names it.
        paid: What its result would be without those calls, if it has paid for an answer; with the
            digest of the request.
        runs: Position of a call that it may have begun to the call's digest.
        done: Position of a call to its outcome.
    """

    activity: str = ""
    paid: Advanced | None = None
    runs: dict[int, str] = Field(default_factory=dict[int, str])
    done: dict[int, Outcome] = Field(default_factory=dict[int, Outcome])


NOTHING_KEPT = KeptAnswer()
"""No attempt of the activity has begun a call."""


def activity_key(run: str | None, activity: str) -> str:
    """Name an activity among all of its task.

    Args:
        run: Run id of the workflow that scheduled it.
        activity: Its id there.
    """
    return f"{run}:{activity}"


class ToolInput(Value):
    """Input of the tool activity: the call itself is found by reference.

    Attributes:
        n: Ordinal of the step.
        i: Position of the call among the step's open calls.
        sha: Digest of the call.
        state: The task's extra_state, when it is small and not empty.
        big: Whether the state is too large to be sent: the activity asks the task for it.
        call: The call, when a person changed it, or it runs in the activity of its step.
        branch: Branch of the ledger; part of the idempotency key, like the next.
        batch: Number of batches of calls that the step has made before this one.
        step: Id of the step, when it is not "s" and its ordinal.
        agent: Agent that runs the step, when it is not the task's first one.
        child: Id of the child task, when a call of an agent as a tool must be ended.
        patch: What was made of the state before that task began, a merge patch.
        tried: Attempts that were lost before this activity was scheduled.
        answers: Key of a question of the call to the answer of a person.
        resume: What the tool wants back with the answers.
        head: Digest of the task's head, cut to 16 digits, if it has changed since the task began.
        rule: By which people were asked about the call, when the tool's predicate said so.
    """

    n: int
    i: int = 0
    sha: str = ""
    state: dict[str, Json] = Field(default_factory=dict)
    big: bool = False
    call: ToolCall | None = None
    branch: int = 0
    batch: int = 0
    step: str = ""
    agent: str = ""
    child: str = ""
    patch: dict[str, Json] = Field(default_factory=dict)
    tried: int = 0
    answers: dict[str, Json] = Field(default_factory=dict[str, Json])
    resume: str = ""
    head: str = ""
    rule: ApprovalRule | None = None


class ToolsInput(Value):
    """Input of the activity that looks for the tools of calls before any of them begins.

    Attributes:
        n: Ordinal of the step.
        calls: The calls.
        agent: Agent that made them, when it is not the task's first one.
        handoff: The call that hands the task over after them, if one does.
        head: As for `ToolInput`.
    """

    n: int
    calls: tuple[ToolInput, ...] = ()
    agent: str = ""
    handoff: ToolCall | None = None
    head: str = ""


class Nesting(Value):
    """Result of `nest`: the child task of a call of an agent as a tool, or the call's outcome.

    Attributes:
        task: What the child begins with; the workflow adds what only the parent task knows.
        outcome: The outcome of a call that begins no child: a guardrail stopped it, or its
            arguments do not fit.
        begun: What guardrails and hooks of the call did before its child begins.
    """

    task: TaskInput = TaskInput(head=TaskHead(agent=""))
    outcome: Outcome | None = None
    begun: Begun = Begun()


class HandleInput(Value):
    """Input of the activity that asks an error handler of the run.

    Attributes:
        step: The open step, as its own activity gets it.
        kind: Which handler.
        failure: The error.
    """

    step: AdvanceInput
    kind: str
    failure: Failure


class Handled(Value):
    """Result of an error handler.

    Attributes:
        declined: Whether it gave nothing.
        output: The final output, JSON data.
        stored: Where the archive keeps one too large for history.
        said: The message that joins the transcript, if any.
    """

    declined: bool = False
    output: Json = None
    stored: Blob | None = None
    said: Message | None = None


class TaskResult(Value):
    """Result of the task workflow, for people and for clients of any language.

    Attributes:
        status: How it closed.
        answer: Its answer: the output of the last step. One too large for history is named by its
            digest in the archive.
        seal: The digests of what was stored of it.
    """

    status: TaskStatus
    answer: Json = None
    seal: Seal = Seal()


class EntriesRequest(Value):
    """Asks for ledger entries that are not in the archive yet.

    Attributes:
        skip: Entries to skip, counted from the end of the last segment.
        opens: Whether to show the open steps as well.
        task: Whether to describe the task as well.
        hub: Name of the hub of a reader that wants unfinished answers as well.
    """

    skip: int = 0
    opens: bool = False
    task: bool = False
    hub: str = ""


class EntriesPage(Value):
    """A page of the ledger.

    Attributes:
        segment: Newest segment of the archived part, which comes before.
        entries: Entries, oldest first.
        more: Whether there are more.
        opens: The open steps.
        branch: The present branch.
        ledger: Length and digest of the chain of the whole ledger.
        number: Number of the last thing that happened, archived or not.
        task: The task, when it was asked for; of a long input, its beginning.
    """

    segment: SegmentRef | None = None
    entries: tuple[Entry, ...] = ()
    more: bool = False
    opens: tuple[OpenState, ...] = ()
    branch: int = 0
    ledger: ChainRef = ChainRef()
    number: int = 0
    task: Task | None = None


class CloseInput(Value):
    """Input of the closing activity.

    Attributes:
        status: Status that the task closes with.
        at: The transcript.
        commit: Whether the session gets this task's turn.
        failure: Verdict or reason that ended the task, if it is not finished.
        ledger: Length and digest of the ledger that must be stored.
        head: As for `ToolInput`.
        begun: When the workflow task began, in seconds since the epoch; only for `close_here`.
        lanes: How many lanes of the task may have kept an answer in the archive.
    """

    status: TaskStatus
    at: ChainRef = ChainRef()
    commit: bool = False
    failure: Failure | None = None
    ledger: ChainRef = ChainRef()
    head: str = ""
    begun: float = 0.0
    lanes: int = 0


class Closed(Value):
    """Result of the closing activity.

    Attributes:
        seal: The digests of what was stored of the task.
        turn: What its session is to get; None for nothing.
    """

    seal: Seal
    turn: CommitRef | None = None


class ViewRequest(Value):
    """Query of an activity for the parts of the task that it does not have.

    Attributes:
        n: The open step.
        have: Messages of the transcript that it holds.
        upto: Messages that it needs.
        head: Whether it needs the task's head.
        open: Whether it needs the open step.
        journal: Journal entries that it holds.
        calls: Whether it needs the open calls.
        output: Whether it needs the step's output.
        state: Whether it needs the state that the open calls see, and not the calls.
        failure: Whether it needs the failure with which the task waits.
    """

    n: int = 0
    have: int = 0
    upto: int = 0
    head: bool = False
    open: bool = False
    journal: int = -1
    calls: bool = False
    output: bool = False
    state: bool = False
    failure: bool = False


class View(Value):
    """Answer to a ViewRequest; lists are pages, ask again for the rest.

    Attributes:
        head: The task's head.
        messages: Messages of the transcript.
        segment: Newest archived segment of the ledger, when messages are asked for that are
            archived.
        base: Number of messages of the present branch that are there.
        open: The open step.
        journal: Its answered calls.
        calls: Its open calls.
        state: The extra_state that those see, or that the step leaves.
        output: The step's output.
        usage: Cost of the task so far.
        failure: The failure with which the task waits, if any.
    """

    head: TaskHead | None = None
    messages: tuple[Message, ...] = ()
    segment: SegmentRef | None = None
    base: int = 0
    open: OpenStep | None = None
    journal: tuple[JournalEntry, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    state: dict[str, Json] = Field(default_factory=dict)
    output: Handed | None = None
    usage: Usage = Usage()
    failure: Failure | None = None
