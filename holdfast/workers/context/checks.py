"""Checks of the arguments that an AgentWorker passes to its context."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar, cast

from holdfast.archive.contents import check_whole
from holdfast.errors import InvalidArgumentError
from holdfast.values.checks import gate
from holdfast.values.messages import Message, ToolCall
from holdfast.values.text.shown import shown

T = TypeVar("T")

_MAKE_MESSAGE = "Make a Message with user(text), assistant(text) or system(text)"
_MAKE_CALL = "Make a ToolCall with ToolCall(id=..., name=..., arguments=...)"


def check_message(given: Any, where: str) -> None:
    """Refuse anything but a message that can be stored.

    Raises:
        InvalidArgumentError: It is not a Message or cannot be stored; the text says why.
    """
    if not isinstance(given, Message):
        msg = f"{where} takes a Message; it got {_shown(given)}. {_MAKE_MESSAGE}."
        raise InvalidArgumentError(msg)
    gate.check(list(given.items), f"Message.items given to {where}")
    check_whole(given)


def check_messages(given: Any, where: str) -> tuple[Message, ...]:
    """Return messages as a tuple.

    Raises:
        InvalidArgumentError: It is not a list of Messages that can be stored; the text says why.
    """
    messages = _all_of(Message, given, where, f"{_MAKE_MESSAGE}, and put it into a list")
    for message in messages:
        check_whole(message)
    return messages


def check_calls(given: Any, where: str) -> tuple[ToolCall, ...]:
    """Return tool calls as a tuple.

    Raises:
        InvalidArgumentError: It is not a list of ToolCalls; the text says what was given.
    """
    return _all_of(ToolCall, given, where, f"{_MAKE_CALL}, and put it into a list")


def _all_of(kind: type[T], given: Any, where: str, advice: str) -> tuple[T, ...]:
    # A single Message or ToolCall is iterable, too: a pydantic model iterates over its fields.
    is_many = isinstance(given, Iterable) and not isinstance(given, str | bytes | dict | kind)
    items = tuple(cast("Iterable[Any]", given)) if is_many else ()
    wrong = next((item for item in items if not isinstance(item, kind)), None)
    if not is_many or wrong is not None:
        got = f"a list with {_shown(wrong)}" if is_many else _shown(given)
        msg = f"{where} takes a list of {kind.__name__}s; it got {got}. {advice}."
        raise InvalidArgumentError(msg)
    return items


def _shown(given: Any) -> str:
    return f"{shown(given)} ({type(given).__name__})"
