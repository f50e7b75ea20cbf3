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
from holdfast.errors import HoldfastError

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
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    return error


def without_plumbing(kind: C) -> C:
    """Wrap the public async methods of a class, so that Holdfast's errors have short tracebacks."""
    for name in dir(kind):
        if name.startswith("_"):
            continue
        found = inspect.getattr_static(kind, name)
        if isinstance(found, classmethod | staticmethod):
            wrapped = _wrapped(found.__func__)  # pyright: ignore[reportUnknownMemberType,reportUnknownArgumentType]  any method
            if wrapped is not None:
                setattr(kind, name, type(found)(wrapped))  # pyright: ignore[reportUnknownArgumentType]  as above
        elif (wrapped := _wrapped(found)) is not None:
            setattr(kind, name, wrapped)
    return kind


def _wrapped(method: Any) -> Callable[..., Any] | None:
    """Return a method that shortens the errors of the given one; None if that is not async."""
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def call(*args: Any, **options: Any) -> Any:
            try:
                return await method(*args, **options)
            except HoldfastError as error:
                raise shortened(error)  # noqa: B904  it is the same error

        return call
    if inspect.isasyncgenfunction(method):

        @functools.wraps(method)
        async def items(*args: Any, **options: Any) -> AsyncGenerator[Any]:
            try:
                async with aclosing(method(*args, **options)) as given:
                    async for item in given:
                        yield item
            except HoldfastError as error:
                raise shortened(error)  # noqa: B904  as above

        return items
    return None


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
