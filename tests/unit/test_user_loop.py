"""Work on an event loop of users' code that is blocked."""

import asyncio
import contextvars
import dataclasses
import threading
from collections.abc import Iterator

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from holdfast.activities import user_loop
from holdfast.activities.user_loop import UserLoop, UserLoops, Work
from holdfast.values.code.user_calls import calling


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[UserLoop, threading.Event]]:
    """Make a loop that is given up soon, with the door at which what blocks it waits."""
    monkeypatch.setattr(user_loop, "BLOCKED_SECONDS", 0.1)
    monkeypatch.setattr(user_loop, "GIVEN_UP_SECONDS", 0.2)
    monkeypatch.setattr(user_loop, "WATCH_SECONDS", 0.1)
    loop, door = UserLoop(), threading.Event()
    yield loop, door
    door.set()
    loop.thread.close(5)


def test_work_that_waits_for_a_callback_that_blocks_the_loop_is_given_up(
    blocked: tuple[UserLoop, threading.Event],
) -> None:
    loop, door = blocked
    work, began = Work("step", "t"), threading.Event()

    async def waits() -> None:
        began.set()
        await asyncio.Event().wait()

    loop.begin(work, waits(), contextvars.copy_context())
    assert began.wait(100)
    loop.thread.loop.call_soon_threadsafe(door.wait)
    error = work.done.exception(100)
    assert isinstance(error, ApplicationError)
    assert error.type == "Interrupted"
    assert "code that no task of Holdfast began blocks the event loop" in error.message


def test_work_for_a_loop_that_has_become_stuck_since_it_was_chosen_is_given_up_at_once(
    blocked: tuple[UserLoop, threading.Event],
) -> None:
    loop, door = blocked
    first = Work("step", "t")

    async def blocks() -> None:
        door.wait()

    loop.begin(first, blocks(), contextvars.copy_context())
    assert first.done.exception(100) is not None
    assert loop.is_stuck
    late = Work("step", "u")
    loop.begin(late, blocks(), contextvars.copy_context())
    error = late.done.exception(100)
    assert isinstance(error, ApplicationError)
    assert error.type == "NotStarted"
    assert "task 't' blocks the event loop" in error.message


async def test_a_call_that_begins_after_the_limit_and_hangs_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loops = UserLoops()

    async def hang() -> None:
        await asyncio.sleep(0.1)  # the limit passes while no code of the user's runs
        with calling("must_ask"):
            await asyncio.Event().wait()

    monkeypatch.setattr(user_loop, "LONGEST_CALL_SECONDS", 0.01)
    environment = ActivityEnvironment()
    environment.info = dataclasses.replace(environment.info, activity_type="gate")
    with pytest.raises(ApplicationError, match="must_ask did not come back"):
        await environment.run(loops.apart(hang))
    await loops.close()
