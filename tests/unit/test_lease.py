"""Asking the server whose attempt it is, from the event loop of users' code."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import cast

import pytest
from temporalio.client import AsyncActivityCancelledError, Client
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from holdfast.activities import heartbeat as lease
from holdfast.activities import user_loop
from holdfast.activities.heartbeat import (
    Clocks,
    NotOursError,
    current_lease,
    ensure_ours,
    heartbeats,
)
from holdfast.activities.user_loop import UserLoop, UserLoops, Work
from holdfast.engine.loop import LoopThread
from holdfast.errors import ConnectError
from holdfast.reading import queries
from holdfast.reading.queries import Presence
from holdfast.values.code.user_calls import calling


class Cancelling:
    """The handle of an attempt that the server wants cancelled."""

    def __init__(self, *, task_token: bytes) -> None:
        self.task_token = task_token

    def with_context(self, _context: object) -> Cancelling:
        return self

    async def heartbeat(self, *_details: object, **_options: object) -> None:
        raise AsyncActivityCancelledError


async def test_a_cancelled_attempt_is_told_to_the_worker_from_the_workers_own_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease, "CANCEL_SECONDS", 0.0)
    client = SimpleNamespace(get_async_activity_handle=Cancelling)
    env = ActivityEnvironment(client=cast("Client", client))
    shown: list[threading.Thread] = []
    beaten = asyncio.Event()

    def on_heartbeat(*_details: object) -> None:
        shown.append(threading.current_thread())
        beaten.set()

    env.on_heartbeat = on_heartbeat
    apart = LoopThread("apart")

    async def act() -> None:
        async with heartbeats():
            with pytest.raises(NotOursError, match="is cancelling this attempt"):
                await asyncio.wrap_future(apart.submit(ensure_ours("tool")))
            await beaten.wait()

    try:
        async with asyncio.timeout(100):
            await env.run(act)
    finally:
        apart.close(5)
    assert set(shown) == {threading.current_thread()}


def test_clocks_that_differ_do_not_count_as_a_delay() -> None:
    clocks = Clocks()
    clocks.delay(started=100.0, here=40.0)
    assert clocks.delay(started=200.0, here=140.0) == pytest.approx(0.0)
    assert clocks.delay(started=300.0, here=270.0) == pytest.approx(30.0)


@pytest.mark.parametrize(("on_its_way", "asked"), [(0.0, 0), (30.0, 1)])
async def test_the_server_is_asked_about_an_attempt_that_it_started_long_ago(
    on_its_way: float, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks = Clocks()
    clocks.delay(started=100.0, here=100.0)
    monkeypatch.setattr(lease, "_clocks", clocks)
    questions: list[str] = []

    async def ask(what: str, **_options: object) -> None:
        questions.append(what)

    monkeypatch.setattr(lease, "_ask", ask)
    env = ActivityEnvironment()
    started = datetime.now(tz=UTC) - timedelta(seconds=on_its_way)
    env.info = replace(env.info, started_time=started, heartbeat_timeout=timedelta(seconds=20))

    async def act() -> None:
        async with heartbeats(trusts_start=True):
            await ensure_ours("model call")

    await env.run(act)
    assert len(questions) == asked


@pytest.mark.parametrize(("ago", "is_ours"), [(1.0, True), (30.0, False), (None, False)])
async def test_a_local_activity_acts_only_soon_after_its_workflow_task_began(
    ago: float | None, is_ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks = Clocks()
    if ago is not None:
        clocks.delay(started=time.time(), here=time.time())
    monkeypatch.setattr(lease, "_clocks", clocks)
    env = ActivityEnvironment()
    env.info = replace(env.info, is_local=True, heartbeat_timeout=None)
    refused = nullcontext() if is_ours else pytest.raises(NotOursError, match="workflow task")

    async def act() -> None:
        async with heartbeats(trusts_start=True):
            current_lease().trust_workflow_task(time.time() - (ago or 0.0))
            with refused:
                await ensure_ours("writing of the record")

    await env.run(act)


# ---- work on an event loop of users' code that is blocked


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


# ---- who serves a queue, when the server does not say


class Server:
    """Answers who serves a queue; None is no answer in time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.says: bool | None = True
        self.asked = 0
        monkeypatch.setattr(queries, "has_workers", self._has_workers)

    async def _has_workers(self, client: Client, queue: str) -> bool:
        self.asked += 1
        if self.says is None:
            raise ConnectError("The Temporal server did not answer.")
        return self.says


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return Server(monkeypatch)


@pytest.fixture
def known() -> Presence:
    made = Presence(Client.__new__(Client))  # never asked: the queue is known
    made.started("task", "queue")
    return made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


async def test_a_server_that_is_busy_for_a_while_ends_no_wait(
    server: Server, known: Presence, clock: list[float]
) -> None:
    server.says = None
    await known.require("task")
    clock[0] += queries.SILENCE_SECONDS - 1
    await known.require("task")
    server.says = True
    await known.require("task")
    server.says = None
    clock[0] += queries.SILENCE_SECONDS - 1  # counted from the first of these, not from before
    await known.require("task")


async def test_a_server_that_stays_silent_ends_a_wait(
    server: Server, known: Presence, clock: list[float]
) -> None:
    server.says = None
    await known.require("task")
    clock[0] += queries.SILENCE_SECONDS
    with pytest.raises(ConnectError, match="did not answer"):
        await known.require("task")


async def test_one_request_answers_all_who_ask_at_once(server: Server, known: Presence) -> None:
    await asyncio.gather(*(known.require("task") for _ in range(9)))
    assert server.asked == 1
