"""Sessions that fold what they hold: by the names of the Agents SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, TypeGuard, runtime_checkable

from holdfast.agents.items.run_items import member, replayable
from holdfast.agents.run_config import SessionSettings, as_session_settings
from holdfast.client.caller_sessions.protocol import (
    LoopsLock,
    SessionABC,
    SessionLike,
    check_session,
    client_of,
    takes,
)
from holdfast.client.caller_sessions.store import ALL
from holdfast.errors import InvalidArgumentError
from holdfast.models.openai.item_contents import FAKE_ID
from holdfast.values.base import Json
from holdfast.values.checks.gate import is_array, is_object
from holdfast.values.code.user_calls import yes_or_no
from holdfast.values.text.logs import log

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


def without_plain_ids(items: Sequence[Any]) -> list[Any]:
    """Return items without the ids of answers that the provider need not know again.

    It needs them next to reasoning and items of its own tools. Other providers refuse them.
    """
    found: list[Any] = []
    for is_said, some in groupby(items, _is_said):
        block = list(some)
        is_plain = not any(map(_needs_ids, block))
        found += [
            {key: item[key] for key in item if key != "id"}
            if is_said and (is_plain or item.get("id") == FAKE_ID)
            else item
            for item in block
        ]
    return found


def _is_said(item: object) -> bool:
    """Whether an item is of an answer."""
    if not is_object(item) or item.get("type") == "function_call_output":
        return False
    return bool(item.get("role", "assistant") == "assistant")


def _needs_ids(item: Any) -> bool:
    """Whether an item has its meaning for the provider by its id, as those next to it have."""
    if not is_object(item) or item.get("type") == "function_call":
        return False
    content = item.get("content")
    parts = filter(is_object, content) if is_array(content) else ()
    has_more = any(part.get("logprobs") or part.get("annotations") for part in parts)
    return item.get("type", "message") != "message" or "phase" in item or has_more


CompactionMode = Literal["previous_response_id", "input", "auto"]
WORTH_FOLDING = 10
"""Number of items of models and tools at which a session is folded."""

ENCRYPTED = "__enc__"
"""Member of the items that the EncryptedSession of the Agents SDK keeps."""


class OpenAIResponsesCompactionArgs(TypedDict, total=False):
    """Argument of `run_compaction`.

    Attributes:
        response_id: The last response of the turn.
        compaction_mode: Whether the response or the items are sent to be folded.
        store: Whether the provider stores responses.
        force: Whether to fold, however little there is.
    """

    response_id: str
    compaction_mode: CompactionMode
    store: bool
    force: bool


@runtime_checkable
class OpenAIResponsesCompactionAwareSession(Protocol):
    """A session that is asked to fold itself after each turn."""

    async def run_compaction(self, args: OpenAIResponsesCompactionArgs | None = None) -> None:
        """Fold the session."""
        ...


def is_openai_responses_compaction_aware_session(
    session: object,
) -> TypeGuard[OpenAIResponsesCompactionAwareSession]:
    """Whether a session is asked to fold itself after each turn."""
    return callable(getattr(session, "run_compaction", None))


class OpenAIResponsesCompactionSession(SessionABC):
    """A session whose items the Responses API folds once there are many.

    After a turn it is folded if the model was shown all that it holds. Meanwhile, methods that
    change it wait. Methods that read it wait while its items are exchanged.

    Attributes:
        underlying_session: Where the items are.
        model: The model that folds.
    """

    def __init__(
        self,
        session_id: str,
        underlying_session: SessionLike,
        *,
        client: AsyncOpenAI | None = None,
        model: str = "gpt-4.1",
        compaction_mode: CompactionMode = "auto",
        should_trigger_compaction: Callable[[dict[str, Any]], bool] | None = None,
        max_rollback_items: int | None = None,
    ) -> None:
        """Wrap a session.

        Args:
            session_id: Names the conversation.
            underlying_session: Where the items are.
            client: Calls the API; by default one made of the environment, or the one of
                `set_default_openai_client`.
            model: The model that folds.
            compaction_mode: "input" sends the items, "previous_response_id" the id of the last
                response; "auto" the id, if there is one.
            should_trigger_compaction: Called with a dict that has `session_items`,
                `compaction_candidate_items`, `response_id` and `compaction_mode`; decides whether
                to fold now.
            max_rollback_items: Most items that are folded; more are refused before the API is
                called. None for no limit.

        Raises:
            InvalidArgumentError: It is not a session, or one that the provider keeps; or
                max_rollback_items is below 1.
        """
        check_session(underlying_session)
        if isinstance(underlying_session, OpenAIConversationsSession):
            raise InvalidArgumentError(
                "An OpenAIConversationsSession cannot be folded: the provider keeps its items. Give"
                " it to the run as it is."
            )
        if max_rollback_items is not None and max_rollback_items < 1:
            msg = f"max_rollback_items={max_rollback_items} must be positive or None."
            raise InvalidArgumentError(msg)
        self.session_id = session_id
        self.underlying_session = underlying_session
        self.session_settings = getattr(underlying_session, "session_settings", None)
        self.model = model
        self.max_rollback_items = max_rollback_items
        self._given = client
        self._mode = compaction_mode
        self._decide = should_trigger_compaction or _are_many
        self._changing, self._exchanging = LoopsLock(), LoopsLock()

    async def run_compaction(self, args: OpenAIResponsesCompactionArgs | None = None) -> None:
        """Fold the items, if there are many or it is forced.

        All are folded, whatever number of them the session gives unasked. Items that others have
        added meanwhile are kept: nothing is folded then. The exchange is two calls of the session,
        so a process that dies between them leaves it empty.

        Raises:
            ValueError: The id of a response must be sent, and is not known; there are more items
                than max_rollback_items; or a session around this one has encrypted them.
            Exception: Whatever the client or the session raises; the items are as they were.
        """
        async with self._changing:
            await self._fold(args or OpenAIResponsesCompactionArgs())

    async def _fold(self, asked: OpenAIResponsesCompactionArgs) -> None:
        items = await self._items()
        if (most := self.max_rollback_items) is not None and len(items) > most:
            raise InvalidArgumentError(
                f"Session {self.session_id!r} has more items than max_rollback_items={most}."
                " Nothing was folded: give a larger number, or None for no limit."
            )
        if any(member(each, ENCRYPTED) is not None for each in items):
            raise InvalidArgumentError(
                f"Session {self.session_id!r} has items that a session around it has encrypted,"
                " which could not read what the API makes of them. Nothing was folded: give the"
                " encrypting session to this one as its underlying_session."
            )
        response, mode = asked.get("response_id"), asked.get("compaction_mode", self._mode)
        by_id = mode == "previous_response_id" or (
            mode == "auto" and response is not None and asked.get("store") is not False
        )
        told = {
            "session_items": items,
            "compaction_candidate_items": _foldable(items),
            "response_id": response,
            "compaction_mode": "previous_response_id" if by_id else "input",
        }
        if by_id and response is None:
            raise ValueError("run_compaction by previous_response_id needs response_id.")
        if not asked.get("force") and not yes_or_no(self._decide, self._decide(told)):
            return
        sent: dict[str, Any] = (
            {"previous_response_id": response} if by_id else {"input": without_plain_ids(items)}
        )
        folded = await client_of(self._given).responses.compact(model=self.model, **sent)
        made = _as_input([replayable(each) for each in folded.output or []])
        if made and await self._items() == items:
            await self._exchange(items, made)

    async def _items(self) -> list[Any]:
        """Read the items; of too many, one more than may be folded.

        They are copied: a session may give the list that it keeps.
        """
        if not takes(self.underlying_session.get_items, "limit"):
            return list(await self.underlying_session.get_items())
        most = self.max_rollback_items
        return list(await self.underlying_session.get_items(ALL if most is None else most + 1))

    async def _exchange(self, old: list[Any], new: list[Any]) -> None:
        """Put new items instead of the old ones, which are put back if that fails."""
        left = old
        async with self._exchanging:
            try:
                await self.underlying_session.clear_session()
                left = new
                await self.underlying_session.add_items(list(new))
            except BaseException:  # a cancelled one has cleared the session, too
                back = asyncio.ensure_future(self._put_back(old, left))
                cancelled: asyncio.CancelledError | None = None
                while not back.done():
                    try:
                        await asyncio.shield(back)
                    except asyncio.CancelledError as again:
                        cancelled = again
                if cancelled is not None:
                    raise cancelled from None
                raise

    async def _put_back(self, old: list[Any], left: list[Any]) -> None:
        """Put the items back, before what others have added.

        Args:
            old: The items.
            left: Items that the exchange may have left in part.
        """
        try:
            now = await self._items()
            if now == old:
                return
            added = _others(now, left)
            if now:
                await self.underlying_session.clear_session()
            await self.underlying_session.add_items([*old, *added])
        except Exception:  # the error that led here is raised
            log.exception("Session %r has lost its items while it was folded.", self.session_id)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the items, oldest first.

        Args:
            limit: Number of the newest items; None for all.
        """
        async with self._exchanging:
            return await self.underlying_session.get_items(limit)

    async def add_items(self, items: list[Any]) -> None:
        """Add items behind the others."""
        async with self._changing:
            await self.underlying_session.add_items(items)

    async def pop_item(self) -> Any:
        """Take out the newest item and return it; None without one."""
        async with self._changing:
            return await self.underlying_session.pop_item()

    async def clear_session(self) -> None:
        """Remove all items."""
        async with self._changing:
            await self.underlying_session.clear_session()


def _others(items: list[Any], known: list[Any]) -> list[Any]:
    """Return the items that are not known; known ones may be missing, but keep their order."""
    at, found = 0, list[Any]()
    for item in items:
        try:
            at = known.index(item, at) + 1
        except ValueError:
            found.append(item)
    return found


def _as_input(folded: list[dict[str, Json]]) -> list[dict[str, Json]]:
    """Return what the API has made of items in the form in which it takes them.

    It gives members that say nothing as null, and keeps the ids of messages whose reasoning it has
    left out: it refuses both.
    """
    has_reasoning = any(item.get("type") == "reasoning" for item in folded)
    made = [
        {**item, "content": _parts(item["content"])} if "content" in item else item
        for item in folded
    ]
    if has_reasoning:
        return made
    return [
        {key: value for key, value in item.items() if key != "id"}
        if item.get("role") == "assistant"
        else item
        for item in made
    ]


def _parts(content: Json) -> Json:
    if not is_array(content):
        return content
    return [
        {key: value for key, value in part.items() if value is not None}
        if is_object(part)
        else part
        for part in content
    ]


def _foldable(items: list[Any]) -> list[Any]:
    kept = ("user", "developer", "system")
    return [
        each
        for each in items
        if member(each, "role") not in kept and member(each, "type") != "compaction"
    ]


def _are_many(told: dict[str, Any]) -> bool:
    return len(told["compaction_candidate_items"]) >= WORTH_FOLDING
