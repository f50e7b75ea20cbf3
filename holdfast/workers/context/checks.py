"""Checks of the arguments that an AgentWorker passes to its context."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from holdfast.archive.contents import check_whole
from holdfast.errors import InvalidArgumentError
from holdfast.models.choices import messages_of
from holdfast.values.checks import gate
from holdfast.values.messages import Message, ToolCall
from holdfast.values.text.shown import shown

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
    """Return messages as a tuple; dicts are read as items of the Responses API.

    Raises:
        InvalidArgumentError: It is not a list of messages that can be stored; the text says why.
    """
    advice = (
        f'{_MAKE_MESSAGE}, or write {{"role": "user", "content": text}}, and put it into a list'
    )
    messages = tuple(messages_of(_all_of((Message, Mapping), given, where, advice)))
    for message in messages:
        check_whole(message)
    return messages


def check_calls(given: Any, where: str) -> tuple[ToolCall, ...]:
    """Return tool calls as a tuple.

    Raises:
        InvalidArgumentError: It is not a list of ToolCalls; the text says what was given.
    """
    return _all_of((ToolCall,), given, where, f"{_MAKE_CALL}, and put it into a list")


def _all_of(kinds: tuple[type, ...], given: Any, where: str, advice: str) -> tuple[Any, ...]:
    # A single Message or ToolCall is iterable, too: a pydantic model iterates over its fields.
    is_many = isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping, *kinds))
    items = tuple(cast("Iterable[Any]", given)) if is_many else ()
    wrong = [item for item in items if not isinstance(item, kinds)][:1]
    if not is_many or wrong:
        got = f"a list with {_shown(wrong[0])}" if is_many else _shown(given)
        msg = f"{where} takes a list of {kinds[0].__name__}s; it got {got}. {advice}."
        raise InvalidArgumentError(msg)
    return items


def _shown(given: Any) -> str:
    return f"{shown(given)} ({type(given).__name__})"
