"""What the workflow must know of a tool to run it safely, and nothing that is heavy to import."""

from __future__ import annotations

from typing import Literal

from holdfast.values.base import Value

ToolEffect = Literal["read", "reversible", "irreversible"]
"""What a tool does to the world."""

TimeoutBehavior = Literal["error_as_result", "raise_exception"]
"""What follows a call that ran too long: the model is told, or ToolTimeoutError ends the task."""

DEFAULT_MAX_OUTPUT_BYTES = 1_048_576


class ToolPolicy(Value):
    """The rules for running one tool; those of a plain `@tool` serialise to `{}`.

    Attributes:
        effect: What a call does to the world.
        idempotent: Whether two calls with one idempotency key act once.
        has_undo: Whether a done call can be undone.
        has_probe: Whether the world can be asked if a call happened.
        needs_approval: Whether a person decides first; "ask" asks the tool's predicate.
        timeout_seconds: Longest time of one attempt; 0 is no limit.
        timeout_behavior: What follows a call that ran too long.
        max_attempts: Attempts for the errors that the tool declares worth repeating.
        return_direct: Whether the result is the answer of the task.
        max_output_bytes: Longest result, in UTF-8 bytes.
        approval_seconds: Seconds after which an approval expires to rejected; 0 for never.
        undo_needs_approval: Whether a person decides before a call is undone.
        undo_idempotent: Whether undoing one call twice acts once.
        is_conditional: Whether a predicate decides for each turn if it is offered.
        guarded: Whether guardrails see a call before it is run.
        agent: For an agent as a tool: its name; a call is a task of that agent.
        handoff: For a handoff: name of the agent that goes on with the task.
    """

    effect: ToolEffect = "irreversible"
    idempotent: bool = False
    has_undo: bool = False
    has_probe: bool = False
    needs_approval: Literal["no", "yes", "ask"] = "no"
    timeout_seconds: float = 0
    timeout_behavior: TimeoutBehavior = "error_as_result"
    max_attempts: int = 1
    return_direct: bool = False
    max_output_bytes: int = DEFAULT_MAX_OUTPUT_BYTES
    approval_seconds: float = 0
    undo_needs_approval: bool = False
    undo_idempotent: bool = False
    is_conditional: bool = False
    guarded: bool = False
    agent: str = ""
    handoff: str = ""

    @property
    def repeatable(self) -> bool:
        """Whether a call may be run again when it is not known if it ran."""
        return self.effect == "read" or self.idempotent

    @property
    def may_have_happened(self) -> bool:
        """Whether a call whose end is not known is *unknown*.

        That of an agent as a tool is not: what runs is the collecting of what its task came to.
        """
        return not (self.repeatable or self.agent)
