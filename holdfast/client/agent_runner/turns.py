"""Whose turn it is in a session: what happens to a message that comes while a task runs.

The session's workflow keeps its tasks in a line. The first has the floor until it has ended; the
others wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from itertools import dropwhile, takewhile
from typing import Any, TypeVar

from temporalio import activity

from holdfast.archive.session_commits import is_gone, send_claim
from holdfast.client.agent_runner.sessions import Session
from holdfast.client.agent_runner.task_client.task_client import TaskClient
from holdfast.engine.search_attributes import HF_STATUS
from holdfast.errors import (
    CommandRefusedError,
    ConnectError,
    HoldfastError,
    InvalidArgumentError,
    NoWorkerError,
    SessionBusyError,
    TaskClosedError,
    TaskNotFoundError,
)
from holdfast.reading.queries import server_errors
from holdfast.task.data.children import ENDED
from holdfast.task.data.state import Claim
from holdfast.values.base import Json
from holdfast.values.runs.status import OnBusy
from holdfast.values.runs.verbs import Verb

FIRST_LOOK_SECONDS = 1.0
LONGEST_LOOK_SECONDS = 5.0
GROWTH = 1.5

MOST_CLAIMS = 3
"""How often a task tries to get the floor that is free each time that it looks."""

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
        self._claim = Claim(task=task_id, if_free=on_busy == "refuse")

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
        if activity.in_activity():
            said = {"callers": await self._tasks.callers()}
            self._claim = self._claim.model_copy(update=said)
        holder = "" if self._mode == "queue" else await self._holder()
        if holder and self._mode == "merge":
            await self._refuse_circle()
            if await self._tell(holder, "feedback", text=text, when="next_model_call"):
                return holder
        for _ in range(MOST_CLAIMS):
            await self._send(self._claim)
            # In line already: of two tasks that come at once, one sees the other.
            await self._refuse_circle()
            holder = await self._holder() if self._mode in ("refuse", "interrupt") else self._task
            if holder:  # else who had the floor has ended since, and this one is not in line
                break
        if holder in ("", self._task):
            return ""
        if self._mode == "refuse":
            raise SessionBusyError(self._session.name, holder)
        await self._tell(holder, "abandon", reason=f"interrupted by task {self._task!r}")
        return ""

    async def _refuse_circle(self) -> None:
        """Refuse the task if one that comes first waits for it: by a tool, or behind such a one.

        Raises:
            SessionBusyError: One does.
        """
        if not self._claim.callers:
            return
        read = self._tasks.reader.session_so_far
        waiting, looks = set[str](), [*self._claim.callers]
        while looks:
            session, caller = looks.pop()
            if caller in waiting:
                continue
            state = await read(session)
            # In line or not, it waits; so do those behind it, and the callers of these.
            behind = (caller, *dropwhile(caller.__ne__, state.line))
            for task in behind:
                looks += state.claims.get(task, Claim()).callers
            waiting.update(behind)
        line = (await read(self._session.id)).line
        first = next(filter(waiting.__contains__, takewhile(self._task.__ne__, line)), "")
        if first:
            await self._send(Claim(gone=(self._task,)))
            raise SessionBusyError(self._session.name, first, waits_for_itself=True)

    async def follow(self, work: Coroutine[Any, Any, T]) -> T:
        """Create and run the task; wait for its turn, unless that may take as long as people do.

        Its place is kept until it is created, and given back if that fails.

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
        except Exception:
            with suppress(HoldfastError):
                if not await self._tasks.is_known(self._task):
                    await self._send(Claim(gone=(self._task,)))
            raise
        finally:
            working.cancel()
            await asyncio.wait({working})

    async def _pending(self) -> set[str]:
        """Return the types of the task's pending activities: one that waits watches those ahead.

        Such a look is on no bill, as a question to the task or to the session is.
        """
        try:
            found = await self._tasks.reader.describe(self._task)
        except TaskNotFoundError:
            self._claim = self._claim.model_copy(update={"beat": self._claim.beat + 1})
            await self._send(self._claim)
            return set()
        return {each.activity_type.name for each in found.raw_description.pending_activities}

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
        reader = self._tasks.reader
        read = partial(reader.session_so_far, self._session.id)
        while line := (state := await read()).line:
            with server_errors():
                if line[0] == self._task or not await is_gone(reader.client, line[0], state, read):
                    return line[0]
            await self._send(Claim(gone=line[:1]))
        return ""

    async def _send(self, claim: Claim) -> None:
        session, reader = self._session, self._tasks.reader
        with server_errors():
            await send_claim(reader.client, reader.archive, session.id, session.queue, claim)

    async def _tell(self, holder: str, verb: Verb, **body: Json) -> bool:
        """Send a command to the running task; False if it takes none: it ends, or has ended."""
        name = f"{self._task}:{verb}"
        with suppress(CommandRefusedError, TaskClosedError, TaskNotFoundError):
            await self._tasks.command(holder, verb, by=self._by, body=body, request_id=name)
            return True
        return False
