"""Tasks that Temporal has closed and that left no record of their own."""

from __future__ import annotations

from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionStatus,
    WorkflowFailureError,
)
from temporalio.exceptions import ApplicationError, FailureError

from holdfast.engine.search_attributes import AGENT_TASK, HF_STATUS
from holdfast.errors import EngineError
from holdfast.reading.server_errors import server_errors
from holdfast.values.text.logs import log
from holdfast.values.text.redact import redact


def has_begun(found: WorkflowExecution) -> bool:
    """Whether a closed run has ever been a task: one with an input that cannot be read has not.

    Nobody can query such a run: a worker process that replays it fails as the run did.
    """
    is_failed = found.status is WorkflowExecutionStatus.FAILED
    is_task = found.workflow_type == AGENT_TASK
    return not (is_task and is_failed) or found.typed_search_attributes.get(HF_STATUS) is not None


async def why_ended(client: Client, found: WorkflowExecution) -> str:
    """Return what the server says on why a closed run ended; empty for an answer.

    It is empty, too, when the server does not say it now, or has deleted the run's history.
    """
    handle = client.get_workflow_handle(found.id, run_id=found.run_id)
    try:
        with server_errors():
            await handle.result(follow_runs=False)
    except EngineError as error:
        log.warning("Why run %r of %r has ended cannot be read: %s", found.run_id, found.id, error)
    except WorkflowFailureError as error:
        cause = error.cause
        kind = (cause.type if isinstance(cause, ApplicationError) else "") or type(cause).__name__
        said = cause.message if isinstance(cause, FailureError) else str(cause)
        return redact(f"{kind}: {said}")
    return ""
