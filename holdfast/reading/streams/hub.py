"""StreamHub: where the worker puts what a model says, and a reader in the same process takes it."""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import NamedTuple

from holdfast.models.base import Delta
from holdfast.models.draft import Draft, Frame

MOST_UNITS = 100_000
"""Most characters of answers that are over which a hub keeps for its readers."""

MOST_ASKED = 10_000
"""Most tasks of which a hub knows that readers of other processes have asked them."""


class StreamKey(NamedTuple):
    """Names one model call of one task.

    Attributes:
        task_id: The task.
        n: Number under which the step was opened.
        answer: How many answers the step had before.
    """

    task_id: str
    n: int
    answer: int


class News(asyncio.Event):
    """Set when there is something new of a task.

    Attributes:
        is_recorded: Whether it is in the task's record already.
    """

    is_recorded = False

    def set_recorded(self) -> None:
        """Say that there is something new in the record."""
        self.is_recorded = True
        self.set()


class Listeners:
    """Those who wait for news of tasks, in any threads and loops."""

    def __init__(self) -> None:
        """Begin with no one."""
        self._lock = threading.Lock()
        self._waiting: dict[str, list[tuple[asyncio.AbstractEventLoop, News]]] = {}

    @contextmanager
    def listening(self, task_id: str) -> Generator[News]:
        """Yield what is set, in the running loop, when there is something new of a task."""
        mine = (asyncio.get_running_loop(), News())
        with self._lock:
            self._waiting.setdefault(task_id, []).append(mine)
        try:
            yield mine[1]
        finally:
            with self._lock:
                self._waiting[task_id].remove(mine)
                if not self._waiting[task_id]:
                    del self._waiting[task_id]

    def has(self, task_id: str) -> bool:
        """Whether someone waits for news of a task."""
        return task_id in self._waiting

    def wake(self, task_id: str, *, is_recorded: bool = False) -> None:
        """Say that there is something new of a task."""
        with self._lock:
            waiting = tuple(self._waiting.get(task_id, ()))
        for loop, news in waiting:
            with suppress(RuntimeError):  # its loop is closed
                loop.call_soon_threadsafe(news.set_recorded if is_recorded else news.set)


class LocalHub:
    """A hub within one process; publisher and readers may be in different threads and loops."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._lock = threading.Lock()
        self._drafts: dict[StreamKey, Draft] = {}
        self._over: dict[StreamKey, Draft] = {}
        self._kept = 0
        self._readers = Listeners()
        self._name = secrets.token_hex(4)
        self._asked: dict[str, bool] = {}

    @property
    def name(self) -> str:
        """What tells this hub from those of other processes, of a forked one as well."""
        return f"{self._name}-{os.getpid()}"

    def asked(self, task_id: str, reader: str) -> None:
        """Note that a reader asks a task for its record; readers do at each news of it.

        Args:
            task_id: The task.
            reader: Name of the reader's hub; empty for one that wants no unfinished answers.
        """
        if not reader or reader == self.name:
            return
        with self._lock:
            self._asked.pop(task_id, None)
            self._asked[task_id] = True
            if len(self._asked) > MOST_ASKED:
                del self._asked[next(iter(self._asked))]

    def is_read_elsewhere(self, task_id: str) -> bool:
        """Whether a reader in another process may want a task's unfinished answer.

        It does if it has asked since the answer before. A task that no one has asked here may be
        asked in a worker process that has its workflow; but hardly when a reader is here.
        """
        return self._asked.get(task_id, not self._readers.has(task_id))

    def begin(self, key: StreamKey, attempt: int) -> Draft:
        """Begin an attempt, which voids the deltas of earlier ones; return its draft."""
        with self._lock:
            draft = self._drafts[key] = Draft(attempt)
            self._readers.wake(key.task_id)
        return draft

    def publish(self, key: StreamKey, draft: Draft, delta: Delta) -> None:
        """Publish one delta of an attempt, unless a later one has begun."""
        with self._lock:
            if self._drafts.get(key) is draft:
                draft.add(delta)
                self._readers.wake(key.task_id)

    def end(self, key: StreamKey, draft: Draft) -> None:
        """Drop the draft of an attempt that is over, unless a later one has begun."""
        with self._lock:
            if key.task_id in self._asked:
                self._asked[key.task_id] = False
            if self._drafts.get(key) is draft:
                del self._drafts[key]
                if draft.units:
                    self._keep(key, draft)
                self._readers.wake(key.task_id)

    def _keep(self, key: StreamKey, draft: Draft) -> None:
        """Keep the newest drafts that are over, as many as there is room for."""
        before = self._over.pop(key, None)
        self._over[key] = draft
        self._kept += draft.units - (before.units if before is not None else 0)
        while self._kept > MOST_UNITS:
            oldest = next(iter(self._over))
            self._kept -= self._over.pop(oldest).units

    def pieces(self, key: StreamKey) -> tuple[Delta, ...]:
        """Return the pieces in which an answer came that is over; nothing if they are not kept."""
        with self._lock:
            draft = self._over.get(key)
            return () if draft is None else draft.frame().deltas

    def read(self, key: StreamKey, since: int = 0) -> Frame | None:
        """Return the newest attempt's draft from a place on; None when no attempt is running."""
        with self._lock:
            draft = self._drafts.get(key)
            return None if draft is None else draft.frame(since if since <= draft.units else 0)

    def listening(self, task_id: str) -> AbstractContextManager[News]:
        """Yield an event that is set, in the running loop, at each change of a task's drafts."""
        return self._readers.listening(task_id)

    def hurry(self, task_id: str) -> None:
        """Let the readers of a task look at its record at once."""
        self._readers.wake(task_id, is_recorded=True)


local_hub = LocalHub()
"""The hub of this process."""
