"""A session of the caller's own, as a run uses it.

From its items follows how much of a turn it holds, and whether a model was shown all of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

from holdfast.client.caller_sessions.protocol import SessionLike, name_of, takes, takes_wrapper
from holdfast.errors import UserError
from holdfast.models.base import foreign_error
from holdfast.values.base import Json, canonical, digest, pauses
from holdfast.values.checks.gate import is_array, is_object
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.values.settings import ModelSettings
from holdfast.values.text.logs import log
from holdfast.values.text.shown import shown

TAIL = 99
"""Number of a session's newest items by which the place of a turn is known again."""

FEW = 10
"""A place after fewer items is too easily found twice in a conversation that goes on."""

UNSTABLE = ("id", "status", "provider_data")
"""Fields that a session may add to an item or leave out."""

Item = dict[str, Json]


class Tail(NamedTuple):
    """The newest items of a session at one time.

    Attributes:
        marks: Their marks, oldest first, at most `TAIL`.
        is_whole: Whether these were all of its items.
    """

    marks: tuple[str, ...]
    is_whole: bool

    @property
    def is_enough(self) -> bool:
        """Whether a turn after them is found again."""
        return self.is_whole or len(self.marks) >= FEW


def tail_of(items: Sequence[Item], limit: int | None) -> Tail:
    """Return the tail of a session that was read.

    Args:
        items: What it gave.
        limit: The number of items that it was asked for; None for all.
    """
    has_all = limit is None or len(items) < limit
    return Tail(marks(items[-TAIL:]), is_whole=has_all and len(items) <= TAIL)


def marks(items: Iterable[Item]) -> tuple[str, ...]:
    """Return a digest of each item, the same for an item as it was given and as it is stored."""
    return tuple(digest(canonical(_plain(item)))[:16] for item in items)


def _plain(item: Item) -> Item:
    kept = {key: v for key, v in item.items() if key not in UNSTABLE and v is not None}
    if kept.get("type") == "message":
        del kept["type"]
    return kept


def stored_count(
    before: Sequence[str], now: Sequence[str], turn: Sequence[str], *, is_whole: bool
) -> int | None:
    """Count how many items of a turn a session holds, from the turn's first one on.

    Args:
        before: Marks of the newest items that the session had before the turn was written.
        now: Marks of all items that it has now.
        turn: Marks of the turn.
        is_whole: Whether `before` has all items of that time.

    Returns:
        The count; None when it cannot be told: the old items are gone, others have written
        meanwhile and the turn is not among theirs, or a conversation that repeats itself looks the
        same with the turn and without.
    """
    size = len(before)
    ends = [size] if is_whole else range(size, len(now) + 1)
    found = {
        _count(now[end:], turn)
        for end in ends
        if end <= len(now) and tuple(now[end - size : end]) == tuple(before)
    }
    return found.pop() if len(found) == 1 else None


def _count(added: Sequence[str], turn: Sequence[str]) -> int | None:
    """Count what was added of a turn; None when something else was added."""
    size = len(turn)
    if any(tuple(added[k : k + size]) == tuple(turn) for k in range(len(added) - size + 1)):
        return size
    return len(added) if tuple(turn[: len(added)]) == tuple(added) else None


_PARTS = ("content", "output", "summary")
_SAID = ("role", "call_id", "name", "arguments", "encrypted_content")


def was_shown(items: Iterable[Item], shown: Iterable[Mapping[str, Any]]) -> bool:
    """Whether all items are among those of a model's last call, in their order.

    An image or file counts as any other: sessions and records keep them in forms of their own.

    Args:
        items: What a session holds.
        shown: What the call was sent, and its answer.
    """
    left = iter([_said(each) for each in shown])
    return all(_said(item) in left for item in items)  # `in` goes on behind what it has found


def _said(item: Mapping[str, Any]) -> bytes:
    """Return what an item says, whatever form a session gives it."""
    said = {key: item[key] for key in _SAID if item.get(key) is not None}
    parts: Item = {key: _parts(item.get(key)) for key in _PARTS}
    return canonical({"type": item.get("type") or "message", **parts, **said})


def _parts(given: Json) -> list[Json]:
    if not is_array(given):
        return [] if given is None else [given]
    return [_part(part) if is_object(part) else part for part in given]


def _part(part: Mapping[str, Json]) -> Json:
    return part["text"] if "text" in part else {"type": part.get("type")}


ALL = 1_000_000
"""A limit that no session reaches: without one, some give what their settings say."""

FRESH_SECONDS = 60.0
"""How long a read of a session serves for the turn: what others add later hides its place."""

BY_OPENAI = "OpenAIConversationsSession"
"""Holdfast's class and the Agents SDK's, which leaves it to the run to take ids out of items."""


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
        self, response_id: str | None, shown: Sequence[Mapping[str, Any]], settings: ModelSettings
    ) -> None:
        """Let a session that folds old items do so, after a turn.

        What the last model call was not shown would be lost: then nothing is folded. A rate limit
        is waited out, as one of the model's calls.

        Args:
            response_id: The last response of the turn, if the provider gave it an id.
            shown: What that call was sent, and its answer.
            settings: Whether the provider keeps the response, and how long limits may last.

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
        if settings.store is not None:
            asked["store"] = settings.store
        last = time.monotonic() + settings.seconds_of_limits
        for pause in pauses(1.0, 60.0):
            try:
                await self._invoke(fold, asked)
                break
            except Exception as error:
                known = foreign_error(error, f"Session {self.name!r} is folded later: {error}")
                wait = getattr(known, "retry_after", None) or pause
                if not getattr(known, "is_limit", False) or time.monotonic() + wait > last:
                    raise
            log.warning("%s The next attempt is in %g s.", known, wait)
            await asyncio.sleep(wait)

    def _more(self) -> dict[str, Any]:
        return {"wrapper": self.wrapper} if self._takes_wrapper else {}

    def _item(self, given: object) -> Item:
        if hasattr(given, "model_dump"):
            given = cast("Any", given).model_dump(mode="json", exclude_unset=True)
        if isinstance(given, Mapping):
            return dict(cast("Mapping[str, Json]", given))
        raise UserError(f"An item of session {self.name!r} must be a dict; it was {shown(given)}.")


def _unnamed(item: Item) -> Item:
    """Leave out of an item what is not a part of it for a provider that names items itself."""
    return {key: item[key] for key in item if key not in ("id", "provider_data")}
