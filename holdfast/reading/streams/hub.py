"""StreamHub: where the worker puts what a model says, and a reader in the same process takes it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from holdfast.models.base import Delta
from holdfast.models.draft import Draft, Frame


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


class StreamHub(Protocol):
    """Carries deltas of answers to readers; lost ones do no harm, the recorded answer has all."""

    def begin(self, key: StreamKey, attempt: int) -> Draft:
        """Begin an attempt, which voids the deltas of earlier ones; return its draft."""
        ...

    def publish(self, key: StreamKey, draft: Draft, delta: Delta) -> None:
        """Publish one delta of an attempt, unless a later one has begun; returns at once."""
        ...

    def end(self, key: StreamKey, draft: Draft) -> None:
        """Drop the draft of an attempt that is over, unless a later one has begun."""
        ...

    def read(self, key: StreamKey, since: int = 0) -> Frame | None:
        """Return the newest attempt's draft from a place on; None when no attempt is running."""
        ...


class LocalHub:
    """A hub within one process; publisher and readers may be in different threads and loops."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._lock = threading.Lock()
        self._drafts: dict[StreamKey, Draft] = {}
        self._waiting: dict[str, list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}

    def begin(self, key: StreamKey, attempt: int) -> Draft:
        """Begin an attempt, which voids the deltas of earlier ones; return its draft."""
        with self._lock:
            draft = self._drafts[key] = Draft(attempt)
            self._wake(key.task_id)
        return draft

    def publish(self, key: StreamKey, draft: Draft, delta: Delta) -> None:
        """Publish one delta of an attempt, unless a later one has begun."""
        with self._lock:
            if self._drafts.get(key) is draft:
                draft.add(delta)
                self._wake(key.task_id)

    def end(self, key: StreamKey, draft: Draft) -> None:
        """Drop the draft of an attempt that is over, unless a later one has begun."""
        with self._lock:
            if self._drafts.get(key) is draft:
                del self._drafts[key]
                self._wake(key.task_id)

    def read(self, key: StreamKey, since: int = 0) -> Frame | None:
        """Return the newest attempt's draft from a place on; None when no attempt is running."""
        with self._lock:
            draft = self._drafts.get(key)
            return None if draft is None else draft.frame(since if since <= draft.units else 0)

    @contextmanager
    def listening(self, task_id: str) -> Generator[asyncio.Event]:
        """Yield an event that is set, in the running loop, at each change of a task's drafts."""
        mine = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiting.setdefault(task_id, []).append(mine)
        try:
            yield mine[1]
        finally:
            with self._lock:
                self._waiting[task_id].remove(mine)
                if not self._waiting[task_id]:
                    del self._waiting[task_id]

    def _wake(self, task_id: str) -> None:
        for loop, event in self._waiting.get(task_id, ()):
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)


local_hub = LocalHub()
"""The hub of this process."""
