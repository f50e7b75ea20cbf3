"""Requests to a model that a program makes by itself, with LlamaIndex's options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.errors import InvalidArgumentError
from holdfast.llama_index.llms.messages import to_message
from holdfast.models.base import ModelRequest, ToolSpec
from holdfast.models.choices import choice_of
from holdfast.values.settings import ModelSettings
from holdfast.values.text.shown import shown


def request_of(
    model: str, messages: Sequence[Any], options: Mapping[str, Any] | None = None
) -> ModelRequest:
    """Make a request of anybody's chat messages.

    Args:
        model: Name of the model.
        messages: The messages.
        options: `tools`, `tool_choice`, settings, and fields of the request's body.
    """
    left = dict(options or {})
    tools = left.pop("tools", None) or ()
    choice = choice_of(left.pop("tool_choice", None))
    return ModelRequest(
        model=model,
        messages=tuple(to_message(each) for each in messages),
        tools=tuple(_spec(each) for each in tools),
        tool_choice=choice or "auto",
        settings=settings_of(left),
    )


def settings_of(options: Mapping[str, Any]) -> ModelSettings:
    """Return settings; what is none of them is a field of the request's body."""
    known = {name: each for name, each in options.items() if name in ModelSettings.model_fields}
    body = {name: each for name, each in options.items() if name not in known}
    if body:
        known["extra_args"] = {**body, **(known.get("extra_args") or {})}
    return ModelSettings(**known)


def _spec(tool: Any) -> ToolSpec:
    """Read a tool: in the form of OpenAI's API, or one with metadata.

    Raises:
        InvalidArgumentError: It is neither.
    """
    metadata: Any = getattr(tool, "metadata", None)
    given: Any = tool if metadata is None else metadata.to_openai_tool()
    read: Any = given.get("function", given) if hasattr(given, "get") else {}
    if not hasattr(read, "get") or "name" not in read:
        msg = f"{shown(tool)} is not a tool. Pass FunctionTools, or what to_openai_tool() gives."
        raise InvalidArgumentError(msg)
    return ToolSpec(
        name=str(read["name"]),
        description=str(read.get("description") or ""),
        parameters=dict(read.get("parameters") or {}),
    )
