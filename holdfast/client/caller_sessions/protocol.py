"""What sessions of the caller's own have in common.

They have the methods of the Agents SDK's sessions. Sessions that the provider keeps share a client,
and a lock for coroutines of several event loops: a session may be used in more than one thread.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.errors import InvalidArgumentError
from holdfast.models.defaults import default_client
from holdfast.values.checks.ids import LONGEST_KNOWN, check_name
from holdfast.values.text.shown import shown

if TYPE_CHECKING:
    from openai import AsyncOpenAI


METHODS = ("get_items", "add_items", "pop_item", "clear_session")


class SessionLike(Protocol):
    """A session of the caller's own.

    It may also have `session_id`, which names it, `session_settings`, a `SessionSettings`, and
    `run_compaction(args)`, which is called after a turn whose model was shown all of it. If all
    methods take `wrapper=`, they get the run's `RunContextWrapper`.
    """

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the items, or the newest of them, oldest first."""
        ...

    async def add_items(self, items: list[Any]) -> None:
        """Add items behind the others."""
        ...

    async def pop_item(self) -> Any:
        """Take out the newest item and return it; None without one."""
        ...

    async def clear_session(self) -> None:
        """Remove all items."""
        ...


class SessionABC(ABC):
    """Base class for sessions of one's own, given to `Runner.run(..., session=...)`.

    The session lives in the process that calls the run: it is read when the run begins and written
    when the run has ended.

    Attributes:
        session_id: Names the conversation.
        session_settings: A `SessionSettings`, or None: how runs read it that say nothing else.
    """

    session_id: str
    session_settings: Any = None

    @abstractmethod
    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the items of the conversation, oldest first.

        Args:
            limit: Number of the newest items to return; None for all.
        """

    @abstractmethod
    async def add_items(self, items: list[Any]) -> None:
        """Add items behind the others.

        Args:
            items: Items in the form of the Responses API.
        """

    @abstractmethod
    async def pop_item(self) -> Any:
        """Take out the newest item and return it; None without one."""

    @abstractmethod
    async def clear_session(self) -> None:
        """Remove all items."""


def check_session(given: object) -> None:
    """Refuse what is not a session of the caller's own.

    Raises:
        InvalidArgumentError: A method is missing, or session_id cannot name it.
    """
    missing = [name for name in METHODS if not callable(getattr(given, name, None))]
    if missing:
        raise InvalidArgumentError(
            f"session must be a name, a Session, or an object with the methods"
            f" {', '.join(METHODS)}; {shown(given)} ({type(given).__name__}) lacks"
            f" {', '.join(missing)}."
        )
    if name := name_of(given):
        check_name(f"session_id of the {type(given).__name__}", name, LONGEST_KNOWN)


def name_of(session: object) -> str:
    """Return the session_id of a session; empty while it has none."""
    try:
        found: object = getattr(session, "session_id", None)
    except ValueError:  # a conversation of the provider that is not created yet
        return ""
    return found if isinstance(found, str) else ""


def takes_wrapper(session: SessionLike) -> bool:
    """Whether all methods of a session take the run's context as `wrapper=`."""
    return all(takes(getattr(session, name), "wrapper") for name in METHODS)


def takes(method: Callable[..., Any], name: str) -> bool:
    """Whether a method shows a parameter that can be given by its name."""
    try:
        found = inspect.signature(method).parameters.get(name)
    except Exception:  # noqa: BLE001  made in C, or an object whose attributes raise
        return False
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return found is not None and found.kind in kinds


class LoopsLock:
    """As asyncio.Lock, which wakes no one in another loop. Those who wait get it in their order."""

    def __init__(self) -> None:
        """Begin free."""
        self._guard = threading.Lock()
        self._waiting = deque[Future[None]]()
        self._is_held = False

    async def __aenter__(self) -> None:
        """Wait for it, and hold it."""
        with self._guard:
            if not self._is_held:
                self._is_held = True
                return
            turn = Future[None]()
            self._waiting.append(turn)
        try:
            await asyncio.wrap_future(turn)
        except BaseException:
            if not turn.cancel():  # it came just before the wait was cancelled
                self._pass_on()
            raise

    async def __aexit__(self, *_: object) -> None:
        """Pass it on."""
        self._pass_on()

    def _pass_on(self) -> None:
        with self._guard:
            while self._waiting:
                turn = self._waiting.popleft()
                if turn.set_running_or_notify_cancel():
                    turn.set_result(None)
                    return
            self._is_held = False


def client_of(given: AsyncOpenAI | None) -> AsyncOpenAI:
    """Return the given client, else the default one, else one made of the environment."""
    if given is not None:
        return given
    known = default_client()
    if known is not None:
        return known
    from openai import AsyncOpenAI

    return AsyncOpenAI()
