"""How a turn gets into a session: the same for tasks that close and for programs that append."""

from __future__ import annotations

from datetime import timedelta

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from holdfast.errors import SessionClosedError
from holdfast.state import CommitRef, SessionState

RPC_TIMEOUT = timedelta(seconds=30)


async def commit_turn(client: Client, session_id: str, queue: str, turn: CommitRef) -> None:
    """Append a turn to a session; the first one begins it.

    A session that was ended from outside is not begun anew: its memory would be gone unnoticed.

    Raises:
        SessionClosedError: Somebody ended the session with Temporal's own tools.
    """
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
