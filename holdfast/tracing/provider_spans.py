"""Span makers of the Agents SDK for tasks, turns, raw responses, speech and lists of MCP tools."""

from __future__ import annotations

from collections.abc import Mapping
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
    name: str = ""
    usage: dict[str, Any] | None = None

    def title(self) -> str:
        """Name of the span."""
        return f"task {self.name}"


@dataclass
class TurnSpanData(SpanData):
    """A turn of an agent."""

    type: ClassVar[str] = "turn"
    turn: int = 0
    agent_name: str = ""
    usage: dict[str, Any] | None = None

    def title(self) -> str:
        """Name of the span."""
        return f"turn {self.turn} {self.agent_name}"


@dataclass
class ResponseSpanData(SpanData):
    """A call of the Responses API; of the response its id is exported."""

    type: ClassVar[str] = "response"
    response: Any = None
    input: Any = None
    usage: dict[str, Any] | None = None

    def title(self) -> str:
        """Name of the span."""
        return "chat"

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
class TranscriptionSpanData(SpanData):
    """Speech that is turned into text."""

    type: ClassVar[str] = "transcription"
    sensitive: ClassVar[frozenset[str]] = frozenset({"input", "output"})
    input: str | None = None
    input_format: str | None = "pcm"
    output: str | None = None
    model: str | None = None
    model_config: Mapping[str, Any] | None = None

    def title(self) -> str:
        """Name of the span."""
        return f"transcription {self.model or ''}".strip()


@dataclass
class SpeechSpanData(SpanData):
    """Text that is turned into speech."""

    type: ClassVar[str] = "speech"
    sensitive: ClassVar[frozenset[str]] = frozenset({"input", "output"})
    input: str | None = None
    output: str | None = None
    output_format: str | None = "pcm"
    model: str | None = None
    model_config: Mapping[str, Any] | None = None
    first_content_at: str | None = None

    def title(self) -> str:
        """Name of the span."""
        return f"speech {self.model or ''}".strip()


@dataclass
class SpeechGroupSpanData(SpanData):
    """Pieces of speech that belong together."""

    type: ClassVar[str] = "speech_group"
    sensitive: ClassVar[frozenset[str]] = frozenset({"input"})
    input: str | None = None

    def title(self) -> str:
        """Name of the span."""
        return "speech_group"


@dataclass
class MCPListToolsSpanData(SpanData):
    """The list of tools of an MCP server."""

    type: ClassVar[str] = "mcp_tools"
    server: str | None = None
    result: list[str] | None = None

    def title(self) -> str:
        """Name of the span."""
        return f"mcp_tools {self.server or ''}".strip()


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


def transcription_span(  # noqa: PLR0917  the Agents SDK's signature
    model: str | None = None,
    input: str | None = None,
    input_format: str | None = "pcm",
    output: str | None = None,
    model_config: Mapping[str, Any] | None = None,
    span_id: str | None = None,
    parent: Trace | Span | None = None,
    disabled: bool = False,  # noqa: FBT001, FBT002  the Agents SDK's signature
) -> Span[TranscriptionSpanData]:
    """Make a span of a transcription; the last three arguments: `custom_span`."""
    data = TranscriptionSpanData(input, input_format, output, model, model_config)
    return Span(data, span_id, parent, disabled=disabled)


def speech_span(  # noqa: PLR0917  the Agents SDK's signature
    model: str | None = None,
    input: str | None = None,
    output: str | None = None,
    output_format: str | None = "pcm",
    model_config: Mapping[str, Any] | None = None,
    first_content_at: str | None = None,
    span_id: str | None = None,
    parent: Trace | Span | None = None,
    disabled: bool = False,  # noqa: FBT001, FBT002  the Agents SDK's signature
) -> Span[SpeechSpanData]:
    """Make a span of speech that is made; the last three arguments: `custom_span`."""
    data = SpeechSpanData(input, output, output_format, model, model_config, first_content_at)
    return Span(data, span_id, parent, disabled=disabled)


def speech_group_span(
    input: str | None = None,
    span_id: str | None = None,
    parent: Trace | Span | None = None,
    disabled: bool = False,  # noqa: FBT001, FBT002  the Agents SDK's signature
) -> Span[SpeechGroupSpanData]:
    """Make a span around pieces of speech; the last three arguments: `custom_span`."""
    return Span(SpeechGroupSpanData(input), span_id, parent, disabled=disabled)


def mcp_tools_span(
    server: str | None = None,
    result: list[str] | None = None,
    span_id: str | None = None,
    parent: Trace | Span | None = None,
    disabled: bool = False,  # noqa: FBT001, FBT002  the Agents SDK's signature
) -> Span[MCPListToolsSpanData]:
    """Make a span of a list of tools; the last three arguments: `custom_span`."""
    return Span(MCPListToolsSpanData(server, result), span_id, parent, disabled=disabled)
