"""How a turn gets into a session, from a program that appends and from a task that closes."""

from __future__ import annotations

from datetime import timedelta

from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.errors import InvalidArgumentError, SessionClosedError
from holdfast.task.data.calls import StandingRule
from holdfast.task.data.state import COMMIT, REVOKE, RULE, CommitRef, SessionState

RPC_TIMEOUT = timedelta(seconds=30)


async def commit_turn(client: Client, session_id: str, queue: str, turn: CommitRef) -> None:
    """Append a turn to a session; the first one begins it.

    A session that was ended from outside is not begun again: its memory would be gone unnoticed.

    Raises:
        SessionClosedError: The session was ended with Temporal's own tools.
        InvalidArgumentError: A workflow of another kind has the session's id.
    """
    await _find(client, session_id)
    await _begin(client, session_id, queue, turn)


async def send_rule(client: Client, session_id: str, queue: str, rule: StandingRule) -> None:
    """Give a session a decision for later calls, or end one; the first one begins the session.

    A session remembers a revoked decision, so that it does not hold if it arrives later.

    Raises:
        SessionClosedError: As for `commit_turn`.
        InvalidArgumentError: As for `commit_turn`.
    """
    await _find(client, session_id)
    await _begin(client, session_id, queue, rule, signal=REVOKE if rule.revoked else RULE)


async def ensure_session(client: Client, session_id: str, queue: str) -> None:
    """Return when there is a session that a turn can be sent to; a new one has no turns.

    Raises:
        SessionClosedError: As for `commit_turn`.
        InvalidArgumentError: As for `commit_turn`.
    """
    found = await _find(client, session_id)
    if found is not None and found.close_time is None:
        return
    await _begin(client, session_id, queue)


async def _begin(
    client: Client,
    session_id: str,
    queue: str,
    *sent: CommitRef | StandingRule,
    signal: str = COMMIT,
) -> None:
    """Begin a session unless there is one, and send it a turn or a rule.

    Raises:
        SessionClosedError: There was one.
    """
    try:
        await client.start_workflow(
            "Session",
            SessionState(),
            id=session_id,
            task_queue=queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            start_signal=signal if sent else None,
            start_signal_args=sent,
            rpc_timeout=RPC_TIMEOUT,
        )
    except WorkflowAlreadyStartedError as error:
        raise SessionClosedError(session_id) from error


async def _find(client: Client, session_id: str) -> WorkflowExecutionDescription | None:
    """Describe a session; None without one.

    A workflow of another type is refused: it would drop the turn silently.

    Raises:
        InvalidArgumentError: It is not a session.
    """
    try:
        found = await client.get_workflow_handle(session_id).describe(rpc_timeout=RPC_TIMEOUT)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return None
    if found.workflow_type != "Session":
        msg = (
            f"The id {session_id!r} of the session is that of a workflow {found.workflow_type!r},"
            " which was started by other means. Nothing was committed. Delete that workflow, or"
            " use another session."
        )
        raise InvalidArgumentError(msg)
    return found
