"""Waiting and failing of the checks of the conformance suite."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.testing.conformance.process import POLL_SECONDS

LONGEST_SHOWN = 1500

T = TypeVar("T")


async def until(condition: Callable[[], Awaitable[T]]) -> T:
    """Wait until a condition returns a true value; the check's own time limit ends it."""
    while True:
        found = await condition()
        if found:
            return found
        await asyncio.sleep(POLL_SECONDS)


def check(condition: object, text: str) -> None:
    """Fail with a text unless a condition holds.

    Raises:
        AssertionError: It does not.
    """
    if not condition:
        raise AssertionError(text)


def check_same(found: object, wanted: object, what: str) -> None:
    """Fail unless two values are equal.

    Raises:
        AssertionError: They are not; the text shows both.
    """
    if found != wanted:
        msg = f"{what}\n  found:  {shown(found)}\n  wanted: {shown(wanted)}"
        raise AssertionError(msg)


def shown(value: object) -> str:
    """Show a value in a message, cut to a readable length."""
    text = repr(value)
    if len(text) <= LONGEST_SHOWN:
        return text
    return f"{text[:LONGEST_SHOWN]}... ({len(text)} characters)"
