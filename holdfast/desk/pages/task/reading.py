"""Everything that the page of a task shows, read at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.desk.pages.access import Desk
from holdfast.desk.views.branches import ForkedTask
from holdfast.engine.search_attributes import ORIGIN_MEMO
from holdfast.errors import EngineError
from holdfast.reading.listing import begun_since
from holdfast.reading.server_errors import server_errors
from holdfast.reading.visibility import listed, memo_of
from holdfast.task.data.agent_snapshot import AgentSnapshot
from holdfast.task.data.calls import Approval, StandingRule
from holdfast.task.data.records import Entry, OpenState
from holdfast.task.happenings import Happening, happenings
from holdfast.values.steps import ListedTask, Task, TaskStep

MOST_READ = 2_000
"""Newest tasks among which the forks of a task are looked for."""

READ_SECONDS = 6.0
"""How long a page waits for a worker process that has just been killed, and counts as running."""


@dataclass(frozen=True)
class Facts:
    """What was read of a task.

    Attributes:
        task: The task.
        entries: Its ledger.
        opens: Its steps in progress.
        upcoming: The step in progress and the queued ones.
        approvals: What waits for a person.
        snapshot: The agent as the task began with it.
        children: Its child tasks.
    """

    task: Task
    entries: Sequence[Entry] = ()
    opens: Sequence[OpenState] = ()
    upcoming: Sequence[TaskStep] = ()
    approvals: Sequence[Approval] = ()
    rules: Sequence[StandingRule] = ()
    snapshot: AgentSnapshot | None = None
    children: Sequence[ListedTask] = ()

    @cached_property
    def found(self) -> list[Happening]:
        """What happened in the task."""
        return list(happenings(self.entries, self.opens))

    @cached_property
    def lost(self) -> str:
        """Which part of the ledger cannot be read, and why; empty if it is whole."""
        event = self.entries[0].event if self.entries else None  # it is in place of the oldest
        return event.text if event is not None and event.kind == "damaged" else ""

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal facts."""
        task = self.task
        return (
            (
                task.status,
                task.steps,
                task.usage,
                task.error,
                task.blocked_by,
                task.waits,
                task.paused,
            ),
            len(self.entries),
            tuple(self.opens),
            tuple(self.upcoming),
            tuple((each.id, each.status) for each in self.approvals),
            tuple(each.id for each in self.rules),
            tuple((each.task_id, each.status) for each in self.children),
            self.snapshot is None,
        )


async def read_forks(runner: AgentRunner, task: Task) -> list[ForkedTask]:
    """List the tasks that were forked from one, oldest first.

    Raises:
        ConnectError: The server could not be reached.
    """
    query = begun_since(task.created)
    found: list[ForkedTask] = []
    with server_errors():
        async for each in runner.client.list_workflows(query, page_size=500, limit=MOST_READ):
            origin = (await memo_of(each)).get(ORIGIN_MEMO)
            if origin and origin[0] == task.task_id:
                found.append(ForkedTask(task=await listed(each), n=origin[1]))
    return found[::-1]


async def read_facts(desk: Desk, task_id: str, snapshot: AgentSnapshot | None) -> Facts:
    """Read a task.

    Args:
        desk: The desk.
        task_id: The task.
        snapshot: Its agent, if it was read before.

    Raises:
        TaskNotFoundError: There is no such id.
        NoWorkerError: It is open and no worker process is up to answer.
        ConnectError: The server could not be reached.
        TimeoutError: No answer came in time.
    """
    runner = desk.runner
    async with asyncio.timeout(READ_SECONDS):
        task = await runner.get_task(task_id)
        (entries, opens), upcoming, approvals, rules = await asyncio.gather(
            runner.reader.ledger(task_id, legible=True),
            runner.get_upcoming_steps(task_id),
            runner.pending_approvals(task_id),
            runner.standing_rules(task_id),
        )
    try:
        children: list[ListedTask] = await runner.list_tasks(parent=task_id)
    except EngineError:
        children = []
    return Facts(
        task=task,
        entries=entries,
        opens=opens,
        upcoming=upcoming,
        approvals=approvals,
        rules=rules,
        snapshot=snapshot or await desk.feed.snapshot(task_id),
        children=children,
    )
