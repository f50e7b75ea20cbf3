"""The gate before a provider: where calls of this process wait, and what asks for leases.

Both run in one event loop with a thread of its own, whatever loops the calls come from.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from math import inf
from typing import Any
from uuid import uuid4

from temporalio.client import Client, WithStartWorkflowOperation
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import TemporalError
from temporalio.worker import Worker

from holdfast.engine.loop import LoopThread
from holdfast.errors import ModelUnavailableError
from holdfast.governor.providers import Provider
from holdfast.governor.shares import Ask, Lease, Shares
from holdfast.governor.turns import Call, Turns
from holdfast.governor.workflow import QUEUE, Governor
from holdfast.tracing import switch
from holdfast.values.money import NOTHING
from holdfast.values.text.logs import log

PATIENCE_SECONDS = 45.0
"""How long a call waits in one attempt of its activity, which has a minute more than the call."""

ANSWER_SECONDS = timedelta(seconds=10)
AGAIN_SECONDS = 1.0
"""Pause after an ask that was not answered."""

LONGEST_WAIT_SECONDS = 60.0
"""Longest pause until a call comes again that has lost patience."""


def come_again(provider: str, why: str, seconds: float) -> ModelUnavailableError:
    """Make the error for a call that was not made, and comes again."""
    made = ModelUnavailableError(
        f"The call waits for its turn at provider {provider!r}: {why}.",
        retry_after=max(seconds, AGAIN_SECONDS),
        is_limit=True,
    )
    made.is_unasked = True
    return made


@dataclass
class Used:
    """What a call has used; nothing, if it has failed.

    Attributes:
        tokens: Its tokens.
        dollars: Its cost.
    """

    tokens: int = 0
    dollars: Decimal = NOTHING


@dataclass(eq=False)
class Line:
    """The calls for one key, and its governor.

    Attributes:
        key: Environment variable of the key; empty for the model's own.
        turns: Who is next.
        begun: The calls that wait here, each with what tells it to begin.
        stirred: Set when the governor may have to be asked.
        timer: Looks who is next when a turn comes.
        error: A defect of ours, after which no lease is asked for; None as a rule.
    """

    key: str
    turns: Turns
    begun: dict[Call, asyncio.Future[None]] = field(
        default_factory=dict[Call, "asyncio.Future[None]"]
    )
    stirred: asyncio.Event = field(default_factory=asyncio.Event)
    timer: asyncio.TimerHandle | None = None
    error: Exception | None = None


class Gate:
    """The gate of one provider, for the calls of this process to it."""

    def __init__(self, provider: Provider, client: Client, worker: str) -> None:
        """Open a gate in the running event loop."""
        self._provider = provider
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._lines = [Line(key, Turns(worker, provider.limits)) for key in provider.keys or ("",)]
        self._asking = [asyncio.create_task(self._ask(line)) for line in self._lines]

    def close(self) -> None:
        """Stop asking for leases."""
        for each in self._asking:
            each.cancel()

    @asynccontextmanager
    async def turn(
        self, call: Call, wait: Callable[[Callable[[], str]], None]
    ) -> AsyncGenerator[tuple[Line, Used]]:
        """Wait for the turn of a call, from any loop, and settle the call after the block.

        Args:
            call: The call.
            wait: Gets a function that says what the call waits for.

        Raises:
            ModelUnavailableError: The turn did not come in time; or that of the block.
        """
        line = min(self._lines, key=self._load)
        wait(lambda: line.turns.words(call))
        begun = time.monotonic()
        entering = asyncio.run_coroutine_threadsafe(self._enter(line, call), self._loop)
        used = Used()
        try:
            await asyncio.wrap_future(entering)
        except BaseException:
            self.leave(line, call)  # its turn may come in the moment in which it is cancelled
            raise
        if (meter := switch.meter()) is not None:
            meter.waited(self._provider.name, time.monotonic() - begun)
        try:
            yield line, used
        except ModelUnavailableError as error:
            if error.is_limit and not error.is_unasked:
                pause = error.retry_after or 0.0
                self._post(line, lambda: line.turns.refused(call, pause, time.monotonic()))
            raise
        finally:
            self._post(line, lambda: line.turns.done(call, used.tokens, used.dollars))

    def leave(self, line: Line, call: Call) -> None:
        """Give back the turn of a call that is not made after all."""
        self._post(line, lambda: line.turns.leave(call))

    def heard(self, line: Line, headers: Mapping[str, str]) -> None:
        """Take what an answer says of the provider's limits."""
        self._post(line, lambda: line.turns.heard(headers))

    @staticmethod
    def _load(line: Line) -> tuple[bool, int]:
        turns = line.turns
        return turns.is_held_up, len(turns.waiting) + len(turns.running)

    def _post(self, line: Line, change: Callable[[], object]) -> None:
        """Change a line in its own loop, and see who is next."""

        def run() -> None:
            change()
            self._stir(line)

        with suppress(RuntimeError):  # the process stops, and its loop is closed
            self._loop.call_soon_threadsafe(run)

    async def _enter(self, line: Line, call: Call) -> None:
        """Wait in the gate's own loop.

        Raises:
            ModelUnavailableError: The turn did not come in time.
        """
        turns = line.turns
        if line.error is not None:
            raise line.error
        future = line.begun[call] = self._loop.create_future()
        left = turns.join(call, time.monotonic())
        if left is not None:
            self._send_back(line, left)
        self._stir(line)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await future
        except (TimeoutError, asyncio.CancelledError) as error:
            turns.leave(call)  # also a turn that has come in this moment
            self._stir(line)
            if isinstance(error, TimeoutError):
                raise self._again(line, call) from None
            raise
        finally:
            line.begun.pop(call, None)

    def _again(self, line: Line, call: Call) -> ModelUnavailableError:
        lease = line.turns.lease
        seconds = min(line.turns.pause, LONGEST_WAIT_SECONDS)
        if lease is not None and lease.why:
            seconds = lease.retry
        return come_again(self._provider.name, line.turns.words(call), seconds)

    def _send_back(self, line: Line, call: Call) -> None:
        future = line.begun.get(call)
        if future is not None and not future.done():
            future.set_exception(self._again(line, call))

    def _stir(self, line: Line) -> None:
        """Let all begin whose turn it is, and look again when the next one's comes."""
        now, turns = time.monotonic(), line.turns
        while (call := turns.pick(now)) is not None:
            future = line.begun.get(call)
            if future is None or future.done():  # cancelled in this moment
                turns.leave(call)
            else:
                future.set_result(None)
        if turns.lease is not None and turns.lease.why:
            for call in list(turns.waiting):
                turns.leave(call)
                self._send_back(line, call)
        if line.timer is not None:
            line.timer.cancel()
            line.timer = None
        at = turns.wake(now)
        if at < inf:
            line.timer = self._loop.call_later(max(at - now, 0.0), self._stir, line)
        line.stirred.set()

    async def _ask(self, line: Line) -> None:
        """Ask for a lease whenever one is due."""
        turns = line.turns
        try:
            while True:
                line.stirred.clear()
                due = turns.due(time.monotonic())
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if due == inf else due - time.monotonic()):
                        await line.stirred.wait()
                        continue
                ask = turns.ask(time.monotonic())
                turns.take(ask, await self._answered(line, ask), time.monotonic())
                self._stir(line)
        except Exception as error:
            line.error = error  # a call that waited for ever would hide it
            for each in line.begun.values():
                if not each.done():
                    each.set_exception(error)
            raise

    async def _answered(self, line: Line, ask: Ask) -> Lease:
        """Have the governor answer, however long that takes: without a lease no call is made."""
        id = f"{QUEUE}.{self._provider.name}" + (f".{line.key}" if line.key else "")
        while True:
            begun = WithStartWorkflowOperation(
                Governor.run,
                Shares(),
                id=id,
                task_queue=QUEUE,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            )
            try:
                return await self._client.execute_update_with_start_workflow(  # pyright: ignore[reportUnknownMemberType]  temporalio's types
                    Governor.lease,
                    ask,
                    start_workflow_operation=begun,
                    rpc_timeout=ANSWER_SECONDS,
                )
            except TemporalError as error:
                # Also where it continues as new in this moment.
                log.warning("The governor of %s did not answer: %s", id, error)
            await asyncio.sleep(AGAIN_SECONDS)


class Gates:
    """The gates of this process, and a Temporal worker for their governors."""

    def __init__(self, providers: tuple[Provider, ...]) -> None:
        """Open nothing yet."""
        self.providers = providers
        self._worker = uuid4().hex[:12]
        self._thread: LoopThread | None = None
        self._opened: dict[tuple[str, str], dict[str, Gate]] = {}
        self._workers: list[Worker] = []
        self._runs: list[asyncio.Task[Any]] = []

    async def gate(self, provider: Provider, client: Client) -> Gate:
        """Return the gate of a provider for calls of tasks of this client's namespace."""
        place = client.service_client.config.target_host, client.namespace
        known = self._opened.get(place)
        if known is not None:
            return known[provider.name]
        if self._thread is None:
            self._thread = LoopThread("holdfast-governor")
        return (await self._thread.wrap(self._open(place, client)))[provider.name]

    async def _open(self, place: tuple[str, str], client: Client) -> dict[str, Gate]:
        if place not in self._opened:
            # Without its plugins, which would have the worker run tasks as well.
            bare = Client(
                client.service_client,
                namespace=client.namespace,
                data_converter=client.data_converter,
            )
            worker = Worker(
                bare,
                task_queue=QUEUE,
                workflows=[Governor],
                build_id=QUEUE,
                max_concurrent_workflow_task_polls=2,
            )
            self._workers.append(worker)
            self._runs.append(asyncio.create_task(worker.run()))
            gates = {each.name: Gate(each, bare, self._worker) for each in self.providers}
            self._opened[place] = gates
        return self._opened[place]

    async def close(self) -> None:
        """End the gates, once no call comes any more."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await thread.wrap(self._close())
            await asyncio.to_thread(thread.close, AGAIN_SECONDS)

    async def _close(self) -> None:
        for gates in self._opened.values():
            for gate in gates.values():
                gate.close()
        self._opened.clear()
        await asyncio.gather(*(worker.shutdown() for worker in self._workers))
        await asyncio.gather(*self._runs, return_exceptions=True)
