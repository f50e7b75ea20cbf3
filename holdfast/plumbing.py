"""Tracebacks of our errors: they show the caller's code, not the frames that we went through."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
import os
import traceback
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

import temporalio

import holdfast
from holdfast.errors import HoldfastError

C = TypeVar("C", bound=type[Any])
E = TypeVar("E", bound=BaseException)


def shortened(error: E) -> E:
    """Return an error without the frames that it went through, if all are ours; its causes, too.

    Its text says what to do, and the caller's own frames are added as it is raised. A function of
    the caller's among the frames is a reason to keep them; HOLDFAST_DEBUG=1 is another.
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
    """Have our errors leave the public async methods of a class with short tracebacks."""
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
    """Return a method that shortens what the given one raises; None for one that is not async."""
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


_PLUMBING = tuple(
    f"{Path(file).parent}{os.sep}"
    for file in (
        holdfast.__file__,
        asyncio.__file__,
        concurrent.futures.__file__,
        temporalio.__file__,
    )
    if file
)
