"""Calling what users wrote, sync or async, with as many arguments as it wants."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Literal, cast

from holdfast.calling import calling, name_of
from holdfast.errors import InvalidArgumentError
from holdfast.shown import shown
from holdfast.threads import DaemonThreads
from holdfast.tool_context import Effect, ToolContext
from holdfast.tool_signature import EMPTY

Verdict = bool | Awaitable[bool]

EffectHook = Callable[[Effect], Any] | Callable[[ToolContext[Any], Effect], Any]
"""An undo or a probe, sync or async."""

ApprovalPredicate = (
    Callable[[dict[str, Any]], Verdict]
    | Callable[[ToolContext[Any], dict[str, Any]], Verdict]
    | Callable[[ToolContext[Any], dict[str, Any], str], Verdict]
)
"""Whether a person must decide, from (arguments), (ctx, arguments) or (ctx, arguments, call_id)."""

EnabledPredicate = Callable[[], Verdict] | Callable[[Any], Verdict] | Callable[[Any, Any], Verdict]
"""Whether the model is offered a tool, from (), (ctx) or (ctx, agent)."""

FailureFormatter = Callable[[ToolContext[Any], Exception], str | Awaitable[str]]
"""What the model is told of a failed call."""


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


async def invoke_hook(
    function: Callable[..., Any], *args: Any, keep: Literal["first", "last"]
) -> Any:
    """Call a hook that may want fewer positional arguments than there are.

    Args:
        function: The hook.
        args: All that could be given.
        keep: Which of them a hook that wants fewer gets.
    """
    wanted = min(_wanted(function, len(args)), len(args))
    given = args[:wanted] if keep == "first" else args[len(args) - wanted :]
    return await invoke(function, *given)


async def invoke_predicate(
    predicate: ApprovalPredicate, ctx: ToolContext, arguments: dict[str, Any], call_id: str
) -> Any:
    """Call an approval predicate with what it wants."""
    everything = (ctx, arguments, call_id)
    if _wanted(predicate, len(everything)) >= len(everything):
        return await invoke(predicate, *everything)
    return await invoke_hook(predicate, ctx, arguments, keep="last")


async def is_offered(is_enabled: bool | EnabledPredicate, ctx: Any, agent: Any) -> bool:  # noqa: FBT001  a tool's attribute
    """Whether the model is offered something now.

    Raises:
        Exception: Whatever the predicate raises.
    """
    if not callable(is_enabled):
        return is_enabled
    return bool(await invoke_hook(is_enabled, ctx, agent, keep="first"))


def check_hook(function: Callable[..., Any], what: str, arguments: tuple[str, ...]) -> None:
    """Refuse a hook that could not be called with the last, or all, of these arguments.

    Raises:
        InvalidArgumentError: It is not a function of so many arguments.
    """
    if callable(cast("object", function)) and 0 < _wanted(function, len(arguments)) <= len(
        arguments
    ):
        return
    msg = (
        f"{what} must be a function ({', '.join(arguments)}) or ({arguments[-1]}); got"
        f" {shown(function)}."
    )
    raise InvalidArgumentError(msg)


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


def _wanted(function: Callable[..., Any], offered: int) -> int:
    """Count the positional arguments that a hook wants: those without a default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return offered
    kinds = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    return sum(p.kind in kinds and p.default is EMPTY for p in parameters)
