"""Erasing tasks for good: each attempt does what is left to do, and looks whether anything is."""

from __future__ import annotations

import asyncio
import time

from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.heartbeat import heartbeats
from holdfast.archive.archive import Archive
from holdfast.archive.kept_answers import drop_answers, drop_folders
from holdfast.archive.names import CONTENTS_SCOPE, ERASURES, record_name, writing_for
from holdfast.archive.segments import write_messages
from holdfast.archive.session_commits import commit_turn
from holdfast.engine.search_attributes import TASKS, is_
from holdfast.errors import CommandRefusedError
from holdfast.reading.visibility import find_run
from holdfast.task.data.seal import record_digest, signed
from holdfast.task.data.state import CommitRef
from holdfast.task.data.wire import Erasure
from holdfast.values.base import Json
from holdfast.values.checks.json_shapes import as_object
from holdfast.values.messages import Message
from holdfast.values.pauses import pauses

PLACE = "This part of the conversation was erased."
REMAINS = (
    "Backups of Temporal's database and of the archive, until they end.",
    "What logs, traces and notifications have, and what models and tools were sent.",
    "What processes have in memory, until they end.",
    "A session that the caller keeps.",
    "Forks that Temporal had forgotten.",
)
WITH_KEYS = (
    "The archive's folder keys/ in backups: what they have cannot be read without it.",
    "Values that were written before tasks had data keys of their own.",
)
WITHOUT_KEYS = ("Values in the archive's blobs/: it has no keys, and other tasks may name them.",)


class ErasingActivities:
    """Erases tasks for the workers of a namespace."""

    def __init__(self, archive: Archive) -> None:
        """Erase in this archive."""
        self._archive = archive

    @activity.defn(name="erase")
    async def erase(self, given: Erasure) -> str:
        """Erase tasks; return the digest of the certificate, which is written once all is gone.

        Raises:
            ApplicationError: One of the tasks is open; nothing was erased.
        """
        archive, client = self._archive, activity.client()
        name = record_name(ERASURES, given.task)
        async with heartbeats():
            with writing_for(CONTENTS_SCOPE):
                if not await archive.ahas_record(name):
                    await self._refuse_open(client, given)
                done = await self._erased(client, given, name)
        return record_digest(done)

    async def _refuse_open(self, client: Client, given: Erasure) -> None:
        """Refuse while a task is open: once one is erased it cannot be opened again."""
        for each in given.tasks:
            newest = await find_run(client, each)
            if newest is not None and newest.close_time is None:
                msg = f"Task {each!r} is open. Finalize or abandon it; nothing was erased."
                raise ApplicationError(msg, type=CommandRefusedError.__name__, non_retryable=True)

    async def _erased(self, client: Client, given: Erasure, name: str) -> dict[str, Json]:
        archive = self._archive
        why = f"Task {given.task!r} was erased by {given.by}: {given.reason}"
        for turn in given.turns:
            with writing_for(turn.session):
                message = Message(role="assistant", content=PLACE)
                sha256 = await write_messages(archive, [message])
            ref = CommitRef(task=f"-erased {turn.task}", sha256=sha256, count=1, erases=turn.task)
            await commit_turn(client, archive, turn.session, turn.queue, ref)
        values = 0
        # In keys/ all is in plain text: no reason, which may name a person.
        told = f"Task {given.task!r} was erased: {name!r} of the archive says by whom and why."
        while found := await archive.aerase_scopes(given.tasks, told):
            values += found
        for each in given.tasks:
            # In place of the record: the id stays taken.
            await archive.aput_record(record_name("tasks", each), {"erased": why, "by": name})
            await drop_answers(archive, each)
            await drop_folders(archive, each)
            for pause in pauses(0.05, 2.0):
                if not await _delete(client, each):
                    break
                await asyncio.sleep(pause)
        certificate: dict[str, Json] = {
            **given.model_dump(mode="json"),
            "values": values,
            "done": time.time(),
            "remains": list[Json](
                REMAINS + (WITHOUT_KEYS if archive.encrypted is None else WITH_KEYS)
            ),
        }
        made = signed(certificate, given.task, "holdfast erasure")
        there = await archive.acreate_record(name, made)  # of two attempts one decides
        return as_object(there)


async def _delete(client: Client, task_id: str) -> bool:
    """Have Temporal delete what it has of a task; return whether it had anything yet."""
    listed = client.list_workflows(f"{TASKS}{is_('WorkflowId', task_id)}")
    found = {run.run_id async for run in listed if run.id == task_id}
    newest = await find_run(client, task_id)
    found |= {newest.run_id} if newest is not None else set()
    for run in found:
        which = WorkflowExecution(workflow_id=task_id, run_id=run)
        request = DeleteWorkflowExecutionRequest(
            namespace=client.namespace, workflow_execution=which
        )
        try:
            await client.workflow_service.delete_workflow_execution(request)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
    return bool(found)
