"""What all tasks of a namespace come to: counted by one process, `holdfast metrics`.

Workers and desks do not count: there are several of them, or none, and each would ask the server.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import get_args

from temporalio.client import Client

from holdfast.engine.search_attributes import (
    APPROVALS_MEMO,
    HF_AGENT,
    HF_APPROVALS,
    OPEN_TASKS,
    TASKS,
    is_,
)
from holdfast.errors import EngineError
from holdfast.reading.listing import PROBLEMS, tasks_query
from holdfast.reading.queries import server_errors
from holdfast.reading.visibility import memo_of
from holdfast.serving.observed.metrics import Meters
from holdfast.serving.unserved import unserved
from holdfast.task.data.calls import ApprovalKind
from holdfast.values.runs.status import CLOSED, TaskStatus
from holdfast.values.text.logs import log

EVERY_SECONDS = 30.0
CLOSED_FOR = timedelta(hours=1)
MOST_AGENTS = 100
STATUSES: tuple[TaskStatus, ...] = get_args(TaskStatus)
KINDS = tuple(kind for kind in get_args(ApprovalKind) if kind != "unread")


class Gauges:
    """Counts all tasks, again and again."""

    def __init__(self, client: Client, meters: Meters) -> None:
        """Count those of this client's namespace."""
        self._client = client
        self._meters = meters
        self._agents: list[str] = []

    async def run(self) -> None:
        """Count until cancelled; a server that does not answer is asked again."""
        while True:
            try:
                await self.count()
            except EngineError as error:
                log.warning("The tasks could not be counted: %s", error)
            await asyncio.sleep(EVERY_SECONDS)

    async def count(self) -> None:
        """Count once.

        Raises:
            ConnectError: The server did not answer.
        """
        with server_errors():
            await self._find_agents()
            since = f" AND CloseTime > '{(datetime.now(UTC) - CLOSED_FOR).isoformat()}'"
            for agent in self._agents:
                for status in STATUSES:
                    query, facts = tasks_query(status, agent), {"agent": agent, "status": status}
                    if status in CLOSED:
                        await self._set("holdfast_closed_tasks", query + since, **facts)
                    else:
                        await self._set("holdfast_open_tasks", query, **facts)
            await self._set("holdfast_failing_tasks", f"{OPEN_TASKS} AND {PROBLEMS} IS NOT NULL")
            await self._count_approvals()
            found = await unserved(self._client, ())
            self._meters.set("holdfast_unserved_queues", len(found))
        self._meters.set("holdfast_counted_at_seconds", time.time())

    async def _set(self, name: str, query: str, **labels: str) -> None:
        found = await self._client.count_workflows(query)
        self._meters.set(name, found.count, **labels)

    async def _find_agents(self) -> None:
        """Look for agents that are not known yet: one request, and one more for each."""
        while len(self._agents) < MOST_AGENTS:
            query = TASKS + "".join(is_(HF_AGENT.name, each, negated=True) for each in self._agents)
            async for found in self._client.list_workflows(query, limit=1000):
                agent = found.typed_search_attributes.get(HF_AGENT) or ""
                if agent not in self._agents:
                    self._agents.append(agent)
                    break
            else:
                return

    async def _count_approvals(self) -> None:
        """Count what waits for people; where a list shows not all, the rest count as tools."""
        kinds, now = Counter[str](), time.time()
        oldest = now
        query = f"{OPEN_TASKS} AND {HF_APPROVALS.name} > 0"
        async for found in self._client.list_workflows(query, page_size=1000):
            cards = (await memo_of(found)).get(APPROVALS_MEMO, [])
            kinds.update(card.get("kind", "tool") for card in cards)
            kinds["tool"] += (found.typed_search_attributes.get(HF_APPROVALS) or 0) - len(cards)
            oldest = min([oldest, *(card.get("asked", now) for card in cards)])
        for kind in KINDS:
            self._meters.set("holdfast_approvals_waiting", kinds[kind], kind=kind)
        self._meters.set("holdfast_oldest_approval_seconds", now - oldest)
