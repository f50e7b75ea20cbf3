"""Asking the server whose attempt it is, from the event loop of users' code."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import cast

import pytest
from temporalio.client import AsyncActivityCancelledError, Client
from temporalio.testing import ActivityEnvironment

from holdfast.activities import heartbeat as lease
from holdfast.activities.heartbeat import (
    Clocks,
    NotOursError,
    current_lease,
    ensure_ours,
    heartbeats,
)
from holdfast.engine.loop import LoopThread


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
