"""The end of a task that obeys no command, as workflow code fails in it.

Temporal terminates it. The history up to the last workflow task that succeeded is then replayed
here, which gives the ledger; from that the record is made, as if the task had closed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from temporalio import workflow
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowExecutionStatus, WorkflowHistory
from temporalio.worker import (
    ExecuteWorkflowInput,
    Interceptor,
    Replayer,
    UnsandboxedWorkflowRunner,
    WorkflowInboundInterceptor,
    WorkflowInstance,
    WorkflowInterceptorClassInput,
)

from holdfast.activities.task_end import record_of
from holdfast.archive.segments import write_record
from holdfast.client.agent_runner.task_client.caller import unique_id
from holdfast.errors import CommandRefusedError, QueryFailedError, TaskClosedError
from holdfast.reading.ended import why_stuck
from holdfast.reading.reader import Reader
from holdfast.reading.server_errors import server_errors
from holdfast.serving.activations import WholeTasks
from holdfast.serving.worker_process import BUILD_ID
from holdfast.task.data.closing import CloseInput, EntriesPage
from holdfast.task.data.commands import LONGEST_REASON, Receipt
from holdfast.task.data.state import known_head
from holdfast.task.refusals import abandoned
from holdfast.values.checks.ids import check_by
from holdfast.workflows.agent_task import AgentTask
from holdfast.workflows.tools.tool_runs import leave_calls


async def end_by_force(reader: Reader, task_id: str, reason: str, by: str) -> Receipt:
    """Terminate a task in which workflow code fails, and store its record.

    Args:
        reader: Reads the namespace's tasks.
        task_id: The task.
        reason: Why it is ended.
        by: Who ends it.

    Raises:
        CommandRefusedError: It obeys commands.
        TaskClosedError: It has ended, and has a record.
        QueryFailedError: Its history cannot be replayed.
    """
    why = f"{check_by(by) or 'somebody'}: {reason[:LONGEST_REASON]}"
    found = await reader.describe(task_id)
    is_open = found.status is WorkflowExecutionStatus.RUNNING
    if is_open and not await why_stuck(reader.client, found):
        msg = f"Task {task_id!r} obeys commands: abandon it without force."
        raise CommandRefusedError(msg)
    handle = reader.client.get_workflow_handle(task_id, run_id=found.run_id)
    with server_errors():
        if is_open:
            await handle.terminate(reason=why)
        # One that was closing may have a record, and that stays.
        if await reader.records.read(task_id) is not None:
            msg = f"Task {task_id!r} is closed: it can be read, not changed."
            raise TaskClosedError(msg)
        history = await handle.fetch_history()
    left: list[Callable[[], object]] = []
    try:
        replayed = await _replayed(reader, _completed(history), left)
        await _store(reader, task_id, replayed, why, by)
    finally:
        for evict in left:
            evict()
    return Receipt(id=unique_id(), verb="abandon", status="applied")


async def _store(reader: Reader, task_id: str, task: AgentTask, why: str, by: str) -> None:
    """Record the end in a replayed ledger, and write the record."""
    ledger, now = task.core.ledger, round(time.time(), 3)
    leave_calls(ledger, task.core.running, at=now)
    body = {"status": "abandoned", "forced": True}
    ledger.note("closed", now=now, by=by, text=why, body=body)
    given = CloseInput(
        status="abandoned", at=ledger.s.transcript, failure=abandoned(why), ledger=ledger.chain
    )
    page = EntriesPage(
        segment=ledger.s.segment, opens=tuple(each.chained() for each in ledger.s.opens)
    )
    head = known_head(ledger.head, ledger.s.described)
    record = await record_of(reader.archive, given, head, ledger.task(), page, list(ledger.entries))
    await write_record(reader.archive, task_id, record)


def _completed(history: WorkflowHistory) -> WorkflowHistory:
    """Return a history up to its last workflow task that succeeded, with what that has begun."""
    done = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    last = max((each.event_id for each in history.events if each.event_type == done), default=0)
    kept = [each for each in history.events if each.event_id <= last or _is_of(each, last)]
    return WorkflowHistory(history.workflow_id, kept)


def _is_of(event: Any, completed: int) -> bool:
    """Whether an event was made by a command of this workflow task."""
    said = getattr(event, event.WhichOneof("attributes"))
    return getattr(said, "workflow_task_completed_event_id", 0) == completed


class _Keeps(WholeTasks):
    """A run that is left as it is at the end of the replay: an eviction cancels what goes on."""

    def __init__(self, inner: WorkflowInstance, left: list[Callable[[], object]]) -> None:
        super().__init__(inner)
        self._left = left

    def activate(self, act: Any) -> Any:
        """Handle an activation; put an eviction off."""
        if any(job.WhichOneof("variant") == "remove_from_cache" for job in act.jobs):
            self._left.append(partial(self._inner.activate, act))
            act = type(act)(run_id=act.run_id)
        return self._inner.activate(act)


class _Runner(UnsandboxedWorkflowRunner):
    def __init__(self, left: list[Callable[[], object]]) -> None:
        super().__init__()
        self._left = left

    def create_instance(self, det: Any) -> WorkflowInstance:
        """Make a run."""
        return _Keeps(super().create_instance(det), self._left)


class _Finds(Interceptor):
    def __init__(self, found: list[AgentTask]) -> None:
        self._found = found

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: ARG002  Temporal's name
    ) -> type[WorkflowInboundInterceptor]:
        found = self._found

        class Inbound(WorkflowInboundInterceptor):
            async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
                found.append(workflow.instance())
                return await super().execute_workflow(input)

        return Inbound


async def _replayed(
    reader: Reader, history: WorkflowHistory, left: list[Callable[[], object]]
) -> AgentTask:
    """Replay a history as far as it goes.

    Raises:
        QueryFailedError: Not even its begin can be replayed.
    """
    found: list[AgentTask] = []
    replayer = Replayer(
        workflows=[AgentTask],
        data_converter=reader.client.data_converter,
        workflow_runner=_Runner(left),
        interceptors=[_Finds(found)],
        build_id=BUILD_ID,
    )
    failed = None
    if history.events:
        result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
        failed = result.replay_failure
    if not found:
        msg = (
            f"Task {history.workflow_id!r} has ended, and has no record: its history cannot be"
            f" replayed by this code: {failed or 'it never began'}."
        )
        raise QueryFailedError(msg, remedy="Do the same with the code that it ran with.")
    return found[0]
