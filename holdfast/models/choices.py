"""Arguments that callers may give in more than one form: tool choices and messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from holdfast.errors import InvalidArgumentError
from holdfast.models.base import HOSTED_CHOICES
from holdfast.models.openai.items import from_response_items
from holdfast.models.openai.local_items import SPEC_KINDS
from holdfast.values.base import Json
from holdfast.values.checks.ids import check_name
from holdfast.values.messages import Message
from holdfast.values.settings import MCPToolChoice
from holdfast.values.text.shown import shown

ToolChoice = str | Mapping[str, Json] | MCPToolChoice
"""`"auto"`, `"none"`, `"required"`, a tool's name, the type of a tool of the provider, or the dict
by which OpenAI's APIs name one."""

MessageLike = Message | Mapping[str, Json]
"""A message, or an item of the Responses API, such as `{"role": "user", "content": "hi"}`."""


def choice_of(given: ToolChoice | None) -> str:
    """Return a tool choice as a word or a tool's name; empty for none.

    Raises:
        InvalidArgumentError: It is something else.
    """
    if given is None:
        return ""
    wanted: object = given
    if isinstance(given, Mapping) and given.get("type") == "function":
        inner: Any = given.get("function")  # the form of Chat Completions
        named: Any = given if "name" in given else inner or {}
        wanted = named.get("name") if hasattr(named, "get") else None
    elif isinstance(given, Mapping):
        wanted = _hosted_choice(given)
    elif isinstance(wanted, MCPToolChoice):
        wanted = wanted.word
    if isinstance(wanted, str):
        return check_name("tool_choice", wanted) if wanted else ""
    raise InvalidArgumentError(
        'tool_choice is "auto", "none", "required", a tool\'s name, {"type": "function", "name":'
        ' name}, {"type": "custom", "name": name} or the type of a tool of the provider, as'
        f' {{"type": "shell"}}; got {shown(given)}.'
    )


def _hosted_choice(given: Mapping[str, Json]) -> object:
    """Return the word for a choice of a tool of the provider, as `{"type": "web_search"}`."""
    kind = given.get("type")
    if kind == "custom":
        return given.get("name") or None
    if kind != "mcp" or "server_label" not in given:
        is_known = kind in HOSTED_CHOICES or kind in SPEC_KINDS
        return kind if list(given) == ["type"] and is_known else None
    label, name = given["server_label"], given.get("name") or ""
    is_named = isinstance(label, str) and isinstance(name, str)
    return MCPToolChoice(label, name).word if is_named else None


def messages_of(given: Sequence[MessageLike]) -> list[Message]:
    """Return messages; dicts are read as items of the Responses API.

    Raises:
        InvalidArgumentError: One cannot be read, or is something else.
    """
    whole = cast("object", given)
    if isinstance(whole, str | bytes | Mapping) or not isinstance(whole, Iterable):
        msg = f"A history is a list of messages; got {shown(whole)}."  # pyright: ignore[reportUnknownArgumentType]  anything is shown
        raise InvalidArgumentError(msg)
    messages: list[Message] = []
    items: list[object] = []
    for each in given:
        if not isinstance(each, Message):
            items.append(each)
            continue
        messages += from_response_items(items)
        items.clear()
        messages.append(each)
    return [*messages, *from_response_items(items)]
