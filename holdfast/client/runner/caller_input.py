"""The input of a run in a session of the caller's own: read once, and recorded with the task."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.agents.run_config import RunConfig
from holdfast.agents.runs.item_helpers import ItemHelpers, RunInput
from holdfast.archive.archive import Archive
from holdfast.client.caller_sessions.store import CallerStore
from holdfast.client.runner.input import Call, Given, Item, chosen_items, messages_of, stored
from holdfast.errors import TaskNotFoundError
from holdfast.models.openai.items import from_response_items
from holdfast.reading.reader import Reader
from holdfast.task.data.head import CallerSession, TaskHead
from holdfast.values.base import canonical, digest
from holdfast.values.messages import Message


async def with_caller_input(
    head: TaskHead,
    given: RunInput,
    session: CallerStore,
    *,
    config: RunConfig,
    call: Call,
    archive: Archive,
) -> tuple[TaskHead, Given]:
    """Read a session of the caller's own, and return a run's head with it, and its input.

    Args:
        head: The run's head.
        given: A text, or a list of items.
        session: The session.
        config: Settings of the run.
        call: Calls the caller's functions.
        archive: Where what was read is stored.

    Raises:
        UserError: As for `read_input`, or the session gives something else than a list of items.
        InvalidArgumentError: An item cannot be read.
        Exception: Whatever the session raises.
    """
    new = messages_of(given)
    settings = config.session_settings
    limit = settings.limit if settings is not None and settings.limit is not None else session.limit
    seen = await session.items(limit)
    session.remember(seen, limit)  # before a callback can change the items
    if config.session_input_callback is not None:
        chosen, adds = await chosen_items(config.session_input_callback, seen, given, call)
        read = Given(None, _messages(chosen))
    else:
        adds, before = _listed(given), _messages(seen)
        read = Given(given, before) if isinstance(given, str) else Given(None, (*before, *new))
    kept = {
        "history": await stored(read.before, archive),
        "caller_session": CallerSession(
            id=session.name, adds=await archive.aput(canonical(adds)) if adds else ""
        ),
    }
    return head.model_copy(update=kept), read


async def with_known_input(
    head: TaskHead,
    given: RunInput,
    session: CallerStore,
    *,
    config: RunConfig,
    reader: Reader,
    task_id: str,
) -> tuple[TaskHead, Given] | None:
    """Return the head and input of a run whose task may exist already: its session is not read.

    Returns:
        They; None when there is no such task, or it was begun without a session of this name. That
        a task was begun with another input is found out when the run is begun.
    """
    try:
        known = await reader.head(task_id)
    except TaskNotFoundError:
        return None
    own = known.caller_session
    if own is None or own.id != session.name:
        return None
    if config.session_input_callback is None:
        items = _listed(given)
        own = CallerSession(id=own.id, adds=digest(canonical(items)) if items else "")
    kept = {"history": known.history, "caller_session": own}
    text = given if isinstance(given, str) and not own.adds else None
    return head.model_copy(update=kept), Given(text)


def _listed(given: RunInput) -> list[Item]:
    """Return the items of a run's input that its task does not have by itself: none of a text."""
    return [] if isinstance(given, str) else ItemHelpers.input_to_new_input_list(given)


def _messages(items: Sequence[Item]) -> tuple[Message, ...]:
    """Return what the model sees of a session's items."""
    return from_response_items(whole_calls(items))


def whole_calls(items: Sequence[Item]) -> list[Item]:
    """Return a session's items without calls that have no output, and outputs without a call.

    A limit cuts them apart, and so does a run of another program that waits for an approval.
    """
    calls = {item.get("call_id") for item in items if item.get("type") == "function_call"}
    outputs = {item.get("call_id") for item in items if item.get("type") == "function_call_output"}
    whole = calls & outputs
    kinds = ("function_call", "function_call_output")
    return [item for item in items if item.get("type") not in kinds or item.get("call_id") in whole]
