"""Reading a task that cannot answer, and its end where it obeys no command.

Its history up to the last workflow task that succeeded is replayed here, which gives the ledger. A
task in which workflow code fails is terminated, and its record made from that, as if it had closed.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from temporalio import workflow
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowExecution, WorkflowExecutionStatus, WorkflowHistory
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
from holdfast.archive.segments import read_archived, write_record
from holdfast.client.agent_runner.task_client.task_client import unique_id
from holdfast.engine.converter import telling
from holdfast.errors import CommandRefusedError, QueryFailedError, TaskClosedError
from holdfast.reading.queries import server_errors, why_stuck
from holdfast.reading.reader import Reader
from holdfast.serving.whole_tasks import WholeTasks
from holdfast.serving.worker_process import BUILD_ID
from holdfast.task.data.calls import Approval
from holdfast.task.data.commands import LONGEST_REASON, Receipt
from holdfast.task.data.records import Entry, EventRecord, OpenState
from holdfast.task.data.state import known_head
from holdfast.task.data.wire import CloseInput, EntriesPage
from holdfast.task.people import approvals
from holdfast.task.refusals import abandoned
from holdfast.values.base import Json
from holdfast.values.checks.ids import app_of, check_by
from holdfast.values.steps import Task, TaskStep
from holdfast.values.text.redact import redact
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
        raise CommandRefusedError(f"Task {task_id!r} obeys commands: abandon it without force.")
    handle = reader.client.get_workflow_handle(task_id, run_id=found.run_id)
    with server_errors():
        if is_open:
            await handle.terminate(reason=why)
        # One that was closing may have a record, and that stays.
        if await reader.records.read(task_id) is not None:
            raise TaskClosedError(f"Task {task_id!r} is closed: it can be read, not changed.")
        history = await handle.fetch_history()
    async with _replayed(reader, history) as (replayed, cut):
        await _store(reader, found, replayed, why, by, cut)
    return Receipt(id=unique_id(), verb="abandon", status="applied")


@dataclass(frozen=True)
class Replayed:
    """What a task knew when a worker process last had it.

    Attributes:
        task: The task.
        entries: Its ledger, oldest first; where something is missing, a last entry says why.
        opens: The steps in progress.
        upcoming: These, then the queued ones.
        approvals: What waits for a person, also in child tasks.
        until: When that was, seconds since the epoch.
        asker: Who created it; empty for unknown.
    """

    task: Task
    entries: list[Entry]
    opens: tuple[OpenState, ...]
    upcoming: list[TaskStep]
    approvals: list[Approval]
    until: float
    asker: str = ""


async def replayed(reader: Reader, task_id: str) -> Replayed:
    """Read a task that cannot answer, as no worker process is up or workflow code fails in it.

    Raises:
        QueryFailedError: Its history cannot be replayed.
    """
    found = await reader.describe(task_id)
    handle = reader.client.get_workflow_handle(task_id, run_id=found.run_id)
    with server_errors():
        history = await handle.fetch_history()
    async with _replayed(reader, history) as (task, cut):
        ledger = task.core.ledger
        entries = [
            *await read_archived(reader.archive, ledger.log.segment, legible=True),
            *ledger.log.entries,
        ]
        if why := cut or await why_stuck(reader.client, found):
            text = f"What has happened since is not known: {why}"
            entries.append(
                Entry(event=EventRecord(kind="failed", at=round(time.time(), 3), text=text))
            )
        ended = (e for e in reversed(history.events) if e.event_type == _TASK_DONE)
        return Replayed(
            ledger.task(),
            entries,
            ledger.s.opens,
            list(ledger.queue.upcoming()),
            list(approvals.asked_everywhere(ledger)),
            next((e.event_time.ToMicroseconds() / 1e6 for e in ended), 0.0),
            ledger.given.head.asker,
        )


_TASK_DONE = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED


async def _store(  # noqa: PLR0917  one caller
    reader: Reader, found: WorkflowExecution, task: AgentTask, why: str, by: str, cut: str
) -> None:
    """Record the end in a replayed ledger, and write the record."""
    ledger, now = task.core.ledger, round(time.time(), 3)
    leave_calls(ledger, task.core.running, at=now)
    body: dict[str, Json] = {"status": "abandoned", "forced": True}
    if cut:  # steps that the history has are not in the ledger
        body["shortened"] = cut
        why = f"{why}. The record is shortened: its history cannot be replayed to its end: {cut}"
    ledger.note("closed", now=now, by=by, text=why, body=body)
    given = CloseInput(
        status="abandoned", at=ledger.s.transcript, failure=abandoned(why), ledger=ledger.log.chain
    )
    page = EntriesPage(
        segment=ledger.log.segment, opens=tuple(each.chained() for each in ledger.s.opens)
    )
    head = known_head(ledger.head, ledger.s.described)
    task_now = ledger.task().model_copy(update={"unsettled": ledger.money.unsettled})
    record = await record_of(reader.archive, given, head, task_now, page, list(ledger.log.entries))
    record = record.model_copy(update={"app": app_of(found.task_queue)})
    await write_record(reader.archive, found.id, record)


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
        return cast("WorkflowInstance", _Keeps(super().create_instance(det), self._left))


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


@asynccontextmanager
async def _replayed(
    reader: Reader, history: WorkflowHistory
) -> AsyncGenerator[tuple[AgentTask, str]]:
    """Replay a history as far as it goes; give the task, and why it goes no further.

    Raises:
        QueryFailedError: Not even its begin can be replayed.
    """
    left = list[Callable[[], object]]()
    found: list[AgentTask] = []
    replayer = Replayer(
        workflows=[AgentTask],
        data_converter=telling(reader.client.data_converter),
        workflow_runner=_Runner(left),
        interceptors=[_Finds(found)],
        build_id=BUILD_ID,
    )
    # A replay passes over workflow tasks that have failed.
    result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    failed = result.replay_failure
    if not found:
        raise QueryFailedError(
            f"The history of task {history.workflow_id!r} cannot be replayed by this code:"
            f" {failed or 'it never began'}.",
            remedy="Do the same with the code that it ran with.",
        )
    try:
        yield found[0], redact(f"{failed}") if failed else ""
    finally:
        for evict in left:
            evict()
