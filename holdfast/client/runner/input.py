"""The input of a run, and the part of its session that the model sees."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from holdfast.agents.run_config import RunConfig
from holdfast.agents.runs.item_helpers import ItemHelpers, RunInput
from holdfast.archive.archive import Archive
from holdfast.archive.contents import refer_all
from holdfast.archive.segments import write_messages
from holdfast.client.agent_runner.sessions import Session
from holdfast.errors import UserError
from holdfast.models.openai.items import from_response_items, to_response_items
from holdfast.task.data.head import SessionRef, TaskHead
from holdfast.values.base import Json
from holdfast.values.checks.json_shapes import is_array
from holdfast.values.messages import Message
from holdfast.values.text.shown import shown

Call = Callable[..., Awaitable[Any]]
"""Calls a function, async or not, and returns its result."""

Item = dict[str, Json]


class Given(NamedTuple):
    """The input of a run as its task takes it.

    Attributes:
        text: The request; None when `before` ends with it, or when there is none.
        before: Messages before it.
        adds: Messages that the session gets before those that the task makes.
        is_whole: Whether `before` already has all that the model sees of the session.
    """

    text: str | None
    before: tuple[Message, ...] = ()
    adds: tuple[Message, ...] = ()
    is_whole: bool = False

    @property
    def title(self) -> str:
        """The request's text, for lists of tasks."""
        texts = (message.text for message in reversed(self.before) if message.role == "user")
        return self.text or next(filter(None, texts), "")


async def read_input(
    given: RunInput, session: Session | None, config: RunConfig, call: Call
) -> Given:
    """Make the input of a task; read the session if the run limits or changes what is seen of it.

    Args:
        given: A text, or a list of items.
        session: The session, or None.
        config: Settings of the run.
        call: Calls the caller's functions.

    Raises:
        UserError: The input is neither a text nor a list, or the callback returned something other
            than a list of items.
        InvalidArgumentError: An item cannot be read.
    """
    new = _messages(given)
    callback, settings = config.session_input_callback, config.session_settings
    limit = settings.limit if settings is not None else None
    if session is None or (callback is None and limit is None):
        return Given(given) if isinstance(given, str) else Given(None, new, new if session else ())
    stored = to_response_items(await session.chat_history())
    seen = stored if limit is None else limited(stored, limit)
    if callback is None:
        before = from_response_items(seen)
        if isinstance(given, str):
            return Given(given, before, is_whole=True)
        return Given(None, (*before, *new), new, is_whole=True)
    asked = ItemHelpers.input_to_new_input_list(given)
    chosen: Any = await call(callback, list(seen), copy.deepcopy(asked))
    if not is_array(chosen) or not chosen:
        msg = (
            "session_input_callback must return a list with at least one item, what the model is"
            f" to see; it returned {shown(chosen)} ({type(chosen).__name__})."
        )
        raise UserError(msg)
    added = from_response_items(_not_in(seen, chosen))
    return Given(None, from_response_items(chosen), added, is_whole=True)


async def with_input(
    head: TaskHead, read: Given, session: Session | None, archive: Archive
) -> TaskHead:
    """Return a run's head with its session and the messages before its request, stored.

    Raises:
        InvalidArgumentError: The `data:` URL of an image cannot be decoded, or holds more than
            20 MB.
    """
    history = await _stored(read.before, archive)
    if session is None:
        return head.model_copy(update={"history": history})
    adds = history if read.before == read.adds else await _stored(read.adds, archive)
    ref = SessionRef(
        id=session.id, name=session.name, queue=session.queue, adds=adds, unread=read.is_whole
    )
    return head.model_copy(update={"history": history, "session": ref})


async def _stored(messages: Sequence[Message], archive: Archive) -> str:
    """Store a list of messages, images by reference; return its digest, empty for none."""
    if not messages:
        return ""
    return await write_messages(archive, await refer_all(messages, archive))


def limited(items: Sequence[Item], limit: int) -> list[Item]:
    """Return the newest items, without outputs of tools whose calls are cut off.

    Raises:
        UserError: The limit is not a number of items.
    """
    if limit < 0:
        msg = f"session_settings.limit counts items, so it must be at least 0; it was {limit}."
        raise UserError(msg)
    kept = list(items[len(items) - min(limit, len(items)) :])
    calls = {item.get("call_id") for item in kept if item.get("type") == "function_call"}
    return [
        item
        for item in kept
        if item.get("type") != "function_call_output" or item.get("call_id") in calls
    ]


def check_input(given: object) -> None:
    """Refuse an input that is neither a text nor a list.

    Raises:
        UserError: It is neither.
    """
    if isinstance(given, bytes) or not isinstance(given, Sequence):
        msg = (
            f"input={shown(given)} ({type(given).__name__}) is no input of a run. Give a text, a"
            " list of items in the form of the Responses API, or a RunState."
        )
        raise UserError(msg)


def _messages(given: Any) -> tuple[Message, ...]:
    if isinstance(given, str):
        return ()
    check_input(given)
    return from_response_items(given)


def _not_in(seen: Sequence[Item], chosen: Sequence[Item]) -> list[Item]:
    """Return the chosen items that are not from the session; an item matches one of it once."""
    left = list(seen)
    new: list[Item] = []
    for item in chosen:
        known = next((k for k, each in enumerate(left) if each is item), None)
        if known is None and item in left:
            known = left.index(item)
        if known is None:
            new.append(item)
        else:
            del left[known]
    return new
