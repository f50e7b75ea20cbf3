"""Calls of an async function for many arguments, some side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

AT_ONCE = 20
"""Calls that are made side by side."""


async def some_at_once(
    call: Callable[[T], Awaitable[R]], given: Sequence[T], most: int = AT_ONCE
) -> list[R]:
    """Call a function for each argument, `most` of them side by side.

    Returns:
        The results, in the order of the arguments.

    Raises:
        Exception: Whatever a call raised first; the calls next to it go on.
    """
    found: list[R] = []
    for start in range(0, len(given), most):
        found += await asyncio.gather(*map(call, given[start : start + most]))
    return found
