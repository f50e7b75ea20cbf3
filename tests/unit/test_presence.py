"""Who serves a queue, when the server does not say."""

import asyncio
import time

import pytest
from temporalio.client import Client

from holdfast.errors import ConnectError
from holdfast.reading import queries
from holdfast.reading.queries import Presence


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
