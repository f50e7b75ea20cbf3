"""A lock for coroutines of several event loops: a session may be used in more than one thread."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import Future


class LoopsLock:
    """As asyncio.Lock, which wakes no one in another loop. Those who wait get it in their order."""

    def __init__(self) -> None:
        """Begin free."""
        self._guard = threading.Lock()
        self._waiting = deque[Future[None]]()
        self._is_held = False

    async def __aenter__(self) -> None:
        """Wait for it, and hold it."""
        with self._guard:
            if not self._is_held:
                self._is_held = True
                return
            turn = Future[None]()
            self._waiting.append(turn)
        try:
            await asyncio.wrap_future(turn)
        except BaseException:
            if not turn.cancel():  # it came just before the wait was cancelled
                self._pass_on()
            raise

    async def __aexit__(self, *_: object) -> None:
        """Pass it on."""
        self._pass_on()

    def _pass_on(self) -> None:
        with self._guard:
            while self._waiting:
                turn = self._waiting.popleft()
                if turn.set_running_or_notify_cancel():
                    turn.set_result(None)
                    return
            self._is_held = False
