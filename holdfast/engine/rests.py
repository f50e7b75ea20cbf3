"""Tasks that may have come to rest, told to those in the same process who wait for that.

The server tells a client when a task closes, not when it waits for a person: for that the client
asks the task, which costs a request and an update in the history. Where the task's workflow runs in
the client's own process, it says so here. That is only a hint: nothing is recorded, and it may come
too early, twice, from a replay, or never. Who hears it asks the task itself.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import Context
from functools import partial

_lock = threading.Lock()
_waiting: dict[str, list[Callable[[], object]]] = {}


@contextmanager
def rest_of(task_id: str) -> Generator[asyncio.Event]:
    """Yield an event of the running loop that is set when a task of this process may rest."""
    rests = asyncio.Event()
    wake = asyncio.get_running_loop().call_soon_threadsafe
    tell = partial(wake, rests.set, context=Context())  # not that of the workflow which tells
    with _lock:
        _waiting.setdefault(task_id, []).append(tell)
    try:
        yield rests
    finally:
        with _lock:
            _waiting[task_id].remove(tell)
            if not _waiting[task_id]:
                del _waiting[task_id]


def may_rest(task_id: str) -> None:
    """Tell anyone who waits for it that a task may rest. Safe from any thread."""
    with _lock:
        told = tuple(_waiting.get(task_id, ()))
    for tell in told:
        with suppress(RuntimeError):  # its loop is closed: nobody waits any more
            tell()
