"""OpenAIConversationsSession: a session in a conversation that OpenAI keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdfast.agents.run_config import SessionSettings, as_session_settings
from holdfast.client.caller_sessions.protocol import LoopsLock, SessionABC, client_of

if TYPE_CHECKING:
    from openai import AsyncOpenAI

MOST_AT_ONCE = 20
"""Items that one request may add."""

OF_PROVIDER = ("id", "status", "provider_data")
"""Members that the provider sets in its items."""


class OpenAIConversationsSession(SessionABC):
    """A session in a conversation that OpenAI keeps, made when it is first used.

    A turn of more than 20 items is added by several requests: `docs/sessions.md` says what
    happens when the process dies between them.
    """

    def __init__(
        self,
        *,
        conversation_id: str | None = None,
        openai_client: AsyncOpenAI | None = None,
        session_settings: SessionSettings | Mapping[str, Any] | None = None,
    ) -> None:
        """Take the settings; nothing is sent yet.

        Args:
            conversation_id: An existing conversation.
            openai_client: Calls the API; by default one made of the environment, or the one of
                `set_default_openai_client`.
            session_settings: How runs read it that say nothing else.

        Raises:
            UserError: session_settings cannot be used.
        """
        self._id = conversation_id
        self._given = openai_client
        self._lock, self._writes = LoopsLock(), LoopsLock()
        self.session_settings = as_session_settings(session_settings) or SessionSettings()

    @property
    def session_id(self) -> str:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        """The conversation's id.

        Raises:
            ValueError: The conversation is not made yet.
        """
        if self._id is None:
            msg = "The conversation is made when it is first read or written; it has no id yet."
            raise ValueError(msg)
        return self._id

    async def _get_session_id(self) -> str:
        """Return the conversation's id, and make it first if necessary.

        Programs of the Agents SDK call it by this name.
        """
        async with self._lock:
            if self._id is None:
                made = await client_of(self._given).conversations.create(items=[])
                self._id = made.id
            return self._id

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the items, oldest first.

        Args:
            limit: Number of the newest items; None for what session_settings say.

        Raises:
            openai.OpenAIError: They could not be read.
        """
        most = self.session_settings.limit if limit is None else limit
        if most == 0:
            return []
        conversation = await self._get_session_id()
        found: list[Any] = []
        items = client_of(self._given).conversations.items
        async for item in items.list(conversation_id=conversation, order="desc"):
            found.append(item.model_dump(exclude_unset=True, warnings=False))
            if most is not None and len(found) >= most:
                break
        return found[::-1]

    async def add_items(self, items: list[Any]) -> None:
        """Add items behind the others.

        Raises:
            openai.OpenAIError: They could not be added, or only those before the failed request.
        """
        if not items:
            return
        conversation = await self._get_session_id()
        own = [{key: item[key] for key in item if key not in OF_PROVIDER} for item in items]
        client = client_of(self._given)
        if len(own) > MOST_AT_ONCE:  # a repeated request whose answer was lost adds its items twice
            client = client.with_options(max_retries=0)
        async with self._writes:
            for start in range(0, len(own), MOST_AT_ONCE):
                some: Any = own[start : start + MOST_AT_ONCE]
                await client.conversations.items.create(conversation_id=conversation, items=some)

    async def pop_item(self) -> Any:
        """Take out the newest item and return it; None without one.

        Raises:
            openai.OpenAIError: It could not be read or deleted.
        """
        newest = await self.get_items(limit=1)
        if not newest:
            return None
        await client_of(self._given).conversations.items.delete(
            conversation_id=await self._get_session_id(), item_id=str(newest[0]["id"])
        )
        return newest[0]

    async def clear_session(self) -> None:
        """Delete the conversation; the next use makes another one.

        Raises:
            openai.OpenAIError: It could not be deleted.
        """
        if self._id is not None:
            await client_of(self._given).conversations.delete(conversation_id=self._id)
            self._id = None
