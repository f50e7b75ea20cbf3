"""The gate before a provider: where calls of this process wait, and what asks for leases.

Both run in one event loop with a thread of its own, whatever loops the calls come from.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from math import inf
from uuid import uuid4

from temporalio.client import Client, WithStartWorkflowOperation
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import TemporalError

from holdfast.engine.loop import LoopThread
from holdfast.errors import ModelUnavailableError
from holdfast.serving.governor.days import DayLimit, Room
from holdfast.serving.governor.providers import EVERY, Limited, Provider, TenantBudget
from holdfast.serving.governor.served import bare, serve
from holdfast.serving.governor.shares import Ask, Lease, Limits, Shares
from holdfast.serving.governor.turns import Call, Turns
from holdfast.serving.governor.workflow import QUEUE, TENANTS, Governor
from holdfast.task.data.wire import UsedDay
from holdfast.tracing import switch
from holdfast.values.messages import NOTHING, dollars
from holdfast.values.text.logs import log

PATIENCE_SECONDS = 45.0
"""How long a call waits in one attempt of its activity, which has a minute more than the call."""

ANSWER_SECONDS = timedelta(seconds=10)
CLOSE_SECONDS = 2.0
"""How long a process that stops waits until the governor knows what its calls have used."""
AGAIN_SECONDS = 1.0
"""Pause after an ask that was not answered."""

LONGEST_WAIT_SECONDS = 60.0
"""Longest pause until a call comes again that has lost patience."""


def come_again(text: str, seconds: float) -> ModelUnavailableError:
    """Make the error for a call that was not made, and comes again."""
    made = ModelUnavailableError(text, retry_after=max(seconds, AGAIN_SECONDS), is_limit=True)
    made.is_unasked = True
    return made


@dataclass
class Used:
    """What a call has used; nothing, if it has failed.

    Attributes:
        is_made: Whether the provider was asked; else the turn is given back.
        tokens: Its tokens.
        dollars: Its cost.
    """

    is_made: bool = False
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
    """A gate for calls of this process: of one provider, or of the days of all tenants.

    Attributes:
        name: Name of the provider; "tenants" for the days of tenants.
        place: What the gate is of, for a person.
    """

    def __init__(
        self, limited: Provider | Mapping[str, TenantBudget], client: Client, worker: str
    ) -> None:
        """Open a gate in the running event loop."""
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._budgets: Mapping[str, TenantBudget] = {}
        if isinstance(limited, Provider):
            self.name, self.place = limited.name, f"at provider {limited.name!r}"
            self._queue, limits, keys = QUEUE, limited.limits, limited.keys or ("",)
            self._lines = [Line(key, Turns(worker, limits)) for key in keys]
        else:
            self.name, self.place = "tenants", "in the day of its tenant"
            self._queue, self._budgets = TENANTS, limited
            self._lines = [Line("", Turns(worker, Limits(), days=self._limit_of))]
        self._is_closing = False
        self._asking = [asyncio.create_task(self._ask(line)) for line in self._lines]

    def _limit_of(self, tenant: str) -> DayLimit:
        return (self._budgets.get(tenant) or self._budgets[EVERY]).limit

    async def close(self) -> None:
        """Tell the governor what it was not told yet, and stop asking for leases."""
        self._is_closing = True
        for line in self._lines:
            line.stirred.set()
        _, asking = await asyncio.wait(self._asking, timeout=CLOSE_SECONDS)
        for each in asking:
            each.cancel()

    @asynccontextmanager
    async def turn(
        self, call: Call, wait: Callable[[Callable[[], str]], None], used: Used
    ) -> AsyncGenerator[Line]:
        """Wait for the turn of a call, from any loop, and settle the call after the block.

        Args:
            call: The call.
            wait: Gets a function that says what the call waits for.
            used: What the call has used, and whether it was made, by the end of the block.

        Raises:
            ModelUnavailableError: The turn did not come in time; or that of the block.
        """
        line = min(self._lines, key=self._load)
        wait(lambda: self._words(line, call))
        begun = time.monotonic()
        entering = asyncio.run_coroutine_threadsafe(self._enter(line, call), self._loop)
        try:
            await asyncio.wrap_future(entering)
            if (meter := switch.meter()) is not None:
                meter.waited(self.name, time.monotonic() - begun)
            yield line
        except ModelUnavailableError as error:
            if used.is_made and error.is_limit and not self._budgets:
                pause = error.retry_after or 0.0
                self._post(line, lambda: line.turns.refused(call, pause, time.monotonic()))
            raise
        finally:
            if used.is_made:
                self._post(line, lambda: line.turns.done(call, used.tokens, used.dollars))
            else:  # also where its turn comes in the moment in which it is cancelled
                self._post(line, lambda: line.turns.leave(call))

    def _words(self, line: Line, call: Call) -> str:
        """Say for a person what a call waits for."""
        return f"waits for its turn {self.place}: {line.turns.words(call)}."

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
        return come_again(f"The call {self._words(line, call)}", seconds)

    def _past_day(self, call: Call, room: Room) -> ModelUnavailableError:
        """Make the error for a call whose tenant has used its day."""
        limit = self._limit_of(call.tenant)
        of_dollars = room.used == "dollars"
        most = dollars(limit.dollars) if of_dollars else f"{limit.tokens:,} tokens"
        what = f"the {most} that tenant {call.tenant!r} may use in a day ({limit.zone}) are used up"
        error = come_again(f"The call waits for the next day: {what}.", room.ends - time.time())
        error.used_day = UsedDay(what=what, ends=room.ends, of_dollars=of_dollars)
        return error

    def _send_back(self, line: Line, call: Call, error: Exception | None = None) -> None:
        future = line.begun.get(call)
        if future is not None and not future.done():
            future.set_exception(error or self._again(line, call))

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
        for call in list(turns.waiting) if self._budgets else ():
            if (room := turns.used_up(call)) is not None:
                turns.leave(call)
                self._send_back(line, call, self._past_day(call, room))
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
            while turns.is_owing or not self._is_closing:
                line.stirred.clear()
                due = -inf if self._is_closing else turns.due(time.monotonic())
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
        id = self._queue if self._budgets else f"{QUEUE}.{self.name}"
        id += f".{line.key}" if line.key else ""
        while True:
            begun = WithStartWorkflowOperation(
                Governor.run,
                Shares(),
                id=id,
                task_queue=self._queue,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            )
            try:
                return await self._client.execute_update_with_start_workflow(  # pyright: ignore[reportUnknownMemberType]  temporalio's types
                    Governor.lease, ask, start_workflow_operation=begun, rpc_timeout=ANSWER_SECONDS
                )
            except TemporalError as error:
                # Also where it continues as new in this moment.
                log.warning("The governor of %s did not answer: %s", id, error)
            await asyncio.sleep(AGAIN_SECONDS)


class Gates:
    """The gates of this process, and Temporal workers for their governors."""

    def __init__(self, limited: Iterable[Limited]) -> None:
        """Open nothing yet."""
        given = tuple(limited)
        self.providers = [each for each in given if isinstance(each, Provider)]
        self.budgets = {each.tenant: each for each in given if isinstance(each, TenantBudget)}
        self._worker = uuid4().hex[:12]
        self._thread: LoopThread | None = None
        self._opened: dict[tuple[str, str], dict[str, Gate]] = {}
        self._runs: list[asyncio.Task[None]] = []
        self._stop = asyncio.Event()

    async def gate(self, provider: Provider, client: Client) -> Gate:
        """Return the gate of a provider for calls of tasks of this client's namespace."""
        return (await self._gates(client))[provider.name]

    async def day(self, tenant: str, client: Client) -> Gate | None:
        """Return the gate of the days of tenants, if a tenant has a budget."""
        if not tenant or not (tenant in self.budgets or EVERY in self.budgets):
            return None
        return (await self._gates(client))[""]

    async def _gates(self, client: Client) -> dict[str, Gate]:
        place = client.service_client.config.target_host, client.namespace
        known = self._opened.get(place)
        if known is not None:
            return known
        if self._thread is None:
            self._thread = LoopThread("holdfast-governor")
        return await self._thread.wrap(self._open(place, client))

    async def _open(self, place: tuple[str, str], client: Client) -> dict[str, Gate]:
        if place not in self._opened:
            own, served = bare(client), {"workflows": [Governor], "build_id": QUEUE}
            gates = {each.name: Gate(each, own, self._worker) for each in self.providers}
            if self.budgets:
                gates[""] = Gate(self.budgets, own, self._worker)
            # Without governors no call is made.
            for queue in [QUEUE] * bool(self.providers) + [TENANTS] * bool(self.budgets):
                self._runs.append(asyncio.create_task(serve(own, queue, self._stop, **served)))
            self._opened[place] = gates
        return self._opened[place]

    async def close(self) -> None:
        """End the gates, once no call comes any more."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await thread.wrap(self._close())
            await asyncio.to_thread(thread.close, AGAIN_SECONDS)

    async def _close(self) -> None:
        every = [gate for gates in self._opened.values() for gate in gates.values()]
        await asyncio.gather(*(gate.close() for gate in every))
        self._opened.clear()
        self._stop.set()
        await asyncio.gather(*self._runs)
        self._runs, self._stop = [], asyncio.Event()  # another worker may begin
