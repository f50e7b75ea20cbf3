"""One call of `Runner.run`: checked arguments, input, and what the model sees of its session.

A session of the caller's own is read once, and what it held is recorded with the task.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.agents.agent import Agent
from holdfast.agents.hooks import RunHooksBase
from holdfast.agents.run_config import RunConfig
from holdfast.agents.runs.item_helpers import ItemHelpers, RunInput
from holdfast.agents.runs.results import RunData
from holdfast.agents.runs.state import Deserializer, RunState
from holdfast.agents.tools.context import ToolContext
from holdfast.archive.archive import Archive
from holdfast.archive.bytestore import writing_for
from holdfast.archive.contents import refer_all
from holdfast.archive.segments import write_messages
from holdfast.client.agent_runner.sessions import Session
from holdfast.client.caller_sessions.store import CallerStore
from holdfast.errors import TaskNotFoundError, UserError
from holdfast.models.openai.items import from_response_items, shown_items
from holdfast.reading.reader import Reader
from holdfast.task.data.head import CallerSession, RunChange, RunSetting, SessionRef, TaskHead
from holdfast.values.base import Json, canonical, digest
from holdfast.values.checks.gate import is_array
from holdfast.values.code.context_data import CallersContext
from holdfast.values.messages import Message
from holdfast.values.runs.run_context import Origin
from holdfast.values.runs.status import OnBusy
from holdfast.values.settings import Budget
from holdfast.values.text.logs import log
from holdfast.values.text.shown import shown

Call = Callable[..., Awaitable[Any]]
"""Calls a function, async or not, and returns its result."""

Item = dict[str, Json]


class Given(NamedTuple):
    """The input of a run as its task takes it.

    Attributes:
        text: The request; None when `before` ends with it, or without one.
        before: Messages before it.
        adds: Messages that the session gets before the task's own.
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
    new = messages_of(given)
    callback, settings = config.session_input_callback, config.session_settings
    limit = settings.limit if settings is not None else None
    if session is None or (callback is None and limit is None):
        return Given(given) if isinstance(given, str) else Given(None, new, new if session else ())
    stored = shown_items(await session.chat_history())
    seen = stored if limit is None else limited(stored, limit)
    if callback is None:
        before = from_response_items(seen)
        if isinstance(given, str):
            return Given(given, before, is_whole=True)
        return Given(None, (*before, *new), new, is_whole=True)
    chosen, added = await chosen_items(callback, seen, given, call)
    return Given(None, from_response_items(chosen), from_response_items(added), is_whole=True)


async def chosen_items(
    callback: Callable[..., Any], seen: list[Item], given: RunInput, call: Call
) -> tuple[list[Item], list[Item]]:
    """Ask a run's callback what the model sees of the session and the new items.

    Returns:
        What the model sees, and the part of it that is not from the session.

    Raises:
        UserError: The callback returned something other than a list of items.
    """
    asked = ItemHelpers.input_to_new_input_list(given)
    news = copy.deepcopy(asked)
    chosen: Any = await call(callback, list(seen), list(news))
    if not is_array(chosen) or not chosen:
        raise UserError(
            "session_input_callback must return a list with at least one item, what the model is"
            f" to see; it returned {shown(chosen)} ({type(chosen).__name__})."
        )
    items: list[Item] = list(chosen)
    return items, _new_items(seen, news, items)


async def with_input(
    head: TaskHead, read: Given, session: Session | None, archive: Archive, *, task: str
) -> TaskHead:
    """Return a run's head with its session and the messages before its request, stored.

    Raises:
        InvalidArgumentError: The `data:` URL of an image cannot be decoded, or holds more than
            20 MB.
    """
    history = await stored(read.before, archive, task)
    if session is None:
        return head.model_copy(update={"history": history})
    adds = history if read.before == read.adds else await stored(read.adds, archive, task)
    ref = SessionRef(
        id=session.id,
        name=session.name,
        queue=session.queue,
        adds=adds,
        unread=read.is_whole,
        queues=True,
    )
    return head.model_copy(update={"history": history, "session": ref})


async def stored(messages: Sequence[Message], archive: Archive, task: str) -> str:
    """Store messages of a task, images by reference; return their digest, empty for none."""
    if not messages:
        return ""
    with writing_for(task):
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
        raise UserError(
            f"input={shown(given)} ({type(given).__name__}) is not input of a run. Give a text, a"
            " list of items in the form of the Responses API, or a RunState."
        )


def messages_of(given: Any) -> tuple[Message, ...]:
    """Return the messages of a list of items; a text has none.

    Raises:
        UserError: It is neither.
        InvalidArgumentError: An item cannot be read.
    """
    if isinstance(given, str):
        return ()
    check_input(given)
    return from_response_items(given)


def _new_items(seen: Sequence[Item], news: Sequence[Item], chosen: Sequence[Item]) -> list[Item]:
    """Return the chosen items that are not from the session.

    An object that the callback was given counts as what it was; another matches an equal item of
    the session once.
    """
    from_session, from_run = (set(map(id, items)) for items in (seen, news))
    given_again = [item for item in chosen if id(item) in from_session]
    left = [item for item in seen if not any(item is each for each in given_again)]
    new: list[Item] = []
    for item in chosen:
        if id(item) in from_session:
            continue
        if id(item) not in from_run and item in left:
            left.remove(item)
        else:
            new.append(item)
    return new


async def with_caller_input(
    head: TaskHead,
    given: RunInput,
    session: CallerStore,
    *,
    config: RunConfig,
    call: Call,
    archive: Archive,
    task: str,
) -> tuple[TaskHead, Given]:
    """Read a session of the caller's own, and return a run's head with it, and its input.

    Args:
        head: The run's head.
        given: A text, or a list of items.
        session: The session.
        config: Settings of the run.
        call: Calls the caller's functions.
        archive: Where what was read is stored.
        task: Id of the task.

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
    with writing_for(task):
        kept = {
            "history": await stored(read.before, archive, task),
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
    """Return the items of a run's input that its task does not have yet: no items for a text."""
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


RUNNER = "Runner"
"""Recorded as who acts when `by` is not given."""


class Reviver:
    """Makes the context object of a resumed run of the recorded data, as its state was told to.

    The data are what the run has made of its context by then, so the object is made again when they
    have changed: only the deserializer knows how an object of its own is brought up to date.
    """

    def __init__(self, deserializer: Deserializer, invoke: Call) -> None:
        """Use a deserializer.

        Args:
            deserializer: Makes the object of its data.
            invoke: Calls the caller's functions.
        """
        self._deserializer = deserializer
        self._invoke = invoke
        self._of: Json = None
        self._made: Any = None

    async def of(self, data: Json) -> Any:
        """Return the context object of these data; None without any."""
        if data is None:
            return None
        if data != self._of:
            given = copy.deepcopy(data)  # the deserializer may change what it gets, or keep it
            self._made = await self._invoke(self._deserializer, given)
            self._of = data
        return self._made

    async def complete(self, data: RunData) -> None:
        """Put the context object into what was read of a run, instead of its data.

        The data stay if the deserializer fails: what the run has come to must not be lost with it.
        """
        wrapper = data.context_wrapper
        recorded = wrapper.context
        try:
            wrapper.context = await self.of(recorded)
        except Exception:
            log.exception("The context_deserializer of run %s failed", data.task_id)
        wrapper.origin = Origin(recorded, self._deserializer)


def reviver_of(given: RunInput | RunState, context: Any, invoke: Call) -> Reviver | None:
    """Return what makes the context object of a resumed run.

    Args:
        given: The input, or the state of the run.
        context: The caller's context object: nothing need be made where there is one.
        invoke: Calls the caller's functions.
    """
    if context is not None or not isinstance(given, RunState) or given.deserializer is None:
        return None
    return Reviver(given.deserializer, invoke)


@dataclass(frozen=True, kw_only=True)
class RunCall:
    """One call of `Runner.run`, checked: what its task begins with, and what stays in this process.

    Attributes:
        agent: The agent that it begins with, or that was given with the state of a run.
        known_by: The agent that was given. A run that goes on from one with its answer begins with
            the agent that has answered, which need not know those before it.
        given: The input, or the state of a run to resume.
        task_id: Id of the task.
        exist_ok: Whether the same task may exist already.
        head: Its head; without the input and what the engine adds to it until the task begins.
        budget: Its limits.
        config: The run's settings, for what this process does with them.
        settings: Which of them a state is given with: its run gets these.
        change: Those of them that its task did not have.
        context: The caller's context.
        session: Session.
        hooks: Called with what the run does.
        by: Name recorded with the decisions of a state.
        invoke: Calls the caller's functions.
        tool_call: The call of an agent as a tool that makes the run, outside of a task.
        reviver: Makes the context object of a resumed run, where none was given.
        on_busy: What a new run does while another task of the session has the floor.
    """

    agent: Agent
    known_by: Agent
    given: RunInput | RunState
    task_id: str
    exist_ok: bool
    head: TaskHead
    budget: Budget | None
    config: RunConfig
    context: CallersContext
    session: str | Session | CallerStore | None
    hooks: RunHooksBase[Any, Any] | None
    by: str
    invoke: Call
    tool_call: ToolContext[Any, Any] | None = None
    reviver: Reviver | None = None
    settings: tuple[RunSetting, ...] = ()
    change: RunChange | None = None
    on_busy: OnBusy = "queue"

    @property
    def input(self) -> RunInput | None:
        """The input; None for a resumed run, whose task has it."""
        return None if isinstance(self.given, RunState) else self.given
