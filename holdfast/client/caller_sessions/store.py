"""A session of the caller's own, as a run uses it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from holdfast.client.caller_sessions.protocol import SessionLike, name_of, takes, takes_wrapper
from holdfast.client.caller_sessions.shown import was_shown
from holdfast.client.caller_sessions.tail import TAIL, Tail, tail_of
from holdfast.errors import UserError
from holdfast.values.base import Json
from holdfast.values.checks.json_shapes import is_array
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.values.text.logs import log
from holdfast.values.text.shown import shown

ALL = 1_000_000
"""A limit that no session reaches: without one, some give what their settings say."""

FRESH_SECONDS = 60.0
"""How long a read of a session serves for the turn: what others add later hides its place."""

BY_OPENAI = "OpenAIConversationsSession"
"""Holdfast's class and the Agents SDK's, which leaves it to the run to take ids out of items."""

Item = dict[str, Json]
Invoke = Callable[..., Awaitable[Any]]
"""Calls a function, async or not, in the caller's event loop, and returns its result."""


class CallerStore:
    """A session of the caller's own: each of its methods is called in the caller's event loop.

    Attributes:
        wrapper: The run's context, for sessions that take it.
    """

    def __init__(
        self, session: SessionLike, invoke: Invoke, wrapper: RunContextWrapper[Any]
    ) -> None:
        """Name the session.

        Args:
            session: A session that `check_session` has passed.
            invoke: Calls its methods.
            wrapper: The run's context, for sessions that take it.
        """
        self._session = session
        self._invoke = invoke
        self._takes_wrapper = takes_wrapper(session)
        self._takes_limit = takes(session.get_items, "limit")
        self._names_items = any(kind.__name__ == BY_OPENAI for kind in type(session).__mro__)
        self.wrapper = wrapper
        self._seen: Tail | None = None
        self._seen_at = 0.0

    @property
    def name(self) -> str:
        """Its session_id; empty while it has none."""
        return name_of(self._session)

    @property
    def limit(self) -> int | None:
        """Number of items that a run sees which says nothing else; None for all.

        Raises:
            UserError: session_settings is neither a SessionSettings nor a dict of its fields.
        """
        given: Any = getattr(self._session, "session_settings", None)
        if given is None:
            return None
        if not isinstance(given, Mapping):
            given = {"limit": getattr(given, "limit", None)}
        limit: object = cast("Mapping[str, object]", given).get("limit")
        if limit is None or (isinstance(limit, int) and not isinstance(limit, bool)):
            return limit
        msg = f"session_settings.limit of session {self.name!r} must be a number; it was {limit!r}."
        raise UserError(msg)

    async def items(self, limit: int | None = None) -> list[Item]:
        """Read its items, oldest first.

        Args:
            limit: Number of the newest items to read; None for what it gives unasked.

        Raises:
            UserError: It gives something else than a list of items.
            Exception: Whatever the session raises.
        """
        asked = self._more()
        if limit is not None and self._takes_limit:
            asked["limit"] = limit
        found = await self._invoke(partial(self._session.get_items, **asked))
        if not is_array(found):
            msg = f"get_items of session {self.name!r} must return a list; it gave {shown(found)}."
            raise UserError(msg)
        items = [self._item(each) for each in found]
        return items if limit is None else items[max(len(items) - max(limit, 0), 0) :]

    def remember(self, items: Sequence[Item], limit: int | None) -> None:
        """Keep what the run has read of it, for its turn.

        Args:
            items: What it gave.
            limit: The number of items that it was asked for; None for all.
        """
        self._seen, self._seen_at = tail_of(items, limit), time.monotonic()

    async def tail(self) -> Tail:
        """Return its newest items: as the run has read them, unless that was little or long ago.

        Raises:
            Exception: As for `items`.
        """
        is_fresh = time.monotonic() < self._seen_at + FRESH_SECONDS
        if self._seen is not None and self._seen.is_enough and is_fresh:
            return self._seen
        limit = TAIL + 1
        return tail_of(await self.items(limit), limit)

    async def add(self, items: Sequence[Item]) -> None:
        """Add items behind the others.

        Raises:
            Exception: Whatever the session raises.
        """
        adding: Callable[..., Any] = self._session.add_items
        sent = map(_unnamed, items) if self._names_items else items
        await self._invoke(partial(adding, **self._more()), list(sent))

    async def compact(
        self, response_id: str | None, shown: Sequence[Mapping[str, Any]], *, store: bool | None
    ) -> None:
        """Let a session that folds old items do so, after a turn.

        What the last model call was not shown would be lost: then nothing is folded.

        Args:
            response_id: The last response of the turn, if the provider gave it an id.
            shown: What that call was sent, and its answer.
            store: Whether the provider keeps the response; None for what is usual.

        Raises:
            Exception: Whatever the session raises.
        """
        fold = getattr(self._session, "run_compaction", None)
        if not callable(fold):
            return
        if not was_shown(await self.items(ALL), shown):
            log.warning("Session %r is not folded: no model was shown all of it.", self.name)
            return
        asked: dict[str, Any] = {"response_id": response_id} if response_id else {}
        await self._invoke(fold, asked if store is None else {**asked, "store": store})

    def _more(self) -> dict[str, Any]:
        return {"wrapper": self.wrapper} if self._takes_wrapper else {}

    def _item(self, given: object) -> Item:
        if hasattr(given, "model_dump"):
            given = cast("Any", given).model_dump(mode="json", exclude_unset=True)
        if isinstance(given, Mapping):
            return dict(cast("Mapping[str, Json]", given))
        msg = f"An item of session {self.name!r} must be a dict; it was {shown(given)}."
        raise UserError(msg)


def _unnamed(item: Item) -> Item:
    """Leave out of an item what is not a part of it for a provider that names items itself."""
    return {key: item[key] for key in item if key not in ("id", "provider_data")}
