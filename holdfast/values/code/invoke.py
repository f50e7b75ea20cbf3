"""Calling functions that users wrote: async on this loop, all others in threads."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Callable
from typing import Any, cast

from holdfast.values.code.threads import DaemonThreads
from holdfast.values.code.user_calls import calling, name_of

MOST_THREADS = 1000
"""Far above the number of activities that a worker runs at once (100, unless it is told otherwise),
so that no call waits for a thread, not even beside calls that were cut off and run on."""


@functools.cache
def tool_threads() -> DaemonThreads:
    """Return the threads of sync tools; one is started only when none is idle.

    They are not the loop's own, of which there are few: six on two processors, and the archive
    needs them, so that some slow tools would stop every task of the process.
    """
    return DaemonThreads(MOST_THREADS, "holdfast-tool")


async def invoke(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call an async function on this loop, any other in a thread with the context variables.

    A cancelled thread goes on to its end: `ToolContext.is_cancelled` is how it learns of it. Its
    name says what it runs.

    Raises:
        BusyError: There is no thread left to call in.
        Exception: Whatever the function raises.
    """
    call, name = functools.partial(function, *args, **kwargs), name_of(function)
    with calling(name):
        result = call() if is_async(function) else await _in_thread(call, name)
        return await result if inspect.isawaitable(result) else result


def is_async(function: Any) -> bool:
    """Whether calling this gives a coroutine: an async function, method, partial or object."""
    while isinstance(function, functools.partial):
        function = cast("Any", function.func)
    if inspect.iscoroutinefunction(function):
        return True
    return inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004  the method itself is wanted


async def _in_thread(call: Callable[[], Any], name: str) -> Any:
    """Call in a thread, which sees the context variables."""
    seen = contextvars.copy_context()
    done = tool_threads().named(name, lambda: seen.run(lambda: _shielded(call)))
    return await asyncio.wrap_future(done)


def _shielded(call: Callable[[], Any]) -> Any:
    """Call; a StopIteration would hang for ever whoever waits for the thread (cpython#112182)."""
    try:
        return call()
    except StopIteration as error:
        msg = f"{getattr(call, 'func', call)!r} raised StopIteration"
        raise RuntimeError(msg) from error
