"""Whose turn it is in a session: what happens to a message that comes while a task runs.

The session's workflow keeps its tasks in a line. The first has the floor until it has ended; the
others wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from temporalio import activity

from holdfast.archive.session_commits import gone_of, send_claim
from holdfast.client.agent_runner.sessions import Session
from holdfast.client.agent_runner.task_client.task_client import TaskClient
from holdfast.engine.search_attributes import HF_STATUS
from holdfast.errors import (
    CommandRefusedError,
    ConnectError,
    InvalidArgumentError,
    NoWorkerError,
    SessionBusyError,
    TaskClosedError,
    TaskNotFoundError,
)
from holdfast.reading.queries import server_errors
from holdfast.task.data.children import ENDED
from holdfast.task.data.state import Claim
from holdfast.values.runs.status import OnBusy

FIRST_LOOK_SECONDS = 1.0
LONGEST_LOOK_SECONDS = 5.0
GROWTH = 1.5
MOST_CLAIMS = 3

T = TypeVar("T")


class Turn:
    """The turn of one task in its session, from the side of the client that creates the task."""

    def __init__(
        self, tasks: TaskClient, session: Session, task_id: str, on_busy: OnBusy, by: str = ""
    ) -> None:
        """Take part for a task before it is created.

        Args:
            tasks: Sends requests to other tasks.
            session: The session.
            task_id: Id of the task.
            on_busy: What to do while another task has the floor.
            by: Who asks.
        """
        self._tasks = tasks
        self._session = session
        self._task = task_id
        self._mode = on_busy
        self._by = by

    async def claim(self, text: str = "") -> str:
        """Get in line, before the task is created.

        Args:
            text: The request, for `merge`; empty for one without a text, or with more.

        Returns:
            The running task that has got the request as feedback; empty when the task must be
            created.

        Raises:
            SessionBusyError: Another task has the floor, and this one is not to wait for it, or
                cannot: that one waits for this one.
            InvalidArgumentError: A request without a text, or with more, cannot be merged.
            ConnectError: The server could not be reached.
        """
        if self._mode == "merge" and not text:
            msg = "on_busy='merge' gives a running task a text; the input has none, or more."
            raise InvalidArgumentError(msg)
        if await self._tasks.is_known(self._task):  # it is in line, or has been
            return ""
        asking = (activity.info().workflow_id or "") if activity.in_activity() else ""
        holder = await self._holder() if asking or self._mode != "queue" else ""
        if holder and (asking == holder or asking.startswith(f"{holder}~")):
            raise SessionBusyError(self._session.name, holder, waits_for_itself=True)
        if holder and self._mode == "merge" and await self._merge(holder, text):
            return holder
        asks = self._mode in ("refuse", "interrupt")
        for _ in range(MOST_CLAIMS):
            await self._send(Claim(task=self._task, if_free=self._mode == "refuse"))
            holder = await self._holder() if asks else self._task
            if holder:  # else the one that had the floor has ended since
                break
        if self._mode == "refuse" and holder not in ("", self._task):
            raise SessionBusyError(self._session.name, holder)
        if self._mode == "interrupt" and holder not in ("", self._task):
            await self._abandon(holder)
        return ""

    async def follow(self, work: Coroutine[Any, Any, T]) -> T:
        """Create and run the task; wait for its turn, unless that may take as long as people do.

        Args:
            work: Creates the task, and waits for it.

        Raises:
            SessionBusyError: The task waits for one that waits for a person, or for a resume.
        """
        working = asyncio.ensure_future(work)
        try:
            pause, seen = FIRST_LOOK_SECONDS, None
            while not (await asyncio.wait({working}, timeout=pause))[0]:
                pause = min(pause * GROWTH, LONGEST_LOOK_SECONDS)
                # The run waits for a server or a worker process that is away, and so do its looks.
                with suppress(ConnectError, NoWorkerError):
                    pending = await self._pending()
                    if pending - {ENDED, "describe"}:
                        break
                    resting = await self._resting() if ENDED in pending else None
                    # Seen once, it may be of a chat whose program is about to finalize it.
                    if resting is not None and resting == seen:
                        raise SessionBusyError(self._session.name, *resting, waiting=self._task)
                    seen = resting
            return await working
        finally:
            working.cancel()
            await asyncio.wait({working})

    async def _pending(self) -> set[str]:
        """Return the types of the task's pending activities: one that waits watches those ahead.

        Such a look is on no bill, as a question to the task or to the session is.
        """
        with suppress(TaskNotFoundError):
            found = await self._tasks.reader.describe(self._task)
            return {each.activity_type.name for each in found.raw_description.pending_activities}
        return set()

    async def _resting(self) -> tuple[str, str] | None:
        """Return the task that has the floor and its status, if it rests."""
        holder = await self._holder()
        if holder in ("", self._task):
            return None
        with suppress(TaskNotFoundError):
            found = await self._tasks.reader.describe(holder)
            status = found.typed_search_attributes.get(HF_STATUS)
            if found.close_time is None and status not in (None, "running"):
                return holder, status
        return None

    async def _holder(self) -> str:
        """Return the task that has the floor; empty for none.

        One that has ended without a word is taken out of the line.
        """
        while line := await self._line():
            with server_errors():
                gone = line[0] != self._task and await gone_of(self._tasks.reader.client, line[:1])
            if not gone:
                return line[0]
            await self._send(Claim(gone=gone))
        return ""

    async def _line(self) -> tuple[str, ...]:
        try:
            return (await self._tasks.reader.session(self._session.id)).line
        except TaskNotFoundError:
            return ()

    async def _send(self, claim: Claim) -> None:
        session, reader = self._session, self._tasks.reader
        with server_errors():
            await send_claim(reader.client, reader.archive, session.id, session.queue, claim)

    async def _merge(self, holder: str, text: str) -> bool:
        """Give the running task the request; False if it takes none: it ends, or has ended."""
        body = {"text": text, "when": "next_model_call"}
        try:
            await self._tasks.command(
                holder, "feedback", by=self._by, body=body, request_id=f"{self._task}:merged"
            )
        except (CommandRefusedError, TaskClosedError, TaskNotFoundError):
            return False
        return True

    async def _abandon(self, holder: str) -> None:
        """Abandon the task that has the floor, unless it has ended meanwhile."""
        body = {"reason": f"interrupted by task {self._task!r}"}
        with suppress(CommandRefusedError, TaskClosedError, TaskNotFoundError):
            await self._tasks.command(holder, "abandon", by=self._by, body=body)
