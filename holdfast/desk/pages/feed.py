"""What waits and which tasks there are, read once for all open pages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from holdfast.archive.archive import Archive
from holdfast.archive.segments import forks_of
from holdfast.archive.session_commits import find_run
from holdfast.client.agent_runner.approvals import open_approvals
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.desk.identity.guard import Guard
from holdfast.desk.identity.tenants import runner_of
from holdfast.desk.identity.tokens import Identity
from holdfast.desk.views.branches import ForkedTask
from holdfast.desk.views.cards import Context
from holdfast.desk.views.charts import PERIODS, Asked, Chart, answers_in, charts_of, period_of
from holdfast.engine.search_attributes import SNAPSHOT_MEMO
from holdfast.errors import HoldfastError
from holdfast.reading.listing import begun_since
from holdfast.reading.queries import server_errors
from holdfast.reading.visibility import SessionName, list_sessions, listed, memo_of
from holdfast.task.data.calls import Approval
from holdfast.task.data.head import AgentSnapshot
from holdfast.task.happenings import happenings
from holdfast.task.people.approvals import decided_by
from holdfast.values.checks.ids import task_of
from holdfast.values.code.some_at_once import some_at_once
from holdfast.values.messages import Message
from holdfast.values.runs.status import CLOSED
from holdfast.values.steps import Task

T = TypeVar("T")

FRESH_SECONDS = 0.4
"""How long a reading is shared by pages, at least."""

REST = 4
"""How many times as long as it took a reading is shared: long ones are made less often."""

PATIENCE_SECONDS = 3.0
"""How long a page waits for a worker process before it shows what lists know."""

SNAPSHOTS_KEPT = 200

MOST_SESSIONS = 200

MOST_TASKS = 2_000
"""Newest tasks that charts count."""

MOST_READ = 200
"""Ledgers that are read for the charts at one time; the next reading goes on from there."""

READ_AT_ONCE = 8
DETAIL_SECONDS = 1.5

DECIDED = {"approve": "approved", "reject": "rejected", "respond": "answered"}


@dataclass
class Shared(Generic[T]):
    """A reading that pages share: one request for all that ask while it is fresh."""

    read: Callable[[], Awaitable[T]]
    _value: T | None = None
    _until: float = 0.0
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def get(self) -> T:
        """Return the value, read again unless it is fresh."""
        async with self._lock:
            if self._value is None or time.monotonic() > self._until:
                began = time.monotonic()
                self._value = await self.read()
                now = time.monotonic()
                self._until = now + max(FRESH_SECONDS, REST * (now - began))
            return self._value

    def forget(self) -> None:
        """Have it read again soon."""
        self._until = min(self._until, time.monotonic() + FRESH_SECONDS)


class Feed:
    """Reads for the pages; it holds no state of any task beyond a moment."""

    def __init__(self, runner: AgentRunner) -> None:
        """Read by this runner."""
        self._runner = runner
        self._waiting = Shared(partial(open_approvals, runner))
        self._snapshots: dict[str, AgentSnapshot] = {}
        self._charts = {name: Shared(partial(self._read_charts, name)) for name in PERIODS}
        self._answers: dict[tuple[str, float], tuple[str, list[Asked]]] = {}

    async def charts(self, name: str) -> list[Chart]:
        """Read the charts of a period.

        Raises:
            ConnectError: The server could not be reached.
        """
        return await self._charts[name].get()

    async def _read_charts(self, name: str) -> list[Chart]:
        """List the tasks of a period, and read what models answered in the ones that may have news.

        The record of a closed task never changes, so it is read once.
        """
        period = period_of(name, time.time())
        with server_errors():
            client, query = self._runner.client, begun_since(period.start)
            listing = client.list_workflows(query, page_size=1000, limit=MOST_TASKS)
            tasks = [await listed(found) async for found in listing]
        tasks = [task for task in tasks if task.created >= period.start]
        due = [task for task in tasks if not self._has_read(task) or task.status not in CLOSED]
        due.sort(key=self._has_read)  # the others first
        await some_at_once(self._read_answers, due[:MOST_READ], READ_AT_ONCE)
        asked = [a for task in tasks for a in self._answers.get(_key(task), ("", []))[1]]
        own = [task for task in tasks if not task.parent]
        return charts_of(period, own, await self.waiting(), asked)

    def _has_read(self, task: Task) -> bool:
        return self._answers.get(_key(task), ("",))[0] == task.status

    async def _read_answers(self, task: Task) -> None:
        """Read the answers of models in a task; keep what is known if no worker process is up."""
        reading = self._runner.reader.ledger(task.task_id, legible=True)
        try:
            async with asyncio.timeout(DETAIL_SECONDS):
                found = answers_in(happenings(*await reading))
        except (HoldfastError, TimeoutError):
            return
        self._answers[_key(task)] = task.status, found
        while len(self._answers) > MOST_TASKS:
            del self._answers[next(iter(self._answers))]

    async def waiting(self) -> list[Approval]:
        """List what waits for a person over all tasks, oldest first.

        Raises:
            ConnectError: The server could not be reached.
        """
        return await self._waiting.get()

    def forget(self) -> None:
        """Have lists read again soon: something was just changed."""
        self._waiting.forget()

    async def approval(self, listed_: Approval) -> Approval:
        """Return an approval with its whole arguments, if a worker process is up to give them."""
        task_id = task_of(listed_.id)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                found = await self._runner.pending_approvals(task_id)
        except (HoldfastError, TimeoutError):
            return listed_
        return next((each for each in found if each.id == listed_.id), listed_)

    async def context(self, task_id: str) -> Context:
        """Read what a card says next to its approval, as far as a worker process answers."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                task, messages, snapshot = await asyncio.gather(
                    self._runner.reader.task(task_id),
                    self._runner.all_messages(task_id),
                    self.snapshot(task_id),
                )
        except (HoldfastError, TimeoutError):
            return await self.listed(task_id)
        return Context(task=task, snapshot=snapshot, messages=_newest(messages))

    async def listed(self, task_id: str) -> Context:
        """Describe a task, and its agent if it waits, by lists: no worker process need be up."""
        try:
            found = await self._runner.reader.describe(task_id)
            digest = (await memo_of(found)).get(SNAPSHOT_MEMO, "")
            snapshot = await self._snapshot(digest) if digest else None
            return Context(task=await listed(found), snapshot=snapshot)
        except HoldfastError:
            return Context(task=Task(task_id=task_id))

    async def snapshot(self, task_id: str) -> AgentSnapshot | None:
        """Read the agent as a task began with it; None when it cannot be read."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                head = await self._runner.reader.head(task_id)
                return await self._snapshot(head.snapshot) if head.snapshot else None
        except (HoldfastError, TimeoutError):
            return None

    async def _snapshot(self, digest: str) -> AgentSnapshot:
        found = self._snapshots.get(digest)
        if found is None:
            archive: Archive = self._runner.archive
            found = AgentSnapshot.model_validate_json(await archive.aget(digest))
            while len(self._snapshots) >= SNAPSHOTS_KEPT:
                del self._snapshots[next(iter(self._snapshots))]
            self._snapshots[digest] = found
        return found

    async def decided_by(self, approval_id: str) -> str:
        """Return how an approval was decided, by whom and when; empty when it is not known."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                entries = await self._runner.ledger(task_of(approval_id))
        except (HoldfastError, TimeoutError):
            return ""
        verb, _, rest = decided_by(entries, approval_id).partition(" ")
        return f"{DECIDED.get(verb, verb)} {rest}".strip()


async def read_sessions(runner: AgentRunner) -> list[SessionName]:
    """List the newest sessions of the runner's app.

    Raises:
        ConnectError: The server could not be reached.
    """
    return await list_sessions(runner.client, runner.app, MOST_SESSIONS)


async def read_forks(runner: AgentRunner, task: Task) -> list[ForkedTask]:
    """List the tasks that were forked from one and that Temporal knows, oldest first.

    Raises:
        ConnectError: The server could not be reached.
    """
    marks = await forks_of(runner.archive, task.task_id)
    with server_errors():
        runs = [(await find_run(runner.client, each), n) for each, n in marks.items()]
    found = [ForkedTask(task=await listed(run), n=n) for run, n in runs if run is not None]
    return sorted(found, key=lambda each: each.task.created)


@dataclass(frozen=True)
class Desk:
    """What all pages share.

    Attributes:
        runner: Reads and steers the tasks.
        guard: Decides who may do what.
        feed: What waits and which tasks there are, read once for all pages.
        tenants: The desks of single tenants, as they were asked for.
    """

    runner: AgentRunner
    guard: Guard
    feed: Feed
    tenants: dict[str, Desk] = field(default_factory=dict[str, "Desk"], repr=False)

    def of(self, visitor: Identity) -> Desk:
        """Return the desk as a visitor may see it: this one, or one of their tenant's tasks."""
        if not visitor.tenant:
            return self
        made = self.tenants.get(visitor.tenant)
        if made is None or made.runner.archive is not self.runner.archive:  # started again since
            runner = runner_of(self.runner, visitor.tenant)
            made = self.tenants[visitor.tenant] = Desk(runner, self.guard, Feed(runner))
        return made


def _key(task: Task) -> tuple[str, float]:
    return task.task_id, task.created  # an id may be used again


def _newest(messages: list[Message]) -> tuple[Message, ...]:
    return tuple(messages[-20:])
