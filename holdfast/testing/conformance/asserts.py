"""Waiting and failing of the checks of the conformance suite.

Its fake model holds, fails and counts requests.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from holdfast.testing.conformance.process import POLL_SECONDS
from holdfast.testing.fake_api.fake_openai import FakeOpenAI
from holdfast.testing.fake_api.replies import hang
from holdfast.testing.fake_api.requests import FakeRequest

LONGEST_SHOWN = 1500


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition returns a true value; the check's own time limit ends it."""
    while True:
        found = condition()
        if await found if inspect.isawaitable(found) else found:
            return
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
        raise AssertionError(f"{what}\n  found:  {shown(found)}\n  wanted: {shown(wanted)}")


def shown(value: object) -> str:
    """Show a value in a message, cut to a readable length."""
    text = repr(value)
    if len(text) <= LONGEST_SHOWN:
        return text
    return f"{text[:LONGEST_SHOWN]}... ({len(text)} characters)"


@asynccontextmanager
async def fake_api() -> AsyncGenerator[FakeOpenAI]:
    """Serve a fake model; a request that the real API would refuse fails the check."""
    async with FakeOpenAI(strict=False) as api:
        yield api
        check(not api.problems, "The fake API is not content:\n  " + "\n  ".join(api.problems))


def hold_each_once(api: FakeOpenAI) -> None:
    """Hold every request until it is released, and then answer it."""
    known: set[int] = set()

    def is_new(request: FakeRequest) -> bool:
        if request.number in known:
            return False
        known.add(request.number)
        return True

    api.when(is_new, hang())


def hold_while(api: FakeOpenAI, condition: Callable[[FakeRequest], bool]) -> Callable[[], None]:
    """Hold the requests that meet a condition; return a function that ends this."""
    over = asyncio.Event()
    api.when(lambda request: not over.is_set() and condition(request), hang())
    return over.set


def bodies(api: FakeOpenAI) -> list[str]:
    """Return each request as text, word for word, in the order of arrival."""
    return [written(request) for request in api.requests]


def first_time(known: Counter[str], *, most: int) -> Callable[[FakeRequest], bool]:
    """Return a condition that holds for the first request of each text, a limited number of times.

    Args:
        known: Counter of these requests, as texts of `bodies`.
        most: The limit.
    """

    def is_new(request: FakeRequest) -> bool:
        wording = written(request)
        if wording in known or len(known) >= most:
            return False
        known[wording] += 1
        return True

    return is_new


def written(request: FakeRequest) -> str:
    """Return a request as text, word for word."""
    return json.dumps(request.body, sort_keys=True)
