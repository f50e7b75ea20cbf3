"""Decisions on tool calls, as a run's context has them: on one call, or on all calls of a tool."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from holdfast.errors import ModelBehaviorError
from holdfast.values.base import sense

ToolKey = str | tuple[str, str]
"""Identity of a tool: its name with its namespace, or the label of a server and a name on it."""


class AskedCall(Protocol):
    """A call that waits for a decision: a ToolApprovalItem."""

    @property
    def tool_key(self) -> ToolKey:
        """Identity of the tool."""
        ...

    @property
    def tool_name(self) -> str | None:
        """Name of the tool."""
        ...

    @property
    def call_id(self) -> str | None:
        """The model's id of the call."""
        ...


class Verdict(NamedTuple):
    """A decision.

    Attributes:
        approved: Whether the call may be run.
        always: Whether it holds for all calls of the tool.
        message: The model's text for a rejection; None for the default text.
    """

    approved: bool
    always: bool = False
    message: str | None = None


@dataclass(eq=False)
class CallDecisions:
    """Decisions; one on a call takes precedence over one on all calls of its tool.

    Attributes:
        taken: The decisions with their calls, oldest first.
    """

    taken: list[tuple[Any, Verdict]] = field(default_factory=list[tuple[Any, Verdict]])
    _calls: dict[tuple[ToolKey, str], Verdict] = field(
        default_factory=dict[tuple[ToolKey, str], Verdict]
    )
    _tools: dict[ToolKey, Verdict] = field(default_factory=dict[ToolKey, Verdict])

    def take(self, call: AskedCall, verdict: Verdict) -> None:
        """Take a decision on a call."""
        self.taken.append((call, verdict))
        known = call.call_id or ""
        if verdict.always:
            self._tools[call.tool_key] = verdict
        # Calls on servers are found by their plain name as well, but only these very calls.
        for key in {call.tool_key, call.tool_name or ""}:
            self._calls.pop((key, known), None)
            if not verdict.always or key != call.tool_key:
                self._calls[key, known] = verdict

    def check_same(self, call: AskedCall) -> None:
        """Refuse a call whose id is that of another call that was decided on.

        Raises:
            ModelBehaviorError: The tool or the arguments differ.
        """
        for known, _ in self.taken:
            is_same_id = known.call_id and known.call_id == call.call_id
            if is_same_id and _content(known) != _content(call):
                msg = (
                    f"The model has called tool {call.tool_name!r} with id {call.call_id!r}, which"
                    f" another call of {known.tool_name!r} has. Each call must have a unique call"
                    " ID: a decision on one of them is none on the other."
                )
                raise ModelBehaviorError(msg)

    def find(self, key: ToolKey, call_id: str) -> Verdict | None:
        """Return the decision on a call, or None."""
        return self._calls.get((key, call_id)) or self._tools.get(key)


def _content(call: AskedCall) -> tuple[ToolKey, Any]:
    arguments: Any = getattr(call, "arguments", None)
    return call.tool_key, sense(arguments) if isinstance(arguments, str) else arguments
