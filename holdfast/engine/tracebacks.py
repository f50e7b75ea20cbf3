"""Shortens tracebacks of Holdfast's errors to the caller's code, without Holdfast's own frames."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import inspect
import os
import traceback
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

import temporalio

from holdfast import errors
from holdfast.errors import HoldfastError, behind
from holdfast.values.checks.arguments import known_as, misfit_call

C = TypeVar("C", bound=type[Any])
E = TypeVar("E", bound=BaseException)


def shortened(error: E) -> E:
    """Remove the traceback of an error, and of each of its causes, if it has no user's frame.

    The error's text says what to do, and the caller's frames are added as it is raised again. A
    traceback with a function of the user's is kept, and so are all with HOLDFAST_DEBUG=1.
    """
    if os.environ.get("HOLDFAST_DEBUG") == "1":
        return error
    each: BaseException | None = error
    seen: set[int] = set()
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        frames = (frame for frame, _ in traceback.walk_tb(each.__traceback__))
        if all(frame.f_code.co_filename.startswith(_PLUMBING) for frame in frames):
            each.with_traceback(None)
        is_shown = each.__cause__ is not None or not each.__suppress_context__
        each = behind(each) if is_shown else None
    return error


def without_plumbing(kind: C) -> C:
    """Wrap the public methods of a class: their errors have short tracebacks, and the class's name.

    A call that does not fit is refused in the name of this class, also of an inherited method.
    """
    for name in dir(kind):
        if name.startswith("_") and name != "__init__":
            continue
        static: Any = inspect.getattr_static(kind, name)
        known = kind.__name__ if name == "__init__" else f"{kind.__name__}.{name}"
        if type(static) in (classmethod, staticmethod):
            setattr(kind, name, type(static)(_wrapped(static.__func__, known)))
        elif inspect.isfunction(static):
            setattr(kind, name, _wrapped(static, known))
    return kind


def _wrapped(method: Any, known: str) -> Callable[..., Any]:
    """Return a method that shortens the errors of the given one, if it is async."""
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def call(*args: Any, **options: Any) -> Any:
            try:
                return await method(*args, **options)
            except HoldfastError as error:
                raise shortened(error)  # noqa: B904  it is the same error
            except TypeError as error:
                if (wrong := misfit_call(error, known, method, options)) is None:
                    raise
                raise wrong from None

        return call
    named: Callable[..., Any] = known_as(known)(method)
    if inspect.isasyncgenfunction(method):

        @functools.wraps(method)
        async def items(*args: Any, **options: Any) -> AsyncGenerator[Any]:
            try:
                async with aclosing(named(*args, **options)) as given:
                    async for item in given:
                        yield item
            except HoldfastError as error:
                raise shortened(error)  # noqa: B904  as above

        return items
    return named


_PLUMBING = (
    contextlib.__file__,
    *(
        f"{Path(file).parent}{os.sep}"
        for file in (
            errors.__file__,  # of this package
            asyncio.__file__,
            concurrent.futures.__file__,
            temporalio.__file__,
        )
        if file
    ),
)
