"""A tool call as data: its approvals, its begin, its outcome, and the report of a long call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from holdfast.models.openai.hosted_items import approval_answer
from holdfast.models.openai.local_items import result_stub
from holdfast.task.data.failures import Failure
from holdfast.task.data.guard_rules import ToolGuarded
from holdfast.values.base import Json, Value, canonical, digest
from holdfast.values.code.typed_data import Returned
from holdfast.values.messages import Artifact, Blob, CallKind, Content, Message, ToolCall, Usage
from holdfast.values.parts.sources import SourceNode
from holdfast.values.runs.approval_rules import ApprovalRule
from holdfast.values.text.shown import time_shown

ApprovalKind = Literal["tool", "unknown", "limit", "undo", "question", "unread"]

LONG_CALL = "long_call"
"""Signal by which an activity reports to its task that its tool runs for long."""

SECRET = "long_call_secret"  # noqa: S105  the name of a query
"""Query that gives the secret which that signal must carry."""

AWAITED = "long_calls"
"""Query that lists the ids of the long calls whose outcome the task awaits."""


class Question(Value):
    """Something that a tool wants to know of a person before its call can be completed.

    Attributes:
        key: Name of the question within the call.
        message: What is asked.
        fields: JSON Schema of the answer, an object; empty when only consent is asked for.
        url: A page on which the person does something first; empty for none.
    """

    key: str
    message: str
    fields: dict[str, Json] = Field(default_factory=dict[str, Json])
    url: str = ""


class Asks(Value):
    """The questions with which an attempt of a call ended.

    Attributes:
        questions: The questions.
        state: What the tool wants back with the answers.
        repeats: Whether the call begins again with the answers: the attempt went on without them.
    """

    questions: tuple[Question, ...]
    state: str = ""
    repeats: bool = False


class Wait(Value):
    """What a call waits for that goes on outside of its task, after its tool has ended.

    Attributes:
        waits: "sleep": its time alone ends it. "event": an event of this name. "answer": anyone who
            has its token.
        until: Time at which it is over, seconds since the epoch; 0 for never.
        note: What it is about; of an event, its name.
        since: When it began, likewise; 0 where that is not told.
    """

    waits: Literal["sleep", "event", "answer"]
    until: float = 0.0
    note: str = ""
    since: float = 0.0

    @property
    def said(self) -> str:
        """What is waited for and until when, in words."""
        what = {"sleep": "sleeps", "event": "waits for event", "answer": "waits for its outcome"}
        until = f" until {time_shown(self.until)}" if self.until else ""
        if self.waits == "event":
            since = f" since {time_shown(self.since)}" if self.since else ""
            return f"{what['event']} {self.note!r}{since}{until}"
        return f"{what[self.waits]}{until}{self.note and f', {self.note}'}"


class Vote(Value):
    """One person's consent to a call that needs that of several.

    Attributes:
        by: Who.
        at: When, seconds since the epoch.
        note: Comment.
    """

    by: str
    at: float = 0.0
    note: str = ""


Stage = Literal["asked", "escalated", "returned"]


class Approval(Value):
    """Something that waits for a person, or was decided by one for the step in progress.

    Attributes:
        id: `<task id>:<serial>`: enough to decide it from any process.
        kind: A call to approve, one that may have happened, a used-up budget, an undo, a question.
            "unread" says in lists how many of a task cannot be read now.
        agent: The agent that asks; of a nested task, its own.
        tool: Tool name, after that of its namespace if it has one.
        namespace: Namespace by which the model called it; empty for none.
        call_kind: Type of the call's item, if it is not a function call: see ToolCall.
        server: Label of the provider's MCP server that runs the call once approved, or empty.
        effect: Side effect of the tool; empty when there is no call.
        call_id: The model's id of the call.
        arguments: The proposed arguments, JSON text.
        digest: Digest of the proposed call: a decision is for these arguments only.
        n: Ordinal of the step.
        i: Position of the call among the step's open calls.
        branch: Branch of the ledger on which it was asked.
        asked: Time, seconds since the epoch.
        expires: Time at which it expires to rejected, or a tenant's next day begins; 0 for never.
        text: Why a person must decide, for the reviewer.
        status: "checking" while edited arguments are validated.
        by: Who decided.
        at: When.
        note: Comment of the reviewer.
        message: Text of a rejection for the model, word for word; empty for the usual text.
        effective: Edited arguments, JSON text; empty when they were not edited.
        who: People and roles that may decide, as "role:finance"; empty for anybody.
        quorum: How many distinct people must approve.
        not_asker: Whether the person who created the task may not decide.
        asker: That person, as far as the task records it.
        votes: Who has approved so far, when more than one must.
        agreed: The edited arguments that these have approved; empty for the proposed ones.
        bound: Digest of the call that votes are for, once its arguments were edited; else empty.
        escalates: Time at which `escalate_to` may decide as well; 0 for never.
        escalate_to: People and roles that may decide from then on.
        escalated: When that happened; 0 when it has not.
        snoozed_until: Time before which lists over all tasks leave it out; 0 for none.
        snoozed_by: Who has asked for that.
        returned: When it came back after that; 0 when it has not.
        asks: The questions, of kind "question".
        after: What the attempt came to that went on without answers.
        answers: Key of a question to its answer: `action`, and `content` if it was accepted.
        defaults: What runs as well: place of each argument that the call leaves out, as
            "to.city", to the value that the tool fills in.
        rule: By which it was asked, when the tool's predicate said so.
    """

    id: str
    kind: ApprovalKind = "tool"
    agent: str = ""
    tool: str = ""
    namespace: str = ""
    server: str = ""
    call_kind: CallKind = ""
    effect: str = ""
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
    message: str = ""
    effective: str = ""
    who: tuple[str, ...] = ()
    quorum: int = 1
    not_asker: bool = False
    asker: str = ""
    votes: tuple[Vote, ...] = ()
    agreed: str = ""
    bound: str = ""
    escalates: float = 0.0
    escalate_to: tuple[str, ...] = ()
    escalated: float = 0.0
    snoozed_until: float = 0.0
    snoozed_by: str = ""
    returned: float = 0.0
    asks: Asks | None = None
    after: Content = ""
    answers: dict[str, Json] = Field(default_factory=dict[str, Json])
    defaults: dict[str, Json] = Field(default_factory=dict[str, Json])
    rule: ApprovalRule | None = None

    @property
    def is_as_it_stands(self) -> bool:
        """Whether it can only be approved as proposed, or rejected: the provider runs the call."""
        return bool(self.server)

    @property
    def is_of_day(self) -> bool:
        """Whether it is about a tenant's day: it ends when the next one begins."""
        return self.kind == "limit" and self.expires > 0

    @property
    def stage(self) -> Stage:
        """What has happened to it last."""
        if self.returned > self.escalated:
            return "returned"
        return "escalated" if self.escalated else "asked"

    @property
    def stage_began(self) -> float:
        """When that was."""
        return max(self.returned, self.escalated) or self.asked

    @property
    def about(self) -> dict[str, str]:
        """Who decides it, and how far that is, in words; what there is nothing of is left out."""
        until = f"until {time_shown(self.snoozed_until)} by {self.snoozed_by}"
        found = {"decides": self.who_decides, "approved": self.progress}
        found |= {"snoozed": until} if self.snoozed_until else {}
        return {name: text for name, text in found.items() if text}

    @property
    def may_decide(self) -> tuple[str, ...]:
        """People and roles that may decide now; empty for anybody."""
        return (*self.who, *self.escalate_to) if self.escalated else self.who

    @property
    def who_decides(self) -> str:
        """Who may decide, in words; empty when anybody may."""
        names = ", ".join(self.may_decide)
        if not self.not_asker:
            return names
        asker = f"{self.asker}, who" if self.asker else "who"
        return f"{names or 'anybody'}, but not {asker} created the task"

    @property
    def as_agreed(self) -> str:
        """The arguments with which the call would run now, and which votes are for."""
        return self.agreed or self.arguments

    @property
    def what(self) -> str:
        """What it is about: the call as it would run now; without a tool, its text."""
        return f"{self.tool} {self.agreed or self.arguments}".strip() if self.tool else self.text

    @property
    def line(self) -> str:
        """All of it in a line: its id, its kind, what it is about, and why a person must decide."""
        about = f"{self.tool} {self.agreed or self.arguments}".strip()
        why = f": {self.text}" if self.text else ""
        return f"{self.id} {self.kind} {about}{why}" if self.tool else f"{self.id} {self.kind}{why}"

    @property
    def filled_in(self) -> list[str]:
        """What the tool fills in for arguments that are left out, a line each."""
        return [f"{at}: {canonical(each).decode()} (default)" for at, each in self.defaults.items()]

    @property
    def progress(self) -> str:
        """How many of the needed people have approved, and who: "1 of 2: anna"; else empty."""
        if self.quorum == 1:
            return ""
        names = ", ".join(vote.by for vote in self.votes)
        return f"{len(self.votes)} of {self.quorum}{f': {names}' if names else ''}"


def asked_for(kind: str, tool: str) -> str:
    """Return what a person is asked for, in a few words.

    Args:
        kind: Kind of the approval.
        tool: Its tool.
    """
    words = {
        "unknown": f"word on whether {tool} happened",
        "limit": "a decision on its budget",
        "undo": f"approval to undo {tool}" if tool else "approval of an undo",
        "question": f"an answer to {tool}",
        "unread": "approvals that cannot be read here",
    }
    return words.get(kind, f"approval of {tool}")


class StandingRule(Value):
    """A decision on a tool call that holds for later calls of the tool as well.

    Attributes:
        verb: What was decided.
        by: Who decided.
        message: Text of a rejection for the model, word for word; empty for the usual text.
        note: Comment of the reviewer.
        branch: Branch of the ledger on which it holds.
        roles: Roles of the person who decided.
        id: Id of the approval with which it was given.
        tool: Name of the tool.
        server: Server of the provider that has it; empty for a tool of the agent.
        values: Argument name to the value that a call must have; empty for all calls.
        until: Time until which it holds, seconds since the epoch; 0 for no end.
        session: Name of the session in whose tasks it holds; empty for the task alone.
        agent: Agent whose calls it holds for.
        revoked: Who has ended it, for a rule of a session, which remembers that; else empty.
        revoked_at: When.
    """

    verb: Literal["approve", "reject"]
    by: str
    message: str = ""
    note: str = ""
    branch: int = 0
    roles: tuple[str, ...] = ()
    id: str = ""
    tool: str = ""
    server: str = ""
    values: dict[str, Json] = Field(default_factory=dict[str, Json])
    until: float = 0.0
    session: str = ""
    agent: str = ""
    revoked: str = ""
    revoked_at: float = 0.0

    def stands(self, now: float) -> bool:
        """Whether it was not ended, by a person or by its time, seconds since the epoch."""
        return not self.revoked and not (self.until and now >= self.until)


class Decided(Value):
    """What a person, or the clock, decided about a tool call.

    Attributes:
        approval: Id of the approval.
        kind: Kind of the approval.
        status: What was decided: "approved", "rejected", "responded" or "expired".
        by: Who decided; empty for the clock.
        at: When, seconds since the epoch.
        note: Comment of the reviewer.
        rule: As of the approval.
    """

    approval: str
    kind: ApprovalKind = "tool"
    status: str = ""
    by: str = ""
    at: float = 0.0
    note: str = ""
    rule: ApprovalRule | None = None


SHORTEST = 0.001
"""Least seconds of a call that was run; 0 means that it was not."""
NEAR_SECONDS = 0.01
"""Precision of `Outcome.ended` where a call was run at once, in the activity of its step."""


class Outcome(Value):
    """Outcome of one tool call.

    Attributes:
        content: What the model reads; text, or where the archive keeps it.
        is_error: Whether the content reports a failure.
        patch: Change of the task's extra_state, a merge patch.
        status: "unknown" when the worker was lost inside the call.
        attempts: How often the call was started.
        edited: The arguments with which it ran, when a person changed them.
        worker: Identity of the worker that ran it.
        nodes: Sources of the result, or where the archive keeps them.
        guards: What its guardrails found, in the order in which they ran.
        failure: Why the step stops after it, although it is known: a tripped guardrail, a hook.
        child: For a call of an agent as a tool: id of its child task.
        usage: Cost of that task.
        effect: Side effect of the tool, as the task knows it.
        decided: What was decided about the call, oldest first.
        ended: When it ended by the clock of its worker, seconds since the epoch; 0 for none. Of a
            call whose worker was lost: when a probe or a person told what became of it.
        took: Seconds that its last attempt took; 0 for a call that was not run.
        at: In the record of a step: position in its `adds` of the message that has the content.
        asks: Questions, or a wait, with which the attempt ended; the call then has no outcome yet.
        returned: What the tool returned, if that may end the run and is not text.
        artifacts: Files that the tool has kept, oldest first, whether it failed afterwards or not.
    """

    content: Content = ""
    is_error: bool = False
    patch: dict[str, Json] = Field(default_factory=dict)
    status: Literal["done", "failed", "unknown"] = "done"
    attempts: int = 1
    edited: str = ""
    worker: str = ""
    nodes: tuple[SourceNode, ...] | Blob = ()
    guards: tuple[ToolGuarded, ...] = ()
    failure: Failure | None = None
    child: str = ""
    usage: Usage = Usage()
    effect: str = ""
    decided: tuple[Decided, ...] = ()
    ended: float = 0.0
    took: float = 0.0
    at: int | None = None
    asks: Asks | Wait | None = None
    returned: Returned | None = None
    artifacts: tuple[Artifact, ...] = ()

    @property
    def is_stopped(self) -> bool:
        """Whether the call was not made, and the model gets no message for it."""
        return self.failure is not None and self.attempts == 0

    def without_end(self, answered: float) -> Outcome:
        """Leave out when it ended if it was begun at once after the answer, given its time."""
        is_near = abs(self.ended - answered - self.took) <= NEAR_SECONDS
        return self.model_copy(update={"ended": 0.0}) if self.took and is_near else self

    def with_end(self, answered: float) -> Outcome:
        """Return the outcome with what `without_end` has left out."""
        if self.ended or not self.took:
            return self
        return self.model_copy(update={"ended": round(answered + self.took, 3)})

    def message(self, call: ToolCall) -> Message:
        """Return the message by which the model gets the result.

        The result of a call of a provider's MCP server is the decision on it.
        """
        if call.server:
            text = self.content if isinstance(self.content, str) else ""
            return approval_answer(call, text, approve=not self.is_error)
        return Message(
            role="tool",
            call_id=call.id,
            content=self.content,
            is_error=self.is_error,
            items=(result_stub(call),) if call.kind else (),
        )


def not_run(calls: Iterable[ToolCall], reason: str) -> tuple[Message, ...]:
    """Answer calls that were not run, for a reason that the model reads."""
    return tuple(Outcome(content=reason, is_error=True).message(call) for call in calls)


class Begun(Value):
    """Results of guardrails and hooks of a call of an agent as a tool, before its child task began.

    Attributes:
        guards: What its guardrails found, in the order in which they ran.
        patch: What they and hooks made of the state that the call sees, a merge patch.
    """

    guards: tuple[ToolGuarded, ...] = ()
    patch: dict[str, Json] = Field(default_factory=dict)


class Called(Value):
    """An open call that was begun, as long as it has no outcome.

    Attributes:
        at: When it was begun, seconds since the epoch.
        ended: When it failed; 0 when it has not.
        error: How it failed, when that is certain to hide no effect; it may be begun again.
        edited: The arguments with which it runs, when a person changed them.
        child: For a call of an agent as a tool: id of its child task.
        effect: Side effect of the tool, as the task knows it.
        decided: What was decided about the call before it was begun, oldest first.
        tried: Attempts that were begun in the activity of the step.
    """

    at: float
    ended: float = 0.0
    error: str = ""
    edited: str = ""
    child: str = ""
    effect: str = ""
    decided: tuple[Decided, ...] = ()
    tried: int = 0


class LongCall(Value):
    """One call of a tool, made in this run of the task or in an earlier one.

    Attributes:
        id: Made up by the worker process that runs the tool. In a later run of the task, the
            activity that stands for the call has this id.
        branch: The task's branch.
        n: Number of the step.
        i: Position of the call.
        tried: Attempts that were lost before this one.
        started: When this attempt began, seconds since the epoch.
        secret: Shows that an activity of the task has sent this; the task does not keep it.
    """

    id: str
    branch: int
    n: int
    i: int
    tried: int = 0
    started: float = 0.0
    secret: str = ""


def call_digest(call: ToolCall) -> str:
    """Digest that binds decisions on a call, and its activity, to its name and arguments.

    It is whole: a person could find two calls of one short digest, have one approved, and run the
    other.
    """
    return digest(canonical(call.wire()))
