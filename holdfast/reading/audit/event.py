"""The event of the audit: one thing that happened in a task."""

from __future__ import annotations

from pydantic import Field

from holdfast.values.base import Json, Value
from holdfast.values.money import Dollars


class AuditEvent(Value):
    """One thing that happened.

    Attributes:
        time: Seconds since the epoch; of a call, the time at which it ended.
        kind: "created", "step", "model_call", "tool_call", "hosted_call" (a tool
            that the provider ran inside a model call), "memo", "asked", "command",
            "refused", "standing", "expired", "probed", "guardrail", "failed", "restarted", "limit",
            "undone", "effect_undone", "undo_failed", "undo_unknown", "forked", "withdrawn",
            "vote" (one of several needed approvals), "escalated", "closed".
        actor: Who caused it: a person's name, "model", "task".
        verb: What a person asked for: the name of a signal, as "approve", or "undo".
        reason: Why, in words.
        step: Id of the step.
        branch: Branch of the ledger.
        tool: Tool name, or name of a memo.
        call_id: The model's id of the call.
        effect: Kind of the effect of the tool: "read", "irreversible", ...
        arguments: The arguments as they ran, JSON text; of a person's verb, what it said.
        proposed: The arguments as the model gave them, when a person changed them.
        approval: Id of the approval that the event is about.
        decision: What was decided: "approved", "rejected", "responded", "expired".
        approver: Who decided.
        answered_by: Where the result comes from: "tool", "provider" (its own tool), "task" (the
            call was not made, or no one knows), the name of the person who gave it, or the id of
            the task that the call was.
        result: The result, cut to 2,000 characters; longer ones are in the archive.
        status: How it ended. Of a step: "done", "last", "open" while it is in progress, "undone" or
            "restarted" when it was left before its end. Of a tool call: "done", "failed",
            "unknown" when it may have taken effect, "cut off" of the task of an agent that was left
            before its answer, "pending", or "not run" when it never began. Of a model call
            also "cut off": it may have been under way, and what it cost is not known.
        undo: Of a tool call whose step was left: "undone" when its effect was taken back, "remains"
            when it has, or may have, an effect that remains.
        undone_by: Who had it taken back.
        started: When it began; 0 when it is not known.
        ended: When it ended, likewise. Of calls, both are by the clock of their worker.
        attempts: How often it was started.
        worker: Identity of the worker that did it.
        tokens: Input and output tokens.
        cost: US dollars that the model calls cost, by the prices at that time; None when that is
            not known.
        digest: Digest of the transcript after a step.
        body: More facts.
    """

    time: float
    kind: str
    actor: str = "task"
    verb: str = ""
    reason: str = ""
    step: str = ""
    branch: int = 0
    tool: str = ""
    call_id: str = ""
    effect: str = ""
    arguments: str = ""
    proposed: str = ""
    approval: str = ""
    decision: str = ""
    approver: str = ""
    answered_by: str = ""
    result: str = ""
    status: str = ""
    undo: str = ""
    undone_by: str = ""
    started: float = 0.0
    ended: float = 0.0
    attempts: int = 0
    worker: str = ""
    tokens: int = 0
    cost: Dollars | None = None
    digest: str = ""
    body: dict[str, Json] = Field(default_factory=dict)
