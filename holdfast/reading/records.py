"""Records of closed tasks, and which of them count.

A task without a turn for a session writes its record in the workflow task that ends it. The server
may throw that workflow task away, as when a signal came meanwhile, and the task may go on: then the
archive has the record of an end that never was. So the end takes two phases. The record is prepared
in the archive, and says so; the end is committed with the workflow task, which leaves the record's
seal with the run: in its result, its failure, or where Temporal was told to cancel it, its memo. A
prepared record counts only if the run has its seal, or if Temporal has forgotten the run: it
forgets only runs that are closed. A later end has a record of its own, which replaces the prepared
one.

A task that was terminated with Temporal's own tools after such a record has no seal: its history
tells of it, as of any other that was ended like this. Once Temporal has forgotten it, nothing tells
it apart from one that ended by its record, which is then what is read.
"""

from __future__ import annotations

from pydantic import ValidationError
from temporalio.client import Client, WorkflowExecution, WorkflowFailureError

from holdfast.archive.archive import Archive
from holdfast.archive.bytestore import record_name
from holdfast.archive.segments import check_erased, has_record
from holdfast.engine.search_attributes import SEAL_MEMO
from holdfast.errors import ArchiveError, TaskNotFoundError
from holdfast.reading.queries import TaskQueries, server_errors
from holdfast.reading.visibility import memo_of
from holdfast.task.data.failures import fact_of
from holdfast.task.data.records import Seal, is_sealed
from holdfast.task.data.state import TaskRecord
from holdfast.task.data.wire import TaskResult
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_object
from holdfast.values.code import user_calls

SEALS_KEPT = 10_000


class Records:
    """Reads the records of tasks that have ended.

    A seal that was found once stays: nothing follows the end of a task, unless its workflow is
    reset with Temporal's own tools.
    """

    def __init__(self, tasks: TaskQueries, archive: Archive) -> None:
        """Read from this archive; ask the server by these queries."""
        self._tasks = tasks
        self._archive = archive
        self._seals: dict[str, str] = {}

    def ended(self, task_id: str, seal: str) -> None:
        """Remember that a task has ended by the record of this digest."""
        self._seals[task_id] = seal
        while len(self._seals) > SEALS_KEPT:
            del self._seals[next(iter(self._seals))]
        user_calls.release(task_id)  # no activity comes after the one that has prepared the record

    def forget(self, task_id: str) -> None:
        """Forget a task that was deleted."""
        self._seals.pop(task_id, None)

    async def read(self, task_id: str, found: WorkflowExecution | None = None) -> TaskRecord | None:
        """Return the record of a task, or None without one that counts.

        A prepared one costs a request to the server, unless the task is known to have ended by it.

        Args:
            task_id: The task.
            found: What the server says of the task, if it was asked already.

        Raises:
            ConnectError: The server could not be reached.
        """
        data, known = await self.found(task_id), self._seals.get(task_id, "")
        if data is None or _counts(data, known):
            if known:
                self.ended(task_id, known)
            return _record(data)
        try:
            found = found or await self._tasks.describe(task_id)
        except TaskNotFoundError:
            return _record(data)
        seal = await seal_of(self._tasks.client, found)
        if seal is None:
            return None
        self.ended(task_id, seal.record)
        if not _counts(data, seal.record):  # the task may have gone on since it was read, and ended
            data = await self.found(task_id)
        return _record(data) if data is not None and _counts(data, seal.record) else None

    async def has(self, task_id: str) -> bool:
        """Whether there is a record of a task, which is closed, or known to the server."""
        return await has_record(self._archive, task_id)

    async def found(self, task_id: str) -> Json | None:
        """Read the data of a record; None for no record."""
        return await self._archive.afind_record(record_name("tasks", task_id))


def _record(data: Json | None) -> TaskRecord | None:
    check_erased(data)
    try:
        return None if data is None else TaskRecord.model_validate(data)
    except ValidationError as error:
        raise ArchiveError(
            f"The record of a closed task is damaged: {error}.", remedy="Restore it from a backup."
        ) from error


def _counts(data: Json, seal: str) -> bool:
    """Whether a record counts where the run has this seal, or none that is known."""
    found = as_object(data)
    return not found.get("prepared") or is_sealed(found, seal)


async def seal_of(client: Client, found: WorkflowExecution) -> Seal | None:
    """Return the seal that a task has left with its run; None when it has not ended by a record.

    Raises:
        ConnectError: The server could not be reached.
    """
    if found.close_time is None:
        return None
    kept: object = (await memo_of(found)).get(SEAL_MEMO)
    if kept is None:
        run = client.get_workflow_handle(found.id, run_id=found.run_id, result_type=TaskResult)
        try:
            with server_errors():
                ended: TaskResult = await run.result(follow_runs=False)
            return ended.seal
        except WorkflowFailureError as error:
            kept = fact_of(getattr(error.cause, "details", ()), SEAL_MEMO)
    return Seal.model_validate(kept) if kept else None
