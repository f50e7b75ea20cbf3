"""The turn of a run in a session of the caller's own: written once, no matter which process dies.

A process that is to write the turn of a closed task claims it with a record in the archive, which
holds the newest items of the session before the turn; then it calls `add_items`, then it notes that
this is done. A process that finds a claim without that note waits, as its owner may be at work,
claims the turn again, and compares the session with the first claim: it adds what is missing.

The first claim may take what the process has read for the run: nothing is added before a claim, so
the turn was not in the session then, and the session need not be read once more.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import suppress
from itertools import count

from holdfast.archive.archive import Archive
from holdfast.archive.contents import resolve_message
from holdfast.archive.kept_answers import turn_name
from holdfast.archive.segments import read_json, read_messages
from holdfast.client.caller_sessions.store import ALL, CallerStore, Item, marks, stored_count
from holdfast.errors import BlobMissingError, SessionUnclearError
from holdfast.models.openai.items import made_items
from holdfast.reading.reader import Reader
from holdfast.values.base import Value, pauses

GRACE_SECONDS = 15.0
"""How long a claim is left to the process that made it."""


class Claim(Value):
    """A process's claim to write a turn.

    Attributes:
        owner: Names the attempt.
        at: When it was made, in seconds since 1970.
        before: Marks of the newest items of the session, read at a time before the first attempt.
        is_whole: Whether these were all of its items.
        failed: Whether add_items has raised: the next attempt need not wait.
    """

    owner: str
    at: float
    before: tuple[str, ...] = ()
    is_whole: bool = False
    failed: bool = False


async def write_turn(store: CallerStore, reader: Reader, task_id: str) -> bool:
    """Write the turn of a task to the session of its caller, unless it has it or gets none.

    Returns:
        Whether this call has written it.

    Raises:
        SessionUnclearError: An attempt died, and whether the session has the turn cannot be told.
        Exception: Whatever the session raises; the next call makes another attempt.
    """
    archive = reader.archive
    record = await reader.records.read(task_id)
    if record is None or record.turn is None or record.head.caller_session is None:
        return False
    adds = record.head.caller_session.adds
    items: list[Item] = list(await read_json(archive, adds)) if adds else []
    found = await read_messages(archive, record.turn.sha256)
    for each in found:
        items += made_items(await resolve_message(each, reader.text))
    return bool(items) and await _Writing(store, archive, task_id, items).write()


class _Writing:
    """One attempt at writing a turn."""

    def __init__(
        self, store: CallerStore, archive: Archive, task_id: str, items: list[Item]
    ) -> None:
        self._store = store
        self._archive = archive
        self._task_id = task_id
        self._items = items

    async def write(self) -> bool:
        """Write what the session lacks; return whether this attempt has ended the writing."""
        claimed = await self._claimed()
        if claimed is None:
            return False
        number, claim = claimed
        try:
            have = await self._have(claim) if number else 0
            if have < len(self._items):
                await self._store.add(self._items[have:])
        except Exception:
            await self._put(number, claim.model_copy(update={"failed": True}))
            raise
        await self._archive.aput_record(turn_name(self._task_id, "done"), {})
        return True

    async def _claimed(self) -> tuple[int, Claim] | None:
        """Claim the turn; None when it has been written."""
        first: Claim | None = None
        for number in count():
            if await self._is_done():
                return None
            there = await self._get(number)
            if there is None:
                mine = await self._claim(first)
                name = turn_name(self._task_id, number)
                there = Claim.model_validate(await self._archive.acreate_record(name, mine.wire()))
                if there.owner == mine.owner:
                    return number, mine
            first = first or there
            await self._leave_to(there, number)
        raise AssertionError

    async def _claim(self, first: Claim | None) -> Claim:
        mine = Claim(owner=uuid.uuid4().hex, at=time.time())
        if first is not None:
            return mine.model_copy(update={"before": first.before, "is_whole": first.is_whole})
        seen = await self._store.tail()
        return mine.model_copy(update={"before": seen.marks, "is_whole": seen.is_whole})

    async def _leave_to(self, claim: Claim, number: int) -> None:
        """Wait until the owner of a claim has done its work, has failed, or counts as dead."""
        for pause in pauses(0.05, 1.0):
            if claim.failed or time.time() >= claim.at + GRACE_SECONDS or await self._is_done():
                return
            await asyncio.sleep(pause)
            claim = await self._get(number) or claim

    async def _have(self, claim: Claim) -> int:
        """Count the turn's items that the session has.

        Raises:
            SessionUnclearError: It cannot be told.
        """
        now = marks(await self._store.items(ALL))
        have = stored_count(claim.before, now, marks(self._items), is_whole=claim.is_whole)
        if have is None:
            raise SessionUnclearError(self._task_id, self._store.name, self._items)
        return have

    async def _is_done(self) -> bool:
        return await self._archive.ahas_record(turn_name(self._task_id, "done"))

    async def _get(self, number: int) -> Claim | None:
        with suppress(BlobMissingError):
            return Claim.model_validate(
                await self._archive.aget_record(turn_name(self._task_id, number))
            )
        return None

    async def _put(self, number: int, claim: Claim) -> None:
        await self._archive.aput_record(turn_name(self._task_id, number), claim.wire())
