"""The conversation of an agent: a durable session, by the names of LlamaIndex's memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.client.agent_runner.sessions import Session
from holdfast.client.blocking import Session as BlockingSession
from holdfast.errors import InvalidArgumentError
from holdfast.llama_index.blocking import blocking, on_shared_loop
from holdfast.llama_index.llms.messages import chat_message, to_message
from holdfast.values.messages import Message
from holdfast.values.text.shown import shown

Connect = Callable[[], Awaitable[AgentRunner]]
"""Returns the runner that reaches the session."""


class Memory:
    """A conversation, kept in a session of Holdfast: another process reads the same.

    `reset` and `set` begin a new session next to the old one, unless the session was named by the
    caller; so a program that is started again after a kill finds each part as it was. Messages are
    not cut to a number of tokens.
    """

    def __init__(self, connect: Connect, name: str, *, is_named: bool = False) -> None:
        """Name a conversation.

        Args:
            connect: Returns the runner that reaches the session.
            name: Name of the session.
            is_named: Whether the caller named it, so that it lasts over runs of the program.
        """
        self._connect = connect
        self._name = name
        self._is_named = is_named
        self._begun = 0
        self._put = 0
        self._first: list[Message] = []

    def begin_with(self, messages: Sequence[Message]) -> None:
        """Have the conversation begin with these messages, unless it has some."""
        self._first = list(messages)

    async def abegin(self) -> None:
        """Put the messages that the conversation begins with, once; call it on the shared loop."""
        first, self._first = self._first, []
        if not first:
            return
        session = await self._session()
        if not self._is_named or not await session.chat_history():
            await session.append(first, once="" if self._is_named else "first")

    @property
    def session(self) -> str:
        """Name of the session now."""
        return self._name if not self._begun else f"{self._name}.{self._begun + 1}"

    async def _session(self) -> Session:
        return (await self._connect()).session(self.session)

    @on_shared_loop
    async def aget_all(self) -> list[Any]:
        """Return all messages, oldest first."""
        await self.abegin()
        return [chat_message(each) for each in await (await self._session()).chat_history()]

    @on_shared_loop
    async def aput_messages(self, messages: Sequence[Any]) -> None:
        """Append messages."""
        read = [to_message(each) for each in messages]
        self._put += 1
        name = "" if self._is_named else f"put{self._put}"
        await self.abegin()
        await (await self._session()).append(read, once=name)

    @on_shared_loop
    async def areset(self) -> None:
        """Forget all messages."""
        self._first = []
        if self._is_named:
            await (await self._session()).reset()
        else:
            self._begun += 1
            self._put = 0

    @on_shared_loop
    async def aset(self, messages: Sequence[Any]) -> None:
        """Replace all messages."""
        read = [to_message(each) for each in messages]
        await self.areset()
        if read:
            await self.aput_messages(read)

    async def aget(self, input: str | None = None, **_: Any) -> list[Any]:
        """Return all messages, oldest first."""
        del input
        return await self.aget_all()

    async def aput(self, message: Any) -> None:
        """Append a message."""
        await self.aput_messages([message])

    get_all = blocking(aget_all)
    """Return all messages, oldest first."""

    get = blocking(aget)
    """Return all messages, oldest first."""

    put = blocking(aput)
    """Append a message."""

    put_messages = blocking(aput_messages)
    """Append messages."""

    set = blocking(aset)
    """Replace all messages."""

    reset = blocking(areset)
    """Forget all messages."""


def memory_of(given: Any, connect: Connect, name: str) -> tuple[Memory, list[Message]]:
    """Return the memory of an agent, and the messages that it begins with.

    Args:
        given: A session or its name, a memory of ours, or a memory with messages.
        connect: Returns the runner that reaches sessions.
        name: Name of the session when none is given.

    Raises:
        InvalidArgumentError: It is not one of these.
    """
    match given:
        case None:
            return Memory(connect, name), []
        case Memory():
            return given, []
        case str() | Session() | BlockingSession():
            named = given if isinstance(given, str) else given.name
            return Memory(connect, named, is_named=True), []
        case _ if callable(getattr(given, "get_all", None)):
            return Memory(connect, name), [to_message(each) for each in given.get_all()]
        case _:
            raise InvalidArgumentError(
                f"memory={shown(given)} is not a memory. Pass the name of a session, a Session, or"
                " a memory with get_all()."
            )
