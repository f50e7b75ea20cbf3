"""How a turn gets into a session: the same for tasks that close and for programs that append."""

from __future__ import annotations

from datetime import timedelta

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.errors import InvalidArgumentError, SessionClosedError
from holdfast.task.data.state import CommitRef, SessionState

RPC_TIMEOUT = timedelta(seconds=30)


async def commit_turn(client: Client, session_id: str, queue: str, turn: CommitRef) -> None:
    """Append a turn to a session; the first one begins it.

    A session that was ended from outside is not begun anew: its memory would be gone unnoticed.

    Raises:
        SessionClosedError: Somebody ended the session with Temporal's own tools.
        InvalidArgumentError: A workflow of another kind has the session's id.
    """
    await _check_kind(client, session_id)
    try:
        await client.start_workflow(
            "Session",
            SessionState(),
            id=session_id,
            task_queue=queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            start_signal="commit",
            start_signal_args=[turn],
            rpc_timeout=RPC_TIMEOUT,
        )
    except WorkflowAlreadyStartedError as error:
        raise SessionClosedError(session_id) from error


async def _check_kind(client: Client, session_id: str) -> None:
    """Refuse to commit to what is no session: it would drop the turn without a word.

    Raises:
        InvalidArgumentError: It is not.
    """
    try:
        found = await client.get_workflow_handle(session_id).describe(rpc_timeout=RPC_TIMEOUT)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return  # it begins with this turn
    if found.workflow_type != "Session":
        msg = (
            f"The id {session_id!r} of the session is that of a workflow {found.workflow_type!r},"
            " which was started by other means. Nothing was committed. Delete that workflow, or"
            " use another session."
        )
        raise InvalidArgumentError(msg)
