"""What the server alone knows of a task: why it has ended without a record, or what blocks it."""

from __future__ import annotations

from temporalio.api.common.v1 import WorkflowExecution as Run
from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1 import Failure
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
)
from temporalio.exceptions import ApplicationError, FailureError, TimeoutType
from temporalio.exceptions import TimeoutError as ActivityTimeout

from holdfast.engine.search_attributes import AGENT_TASK, HF_STATUS, SPLIT
from holdfast.errors import EngineError
from holdfast.reading.server_errors import server_errors
from holdfast.task.data.children import ENDED
from holdfast.values.text.logs import log
from holdfast.values.text.redact import redact
from holdfast.values.text.shown import time_shown


def has_begun(found: WorkflowExecution) -> bool:
    """Whether a closed run has ever been a task: one with an input that cannot be read has not.

    No one can query such a run: a worker process that replays it fails as the run did.
    """
    is_failed = found.status is WorkflowExecutionStatus.FAILED
    is_task = found.workflow_type == AGENT_TASK
    return not (is_task and is_failed) or found.typed_search_attributes.get(HF_STATUS) is not None


async def why_ended(client: Client, found: WorkflowExecution) -> str:
    """Return what the server says on why a closed run ended; empty for an answer.

    It is also empty when the server does not say it now, or has deleted the run's history.
    """
    handle = client.get_workflow_handle(found.id, run_id=found.run_id)
    try:
        with server_errors():
            await handle.result(follow_runs=False)
    except EngineError as error:
        log.warning("Why run %r of %r has ended cannot be read: %s", found.run_id, found.id, error)
    except WorkflowFailureError as error:
        return said_by(error.cause)
    return ""


WORKER_LOST = "worker lost"

LOOKED_AT = 30
"""Newest events among which the failure of a workflow task is: it is the last but for requests."""

PASSING_ATTEMPTS = 4
"""Attempts by which a workflow task that came in two parts has come whole."""


async def why_blocked(client: Client, found: WorkflowExecutionDescription) -> str:
    """Say what an open task waits for that has failed and is tried again, each in a line.

    Args:
        client: Temporal client; it is asked once more if the workflow task fails.
        found: What the server says of the task.

    Raises:
        ConnectError: The server could not be reached.
    """
    if stuck := await why_stuck(client, found):
        return stuck
    lines: list[str] = []
    for each in activities_of(found):
        if each.HasField("last_failure"):
            name, why = each.activity_type.name, await cause_of(client, each.last_failure)
            due = each.next_attempt_schedule_time.seconds
            when = f" begins at {time_shown(due)}" if due else " is under way"
            lines.append(f"Attempt {each.attempt} of activity {name!r}{when}. {why}")
    return "\n".join(lines)


async def why_stuck(client: Client, found: WorkflowExecutionDescription) -> str:
    """Say why workflow code fails in an open task, and since when; nothing if it does not.

    Args:
        client: As for `why_blocked`.
        found: As there.

    Raises:
        ConnectError: As there.
    """
    attempt = found.raw_description.pending_workflow_task.attempt
    if attempt <= 1:
        return ""
    asked = GetWorkflowExecutionHistoryReverseRequest(
        namespace=client.namespace,
        execution=Run(workflow_id=found.id, run_id=found.run_id),
        maximum_page_size=LOOKED_AT,
    )
    with server_errors():
        page = await client.workflow_service.get_workflow_execution_history_reverse(asked)
    since, causes = 0, list[str]()
    for event in page.history.events:
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            break
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
            since = event.event_time.seconds
            causes.append(
                await cause_of(client, event.workflow_task_failed_event_attributes.failure)
            )
    # The server records the first failure, and later ones when there are new events alone.
    lasting = [each for each in causes if SPLIT not in each]
    if not causes or (not lasting and attempt < PASSING_ATTEMPTS):
        return ""
    why = lasting[0] if lasting else "the log of the worker says why"
    return f"Workflow code fails, attempt {attempt}, since {time_shown(since)}: {why}"


def activities_of(found: WorkflowExecutionDescription) -> list[PendingActivityInfo]:
    """List the pending activities of a task, but for watches, whose attempts fail as a rule."""
    every = found.raw_description.pending_activities
    return [each for each in every if each.activity_type.name != ENDED]


async def cause_of(client: Client, failure: Failure) -> str:
    """Name a failure by its innermost cause, decoded, without secrets."""
    try:
        cause: BaseException = await client.data_converter.decode_failure(failure)
    except Exception as error:  # noqa: BLE001  of a codec; shown
        return f"why cannot be read here: {said_by(error)}"
    while cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, ActivityTimeout):
        return WORKER_LOST if cause.type is TimeoutType.HEARTBEAT else "it took too long"
    return said_by(cause)


def said_by(cause: BaseException | None) -> str:
    """Return the type of a failure and what it says."""
    kind = (cause.type if isinstance(cause, ApplicationError) else "") or type(cause).__name__
    said = cause.message if isinstance(cause, FailureError) else str(cause)
    return redact(f"{kind}: {said}")
