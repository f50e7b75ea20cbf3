"""Asking the server whose attempt it is, from the event loop of users' code."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import cast

import pytest
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment

from holdfast.activities import heartbeat as lease
from holdfast.activities.heartbeat import NotOursError, ensure_ours, heartbeats
from holdfast.engine.loop import LoopThread


async def is_to_be_cancelled(*_args: object, **_options: object) -> SimpleNamespace:
    """Answer a heartbeat as the server does when the attempt is to be cancelled."""
    return SimpleNamespace(cancel_requested=True, activity_paused=False, activity_reset=False)


async def test_a_cancelled_attempt_is_told_to_the_worker_from_the_workers_own_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease, "CANCEL_SECONDS", 0.0)
    service = SimpleNamespace(record_activity_task_heartbeat=is_to_be_cancelled)
    client = SimpleNamespace(identity="w", namespace="n", workflow_service=service)
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
            with pytest.raises(NotOursError, match="to be cancelled"):
                await asyncio.wrap_future(apart.submit(ensure_ours("tool")))
            await beaten.wait()

    try:
        async with asyncio.timeout(30):
            await env.run(act)
    finally:
        apart.close(5)
    assert set(shown) == {threading.current_thread()}
