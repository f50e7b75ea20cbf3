"""Erasing tasks: what a person said, and what was done with it, is gone for good."""

from __future__ import annotations

import time
from typing import Literal

from temporalio.client import WorkflowFailureError
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCStatusCode

from holdfast.archive.names import ERASURES, record_name
from holdfast.archive.segments import committing_tasks, has_record
from holdfast.client.agent_runner.base import RunnerBase, TaskLike, id_of
from holdfast.client.caller_sessions.turns import forget_turn
from holdfast.engine.search_attributes import TASKS
from holdfast.errors import CommandRefusedError, TaskNotFoundError
from holdfast.reading.audit.audit import audit_events
from holdfast.reading.server_errors import server_errors
from holdfast.reading.visibility import find_run, origin_of
from holdfast.task.data.head import TaskHead
from holdfast.task.data.seal import record_digest
from holdfast.task.data.wire import ErasedTurn, Erasure
from holdfast.values.base import Json
from holdfast.values.checks.arguments import check_arguments
from holdfast.values.checks.ids import check_by
from holdfast.values.checks.json_shapes import as_object
from holdfast.values.runs.status import CLOSED


class TaskErasing(RunnerBase):
    """The part of AgentRunner that erases tasks."""

    async def erase(
        self,
        task: TaskLike,
        *,
        by: str,
        reason: str,
        forks: Literal["refuse", "erase"] = "refuse",
    ) -> dict[str, Json]:
        """Erase a closed task with its child tasks: history, record, values, its turn in a session.

        A workflow does it, and goes on whatever is killed. Of an encrypted archive the task's data
        key is deleted, so that a backup without the folder `keys/` has nothing that can be read.
        Asked again, it returns the same certificate, and erases what a restored database has again.

        Args:
            task: The task.
            by: Who asks.
            reason: Why.
            forks: Whether tasks that were forked from it are erased as well. They have copies.

        Returns:
            The certificate, as the archive keeps it in `erasures/`: what was erased, for whom and
            why, and what remains where. Signed, if the worker process has a signing key.

        Raises:
            CommandRefusedError: One of the tasks is open, has forks, or is a child task. Nothing
                was erased.
            TaskNotFoundError: No task has this id.
            NoWorkerError: No worker process serves the task's queue.
            ConnectError: The server could not be reached.
        """
        check_arguments(TaskErasing.erase, reason=reason, forks=forks)
        task_id, who = id_of(task), check_by(by)
        if not who or not reason.strip():
            msg = "An erasure has a person and a reason: by=..., reason=..."
            raise CommandRefusedError(msg)
        name = record_name(ERASURES, task_id)
        run_id = f"{task_id}~erasure"
        done = as_object(await self.archive.afind_record(name))
        if done and not await self._tasks.is_known(task_id):
            return done
        handle = self.client.get_workflow_handle(run_id, result_type=str)
        with server_errors(RPCStatusCode.NOT_FOUND):
            begun = await find_run(self.client, run_id)
            if begun is None or begun.close_time is not None:
                if done:  # the database was restored from a backup of before
                    known = {key: done[key] for key in Erasure.model_fields}
                    asked = Erasure.model_validate(known)
                else:
                    asked = await self._erasure(task_id, who, reason, with_forks=forks == "erase")
                await self._read.presence.expect(asked.queue, task_id=task_id)
                await forget_turn(self.archive, task_id)
                await self.client.start_workflow(
                    "Erasure",
                    asked,
                    id=run_id,
                    task_queue=asked.queue,
                    id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                    id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                )
            try:
                await handle.result()
            except WorkflowFailureError as error:
                cause = getattr(error.cause, "cause", None)
                if not isinstance(cause, ApplicationError):
                    raise
                raise CommandRefusedError(cause.message) from None
        self._read.records.forget(task_id)
        return as_object(await self.archive.aget_record(name))

    async def _erasure(self, task_id: str, by: str, reason: str, *, with_forks: bool) -> Erasure:
        """Find all that goes with a task."""
        forks = await self._forks()
        heads, todo = dict[str, TaskHead](), [task_id]
        while todo:
            each = todo.pop()
            if each in heads:
                continue
            try:
                found = await self._read.task(each)
                heads[each] = await self._read.head(each)
            except TaskNotFoundError:
                if each == task_id:
                    raise
                continue
            if found.status not in CLOSED:
                msg = f"Task {each!r} is open. Finalize or abandon it first; nothing was erased."
                raise CommandRefusedError(msg)
            if of_it := forks.get(each):
                if not with_forks:
                    msg = (
                        f"Task {each!r} has forks, which have copies of its texts:"
                        f" {', '.join(of_it)}. Nothing was erased."
                    )
                    remedy = "Name them as well: forks='erase', or --with-forks."
                    raise CommandRefusedError(msg, remedy=remedy)
                todo += of_it
            entries = await self._read.entries(each)
            todo += [event.child for event in audit_events(entries, opens=()) if event.child]
            todo += await self._tasks.children(each)
        above = task_id.rpartition("~")[0]
        if above and (await has_record(self.archive, above) or await self._tasks.is_known(above)):
            msg = f"Task {task_id!r} belongs to another task. Erase that one; nothing was erased."
            raise CommandRefusedError(msg)
        find = self.archive.afind_record
        records = {each: as_object(await find(record_name("tasks", each))) for each in heads}
        turns = [await self._turn_of(each, head) for each, head in heads.items()]
        queue = await self._read.presence.queue_if_known(task_id)
        return Erasure(
            task=task_id,
            tasks=tuple(heads),
            records={each: record_digest(data) for each, data in records.items() if data},
            turns=tuple([turn for turn in turns if turn is not None]),
            by=by,
            reason=reason,
            asked=time.time(),
            queue=queue or self._queue_for(heads[task_id].agent),
        )

    async def _turn_of(self, task_id: str, head: TaskHead) -> ErasedTurn | None:
        """Return where the turn of a task is; None if no session has one."""
        if head.session is None:
            return None
        try:
            state = await self._read.session(head.session.id)
        except TaskNotFoundError:
            return None
        if task_id not in await committing_tasks(self.archive, state):
            return None
        return ErasedTurn(task=task_id, session=head.session.id, queue=head.session.queue)

    async def _forks(self) -> dict[str, list[str]]:
        """Return the forks that Temporal knows, by the task that they depart from."""
        found = dict[str, list[str]]()
        async for each in self.client.list_workflows(TASKS):
            if (origin := await origin_of(each)) is not None:
                found.setdefault(origin[0], []).append(each.id)
        return found
