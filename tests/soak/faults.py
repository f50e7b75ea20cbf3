"""Processes of a campaign, and what is done to them: killed, told to end, stopped for a while."""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.process import BaseProcess
from typing import Any

from holdfast.engine.dev_server.server import ensure_server
from tests.crash.lab import context
from tests.crash.programs import Job, work
from tests.soak.agents import make_agent
from tests.soak.clients import use

WORKERS = 3
CLIENTS = 5
LONGEST_STOP_SECONDS = 12.0
"""Longer than the heartbeat timeout: the server then gives up on calls of a process that lives."""
LONGEST_SERVER_STOP_SECONDS = 5.0
LONGEST_ABSENCE_SECONDS = 2.0

Kind = tuple[str, str]
"""What is hit, and how."""

WEIGHTS: dict[Kind, float] = {
    ("worker", "kill"): 30,
    ("worker", "term"): 12,
    ("worker", "stop"): 20,
    ("server", "kill"): 6,
    ("server", "stop"): 6,
    ("client", "kill"): 16,
    ("client", "stop"): 10,
}


@dataclass
class Slot:
    """A place that one process after the other fills.

    Attributes:
        program: What its processes run.
        process: The present one.
        is_held: Whether it was hit and is not back yet: nothing else may be done to it.
    """

    program: Callable[[Job], None]
    process: BaseProcess | None = None
    is_held: bool = False


@dataclass
class Cluster:
    """The server, the workers and the clients of a campaign.

    Attributes:
        job: What programs are told.
        chance: Draws what is hit, when and how.
        faults: How many faults there were, by kind.
    """

    job: Job
    chance: random.Random
    faults: Counter[Kind] = field(default_factory=Counter[Kind])

    def __post_init__(self) -> None:
        """Make the places; nothing runs yet."""
        self._workers = [Slot(work) for _ in range(WORKERS)]
        self._clients = [Slot(use) for _ in range(CLIENTS)]
        self._later: list[asyncio.Task[None]] = []
        self._serials = 0
        self._server_free = asyncio.Lock()

    def start(self, *, clients: bool = True) -> None:
        """Fill the empty places, as a supervisor does: a process that finds no server ends."""
        for slot in [*self._workers, *(self._clients if clients else [])]:
            ended = slot.process is None or slot.process.exitcode is not None
            if ended and not slot.is_held:
                self._fill(slot)

    def _fill(self, slot: Slot) -> None:
        self._serials += 1
        seed = f"{self.chance.random()}"
        job = replace(self.job, input=seed, make=make_agent)
        slot.process = context.Process(target=slot.program, args=(job,))
        slot.process.start()

    async def hit(self) -> None:
        """Cause one fault; what it ends comes back later by itself."""
        self.start()
        [kind] = self.chance.choices(list(WEIGHTS), weights=list(WEIGHTS.values()))
        whom, how = kind
        if whom == "server":
            if not self._server_free.locked():
                self.faults[kind] += 1
                self._do_later(self._hit_server(how))
            return
        slots = self._workers if whom == "worker" else self._clients
        there = [slot for slot in slots if is_up(slot)]
        if there:
            self.faults[kind] += 1
            self._do_later(self._hit(self.chance.choice(there), how))

    def _do_later(self, what: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(what)
        self._later.append(task)

    async def _hit(self, slot: Slot, how: str) -> None:
        process = slot.process
        assert process is not None
        assert process.pid is not None
        if how == "stop":
            slot.is_held = True
            os.kill(process.pid, signal.SIGSTOP)
            await asyncio.sleep(self.chance.uniform(0.1, LONGEST_STOP_SECONDS))
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
            slot.is_held = False
            return
        os.kill(process.pid, signal.SIGKILL if how == "kill" else signal.SIGTERM)
        slot.is_held = True
        await asyncio.to_thread(process.join)
        await asyncio.sleep(self.chance.uniform(0, LONGEST_ABSENCE_SECONDS))
        self._fill(slot)
        slot.is_held = False

    async def _hit_server(self, how: str) -> None:
        async with self._server_free:
            pid = self.job.server.pid
            if how == "stop":
                os.kill(pid, signal.SIGSTOP)
                await asyncio.sleep(self.chance.uniform(0.1, LONGEST_SERVER_STOP_SECONDS))
                os.kill(pid, signal.SIGCONT)
                return
            os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(self.chance.uniform(0, LONGEST_ABSENCE_SECONDS))
            assert self.job.server.data_dir is not None
            server = await ensure_server(self.job.server.data_dir)
            assert server.address == self.job.server.address
            self.job = replace(self.job, server=server)

    async def calm(self) -> None:
        """Let everything that was hit come back, then end the clients."""
        await asyncio.gather(*self._later)
        for slot in self._clients:
            await _end(slot)
        self.start(clients=False)

    async def end(self) -> None:
        """End all processes."""
        for task in self._later:
            task.cancel()
        await asyncio.gather(*self._later, return_exceptions=True)
        for slot in [*self._workers, *self._clients]:
            await _end(slot)


def is_up(slot: Slot) -> bool:
    """Whether a place has a process that runs."""
    return slot.process is not None and slot.process.exitcode is None and not slot.is_held


async def _end(slot: Slot) -> None:
    if slot.process is not None:
        slot.process.kill()  # a stopped process, too, ends at once
        await asyncio.to_thread(slot.process.join)
