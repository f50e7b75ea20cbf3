"""Calls of the caller's functions in the caller's own loop, from the engine's loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any


class CallerLoop:
    """Calls functions in the event loop in which this was made."""

    def __init__(self) -> None:
        """Remember the running loop."""
        self._loop = asyncio.get_running_loop()

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function, async or not, and return its result.

        Raises:
            Exception: Whatever the function raises.
        """
        if asyncio.get_running_loop() is self._loop:
            return await _called(function, args)
        sent = asyncio.run_coroutine_threadsafe(_called(function, args), self._loop)
        return await asyncio.wrap_future(sent)


async def _called(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    result = function(*args)
    return await result if inspect.isawaitable(result) else result
