"""Sessions that fold what they hold: by the names of the Agents SDK."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, TypeGuard, runtime_checkable

from holdfast.agents.items.raw_items import member, replayable
from holdfast.client.caller_sessions.item_ids import without_plain_ids
from holdfast.client.caller_sessions.protocol import SessionABC, SessionLike, check_session
from holdfast.client.caller_sessions.provider_client import client_of
from holdfast.errors import InvalidArgumentError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

CompactionMode = Literal["previous_response_id", "input", "auto"]
WORTH_FOLDING = 10
"""Items of models and tools from which on a session is folded by itself."""


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
            InvalidArgumentError: It is no session, or max_rollback_items is below 1.
        """
        check_session(underlying_session)
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

    async def run_compaction(self, args: OpenAIResponsesCompactionArgs | None = None) -> None:
        """Fold the items, if there are many or it is forced.

        Items that others have added meanwhile are kept: nothing is folded then. The exchange is two
        calls of the session, so a process that dies between them leaves it empty.

        Raises:
            ValueError: The id of a response is to be sent, and there is none; or there are more
                items than max_rollback_items.
            Exception: Whatever the client or the session raises; the items are as they were, unless
                the session fails while they are exchanged.
        """
        asked = args or OpenAIResponsesCompactionArgs()
        items = await self._items()
        if (most := self.max_rollback_items) is not None and len(items) > most:
            msg = (
                f"Session {self.session_id!r} has more items than max_rollback_items={most}."
                " Nothing was folded: give a larger number, or None for no limit."
            )
            raise InvalidArgumentError(msg)
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
        if not asked.get("force") and not self._decide(told):
            return
        if by_id and response is None:
            msg = "run_compaction by previous_response_id needs response_id."
            raise ValueError(msg)
        sent: dict[str, Any] = (
            {"previous_response_id": response} if by_id else {"input": without_plain_ids(items)}
        )
        folded = await client_of(self._given).responses.compact(model=self.model, **sent)
        made = [replayable(each) for each in folded.output or []]
        if await self._items() != items:
            return
        await self.underlying_session.clear_session()
        if made:
            await self.underlying_session.add_items(made)

    async def _items(self) -> list[Any]:
        """Read the items; of too many, one more than may be folded."""
        most = self.max_rollback_items
        return await self.underlying_session.get_items(None if most is None else most + 1)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the items, oldest first.

        Args:
            limit: Number of the newest items; None for all.
        """
        return await self.underlying_session.get_items(limit)

    async def add_items(self, items: list[Any]) -> None:
        """Add items behind the others."""
        await self.underlying_session.add_items(items)

    async def pop_item(self) -> Any:
        """Take out the newest item and return it; None when there is none."""
        return await self.underlying_session.pop_item()

    async def clear_session(self) -> None:
        """Remove all items."""
        await self.underlying_session.clear_session()


def _foldable(items: list[Any]) -> list[Any]:
    kept = ("user", "developer", "system")
    return [
        each
        for each in items
        if member(each, "role") not in kept and member(each, "type") != "compaction"
    ]


def _are_many(told: dict[str, Any]) -> bool:
    return len(told["compaction_candidate_items"]) >= WORTH_FOLDING
