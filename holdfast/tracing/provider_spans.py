"""Span makers of the Agents SDK for tasks, turns, raw responses and lists of MCP tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypedDict

from holdfast.tracing.spans import Span, SpanData, Trace


class SpanError(TypedDict):
    """Argument of `Span.set_error`.

    Attributes:
        message: What went wrong.
        data: More about it; not exported.
    """

    message: str
    data: dict[str, Any] | None


@dataclass
class TaskSpanData(SpanData):
    """A whole run."""

    type: ClassVar[str] = "task"
    titled: ClassVar[str] = "task {name}"
    name: str = ""
    usage: dict[str, Any] | None = None


@dataclass
class TurnSpanData(SpanData):
    """A turn of an agent."""

    type: ClassVar[str] = "turn"
    titled: ClassVar[str] = "turn {turn} {agent_name}"
    turn: int = 0
    agent_name: str = ""
    usage: dict[str, Any] | None = None


@dataclass
class ResponseSpanData(SpanData):
    """A call of the Responses API; of the response its id is exported."""

    type: ClassVar[str] = "response"
    titled: ClassVar[str] = "chat"
    response: Any = None
    input: Any = None
    usage: dict[str, Any] | None = None

    def export(self) -> dict[str, Any]:
        """Return the id of the response, and the usage."""
        return {"type": self.type, "response_id": self._id, "usage": self.usage}

    def attributes(self) -> dict[str, Any]:
        """Return the id of the response."""
        return {} if self._id is None else {"gen_ai.response.id": self._id}

    @property
    def _id(self) -> str | None:
        return getattr(self.response, "id", None)


@dataclass
class MCPListToolsSpanData(SpanData):
    """The list of tools of an MCP server."""

    type: ClassVar[str] = "mcp_tools"
    titled: ClassVar[str] = "mcp_tools {server}"
    server: str | None = None
    result: list[str] | None = None


def task_span(
    name: str,
    span_id: str | None = None,
    parent: Trace | Span | None = None,
    disabled: bool = False,  # noqa: FBT001, FBT002  the Agents SDK's signature
) -> Span[TaskSpanData]:
    """Make a span of a task of the program's own; the last three arguments: `custom_span`."""
    return Span(TaskSpanData(name), span_id, parent, disabled=disabled)


def turn_span(
    turn: int,
    agent_name: str,
    span_id: str | None = None,
    parent: Trace | Span | None = None,
    disabled: bool = False,  # noqa: FBT001, FBT002  the Agents SDK's signature
) -> Span[TurnSpanData]:
    """Make a span of a turn; the last three arguments: `custom_span`."""
    return Span(TurnSpanData(turn, agent_name), span_id, parent, disabled=disabled)


def response_span(
    response: Any = None,
    span_id: str | None = None,
    parent: Trace | Span | None = None,
    disabled: bool = False,  # noqa: FBT001, FBT002  the Agents SDK's signature
) -> Span[ResponseSpanData]:
    """Make a span of a call of the Responses API; the last three arguments: `custom_span`."""
    return Span(ResponseSpanData(response), span_id, parent, disabled=disabled)


def mcp_tools_span(
    server: str | None = None,
    result: list[str] | None = None,
    span_id: str | None = None,
    parent: Trace | Span | None = None,
    disabled: bool = False,  # noqa: FBT001, FBT002  the Agents SDK's signature
) -> Span[MCPListToolsSpanData]:
    """Make a span of a list of tools; the last three arguments: `custom_span`."""
    return Span(MCPListToolsSpanData(server, result), span_id, parent, disabled=disabled)
