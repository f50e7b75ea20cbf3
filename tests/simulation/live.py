"""Plays a calm schedule on a real server, and reads what its ledger says then."""

import asyncio
from collections import Counter
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.client import (
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateStage,
)
from temporalio.common import RawValue
from temporalio.service import RPCError

from holdfast.archive.segments import read_archived
from holdfast.engine.search_attributes import AGENT_TASK
from holdfast.reading.visibility import attributes, memo
from holdfast.task.data.calls import Approval
from holdfast.task.data.commands import RunRequest
from holdfast.task.data.records import Entry
from holdfast.task.data.undo import UndoRequest
from holdfast.task.data.wire import EntriesPage, EntriesRequest
from tests.simulation.cast import World
from tests.simulation.invariants import told
from tests.simulation.play import SESSION, TASK, WORLD, Schedule, known_agents, task_input
from tests.simulation.server import WATCHES
from tests.support.rig import Rig

QUIET = 0.05
"""Seconds in which the history of a task must not grow, for the task to be at rest."""


PREFIX = "EVENT_TYPE_"
ON_ITS_WAY = {
    "SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED": 1,
    "EXTERNAL_WORKFLOW_EXECUTION_SIGNALED": -1,
    "SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_FAILED": -1,
    "START_CHILD_WORKFLOW_EXECUTION_INITIATED": 1,
    "CHILD_WORKFLOW_EXECUTION_STARTED": -1,
    "START_CHILD_WORKFLOW_EXECUTION_FAILED": -1,
}
"""Events that begin and end what the server brings from one workflow to another."""


class Live:
    """One schedule on a real server; what is named in it after the task is named for this one."""

    def __init__(self, rig: Rig, schedule: Schedule, name: str) -> None:
        self._rig = rig
        self._schedule = schedule
        self._name = name
        self._session = f"{SESSION}{name}"
        self._updates: list[asyncio.Task[Any]] = []

    def _handle(self, who: int) -> WorkflowHandle[Any, Any]:
        ids = self._ids[: who + 1] or [self._name]
        return self._rig.engine.client.get_workflow_handle(ids[who % len(ids)])

    async def play(self) -> list[str]:
        """Play it; return the ledger."""
        world: World = WORLD
        world.reset()
        self._ids = [self._name]
        given = task_input(self._schedule)
        if given.head.session is not None:
            session = given.head.session.model_copy(
                update={"id": self._session, "queue": self._rig.queue}
            )
            head = given.head.model_copy(update={"session": session})
            given = given.model_copy(update={"head": head})
        await self._rig.engine.client.start_workflow(
            AGENT_TASK,
            given,
            id=self._name,
            task_queue=self._rig.queue,
            memo=memo(given.input, now=0),
            search_attributes=attributes(given),
        )
        for choice in self._schedule.choices:
            await self._choose(choice)
        await self._settle()
        entries = await self._entries()
        for each in self._updates:
            each.cancel()
        await asyncio.gather(*self._updates, return_exceptions=True)
        return [
            told(each).replace(self._session, SESSION).replace(self._name, TASK) for each in entries
        ]

    async def _choose(self, choice: tuple[Any, ...]) -> None:
        match choice:
            case ("settle",):
                await self._settle()
            case ("run", who, id, fields):
                await self._update(who, id, "run", RunRequest.model_validate(fields))
            case ("finalize", who, id):
                await self._update(who, id, "finalize")
            case ("undo", who, id, fields):
                await self._update(who, id, "undo", UndoRequest.model_validate(fields))
            case ("say", who, verb, body):
                await self._say(self._handle(who), verb, body)
            case ("raw", who, name, texts):
                data = [RawValue(_payload(text)) for text in texts]
                await self._quietly(self._handle(who).signal(name, args=data))
            case ("trouble", who, what):
                WORLD.troubles.setdefault(who, []).append(what)
            case ("evict", _):
                pass  # a server's own affair: a replay changes nothing
            case _:
                msg = f"a server is not asked for {choice}"
                raise ValueError(msg)

    async def _update(self, who: int, id: str, name: str, *args: Any) -> None:
        """Send an update; go on once it is accepted or refused."""
        handle: Any = self._handle(who)  # temporalio's types
        stage = WorkflowUpdateStage.ACCEPTED
        try:
            sent = await handle.start_update(name, args=list(args), id=id, wait_for_stage=stage)
        except (RPCError, WorkflowUpdateFailedError):
            return
        self._updates.append(asyncio.create_task(self._quietly(sent.result())))

    async def _say(self, handle: WorkflowHandle[Any, Any], verb: str, body: dict[str, Any]) -> None:
        if body.get("approval") == "open":
            shown = await self._handle(0).query("approval_values", result_type=list[Approval])
            shown = sorted(shown, key=lambda each: each.kind != "undo")
            found = next((each.id for each in shown if each.status == "open"), f"{handle.id}:1")
            handle = self._rig.engine.client.get_workflow_handle(found.rpartition(":")[0])
            body = {**body, "approval": found}
        for key in ("approval", "rule"):
            if isinstance(body.get(key), int):
                body = {**body, key: f"{handle.id}:{body[key]}"}
        await self._quietly(handle.signal(verb, body))

    async def _quietly(self, sent: Any) -> None:
        """Send something; that it is refused is no news here."""
        try:
            await sent
        except (RPCError, WorkflowUpdateFailedError):
            return

    async def _settle(self) -> None:
        """Wait until nothing happens by itself any more."""
        seen: Any = None
        async with asyncio.timeout(100):
            while True:
                await asyncio.sleep(QUIET)
                now = [await self._look(id) for id in self._ids]
                if all(quiet for quiet, _ in now) and now == seen:
                    return
                seen = now

    async def _look(self, id: str) -> tuple[bool, int]:
        """Return whether a task is at rest, and the length of its history; note its children."""
        handle = self._rig.engine.client.get_workflow_handle(id)
        found = await handle.describe()
        raw = found.raw_description
        for child in raw.pending_children:
            if child.workflow_id not in self._ids:
                self._ids.append(child.workflow_id)
        begun = [each for each in raw.pending_activities if each.activity_type.name not in WATCHES]
        is_busy = bool(begun) or raw.HasField("pending_workflow_task")
        if not is_busy:  # what is on its way to another workflow
            history = await self._rig.engine.client.get_workflow_handle(
                id, run_id=found.run_id
            ).fetch_history()
            kinds = Counter(EventType.Name(event.event_type) for event in history.events)
            is_busy = sum(weight * kinds[PREFIX + name] for name, weight in ON_ITS_WAY.items()) > 0
            # The server lets a run wait that follows on one of less than a second.
            is_busy = is_busy or not kinds[f"{PREFIX}WORKFLOW_TASK_COMPLETED"]
        is_open = found.status is WorkflowExecutionStatus.RUNNING
        return not (is_open and is_busy), found.history_length

    async def _entries(self) -> list[Entry]:
        """Read the whole ledger, what is archived included."""
        handle = self._rig.engine.client.get_workflow_handle(self._name)
        entries: list[Entry] = []
        while True:
            asked = EntriesRequest(skip=len(entries), opens=True)
            page = await handle.query("entries", asked, result_type=EntriesPage)
            entries += page.entries
            if not page.more:
                break
        archived = await read_archived(self._rig.engine.archive, page.segment)
        return [*archived, *entries]


async def served(rig: Rig) -> None:
    """Serve the agents of schedules."""
    await rig.serve(*known_agents(frozenset()))


def _payload(text: str) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=text.encode())
