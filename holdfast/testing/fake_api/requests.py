"""The requests that the fake API has received, in one form for all endpoints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Protocol

from holdfast.models.base import ToolSpec
from holdfast.models.openai.item_contents import read_part
from holdfast.models.openai.items import from_response_items
from holdfast.testing.fake_api.replies import Answer, Refusal
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_array, as_object, as_text, is_array
from holdfast.values.messages import (
    Content,
    FilePart,
    Message,
    Part,
    TextPart,
    ToolCall,
    Usage,
    qualified_name,
)
from holdfast.values.parts.images import Image


class Dialect(Protocol):
    """Another API that a fake speaks from the same script."""

    @property
    def name(self) -> str:
        """What requests of it say as their endpoint."""
        ...

    @property
    def routes(self) -> tuple[str, ...]:
        """Its paths."""
        ...

    @property
    def request_id(self) -> str:
        """The header that names an answer."""
        ...

    def model_of(self, path: str, body: dict[str, Json]) -> str:
        """Return the model that is asked for."""
        ...

    def is_stream(self, path: str, body: dict[str, Json]) -> bool:
        """Whether a stream is asked for."""
        ...

    def read_instructions(self, body: dict[str, Json]) -> str:
        """Return the system prompt."""
        ...

    def read_messages(self, body: dict[str, Json]) -> tuple[Message, ...]:
        """Return the conversation."""
        ...

    def read_tools(self, body: dict[str, Json]) -> tuple[ToolSpec, ...]:
        """Return the tools that are offered."""
        ...

    def problems(self, body: dict[str, Json], model: str) -> Iterator[tuple[str, str]]:
        """Yield what the API refuses: a parameter, and why."""
        ...

    def render(
        self, answer: Answer | Refusal, *, model: str, usage: Usage, next_id: Callable[[str], str]
    ) -> dict[str, Json]:
        """Write an answer."""
        ...

    def events(self, body: dict[str, Json], piece: int) -> Iterator[dict[str, Json]]:
        """Cut an answer into the events of a stream."""
        ...

    def error(self, status: int, message: str) -> dict[str, Json]:
        """Write an error."""
        ...


@dataclass(frozen=True)
class FakeRequest:
    """One request, as it came.

    Attributes:
        number: Place in the order of arrival, from 1.
        endpoint: "responses", "chat" or the name of a dialect.
        path: Path of the request; of one in a batch, "/v1/batches".
        body: The parsed body.
        headers: Headers in lower case, Authorization redacted.
        at: Time of arrival, in seconds of a monotonic clock.
        query: The address's query.
        dialect: The API, if it is not OpenAI's.
    """

    number: int
    endpoint: str
    path: str
    body: dict[str, Json]
    headers: dict[str, str] = field(default_factory=dict[str, str])
    at: float = 0.0
    query: dict[str, str] = field(default_factory=dict[str, str])
    dialect: Dialect | None = None

    @property
    def model(self) -> str:
        """The model asked for."""
        if self.dialect is not None:
            return self.dialect.model_of(self.path, self.body)
        return as_text(self.body.get("model"))

    @property
    def is_stream(self) -> bool:
        """Whether a stream was requested."""
        if self.dialect is not None:
            return self.dialect.is_stream(self.path, self.body)
        return self.body.get("stream") is True

    @property
    def instructions(self) -> str:
        """The system prompt; with Chat Completions the leading system message."""
        if self.endpoint == "responses":
            return as_text(self.body.get("instructions"))
        if self.dialect is not None:
            return self.dialect.read_instructions(self.body)
        first = as_object(next(iter(self._conversation), None))
        return as_text(first.get("content")) if first.get("role") == "system" else ""

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """The conversation without the system prompt, as Holdfast's messages.

        Raises:
            InvalidArgumentError: The request holds an item that cannot be read.
        """
        if self.endpoint == "responses":
            return from_response_items(self._conversation)
        if self.dialect is not None:
            return self.dialect.read_messages(self.body)
        start = 1 if self.instructions else 0
        return tuple(_read_chat(as_object(each)) for each in self._conversation[start:])

    @property
    def last_user(self) -> str:
        """Text of the last user message; empty without one."""
        texts = [message.text for message in self.messages if message.role == "user"]
        return texts[-1] if texts else ""

    @property
    def results(self) -> dict[str, str]:
        """Text of each tool result by call id, in order."""
        return {each.call_id: each.text for each in self.messages if each.role == "tool"}

    @property
    def images(self) -> tuple[Image, ...]:
        """The images of the conversation, in order.

        Raises:
            InvalidArgumentError: One of them is not an image.
        """
        return tuple(
            Image(file_id=part.file_id, detail=part.detail)
            if part.file_id
            else Image.from_url(part.url, detail=part.detail)
            for message in self.messages
            for part in message.images
        )

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools offered."""
        if self.dialect is not None:
            return self.dialect.read_tools(self.body)
        offered: Json = self.body.get("tools")
        return tuple(chain.from_iterable(map(_read_tools, as_array(offered))))

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Names of the tools offered, in order; one of a namespace as "crm.lookup"."""
        return tuple(tool.name for tool in self.tools)

    @property
    def text(self) -> str:
        """The body as JSON text, for searching."""
        return json.dumps(self.body, ensure_ascii=False)

    def holds(self, text: str) -> bool:
        """Whether the last user message or the body holds `text`."""
        quoted = json.dumps(text, ensure_ascii=False)[1:-1]
        return quoted in self.text

    @property
    def _conversation(self) -> list[Json]:
        key = "input" if self.endpoint == "responses" else "messages"
        given: Json = self.body.get(key)
        if isinstance(given, str):
            return [{"role": "user", "content": given}]
        return as_array(given)


def _read_tools(given: Json) -> Iterable[ToolSpec]:
    """Yield a tool, or the tools of a namespace."""
    tool = as_object(given)
    if tool.get("type") != "namespace":
        yield _read_tool(tool)
        return
    name, about = as_text(tool.get("name")), as_text(tool.get("description"))
    for each in as_array(tool.get("tools")):
        found = _read_tool(as_object(each))
        inside = {"namespace": name, "namespace_description": about}
        yield found.model_copy(update={"name": qualified_name(found.name, name), **inside})


def _read_tool(given: dict[str, Json]) -> ToolSpec:
    kind = as_text(given.get("type"))
    if kind not in ("", "function"):
        return ToolSpec(name=kind, hosted=given)
    given = as_object(given.get("function")) or given
    return ToolSpec(
        name=as_text(given.get("name")),
        description=as_text(given.get("description")),
        parameters=as_object(given.get("parameters")),
        strict=given.get("strict") is True,
        deferred=given.get("defer_loading") is True,
    )


def _read_chat(message: dict[str, Json]) -> Message:
    content = _read_content(message.get("content"))
    match message.get("role"):
        case "tool":
            call_id = as_text(message.get("tool_call_id"))
            return Message(role="tool", content=content, call_id=call_id)
        case "assistant":
            calls = tuple(_read_calls(message.get("tool_calls")))
            return Message(role="assistant", content=content, calls=calls)
        case "user":
            return Message(role="user", content=content)
        case _:
            return Message(role="system", content=content)


def _read_calls(given: Json) -> Iterable[ToolCall]:
    for each in map(as_object, as_array(given)):
        function = as_object(each.get("function"))
        yield ToolCall(
            id=as_text(each.get("id")),
            name=as_text(function.get("name")),
            arguments=as_text(function.get("arguments")),
        )


def _read_content(content: Json) -> Content:
    if not is_array(content):
        return as_text(content)
    return tuple(_read_part(as_object(part)) for part in content)


def _read_part(part: dict[str, Json]) -> Part:
    if part.get("type") == "file":
        file = as_object(part.get("file"))
        data, file_id, name = (as_text(file.get(k)) for k in ("file_data", "file_id", "filename"))
        return FilePart(kind="file", data=data, file_id=file_id, filename=name)
    return read_part(part) or TextPart(kind="text", text="")
