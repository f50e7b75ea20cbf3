"""How a turn gets into a session, from a program that appends and from a task that closes.

A session that is unused for long rests: its memory is in a record of the archive, and its workflow
has ended. The next turn begins another run, with that memory.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

from pydantic import ValidationError
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.archive.archive import Archive
from holdfast.archive.bytestore import record_name
from holdfast.archive.holds import mark_name
from holdfast.archive.segments import check_erased
from holdfast.errors import ArchiveError, InvalidArgumentError, SessionClosedError
from holdfast.task.data.calls import StandingRule
from holdfast.task.data.records import record_digest, signed
from holdfast.task.data.state import CLAIM, COMMIT, REVOKE, RULE, Claim, CommitRef, SessionState

RPC_TIMEOUT = timedelta(seconds=30)
DAYS = "HOLDFAST_SESSION_DAYS"
MOST_DAYS = 36_500


async def write_resting(archive: Archive, session_id: str, state: SessionState) -> str:
    """Store the memory of a session that rests; return the digest of its record."""
    data = state.wire()
    await archive.aput_record(record_name("sessions", session_id), signed(data, session_id))
    return record_digest(data)


async def read_resting(
    archive: Archive, session_id: str, *, rests: bool = False
) -> SessionState | None:
    """Return the memory with which a session rested last; None if it never did.

    Args:
        archive: The archive.
        session_id: Workflow id of the session.
        rests: Whether it rests for sure; Temporal may have forgotten that.

    Raises:
        ArchiveError: It is damaged, or missing though the session rests.
        ErasedError: The session was erased.
    """
    name = record_name("sessions", session_id)
    data = await archive.afind_record(name)
    if data is None and archive.encrypted is not None:
        check_erased(await archive.afind_record(await mark_name(archive, session_id)))
    check_erased(data)
    try:
        if data is not None:
            kept, now = SessionState.model_validate(data), time.time()
            # With a rule that stands it would not rest: who can write here decides nothing.
            ended = tuple(each for each in kept.rules if not each.stands(now))
            return kept.model_copy(update={"rules": ended})
        if not rests:
            return None
        why = f"rests, and the archive {archive.url!r} has no {name!r}."
    except ValidationError as error:
        why = f"rests in a damaged record: {error}."
    remedy = f"Use the archive that it was stored in, or restore {name!r} from a backup."
    raise ArchiveError(f"Session {session_id!r} {why}", remedy=remedy)


def _seconds_unused() -> float:
    """Return after how long a session rests, as the environment says.

    Raises:
        InvalidArgumentError: The environment names another thing than days.
    """
    said = os.environ.get(DAYS) or "1"
    try:
        days = float(said)
    except ValueError:
        days = math.nan
    if not 0 <= days <= MOST_DAYS:
        raise InvalidArgumentError(
            f"{DAYS} is {said!r}. Set a number of days up to {MOST_DAYS}, such as 1 or 0.5; 0 keeps"
            " sessions open."
        )
    return days * 86_400


async def commit_turn(
    client: Client, archive: Archive, session_id: str, queue: str, turn: CommitRef
) -> None:
    """Append a turn to a session; the first one begins it.

    A session that was ended from outside is not begun again: its memory would be gone unnoticed.

    Raises:
        SessionClosedError: The session was ended with Temporal's own tools.
        InvalidArgumentError: A workflow of another kind has the session's id.
        ArchiveError: The memory of a session that rests cannot be read.
    """
    await _send(client, archive, session_id, queue, turn)


async def send_rule(
    client: Client, archive: Archive, session_id: str, queue: str, rule: StandingRule
) -> None:
    """Give a session a decision for later calls, or end one; the first one begins the session.

    A session remembers a revoked decision, so that it does not hold if it arrives later.

    Raises:
        SessionClosedError: As for `commit_turn`.
        InvalidArgumentError: As for `commit_turn`.
        ArchiveError: As for `commit_turn`.
    """
    signal = REVOKE if rule.revoked else RULE
    await _send(client, archive, session_id, queue, rule, signal=signal)


async def send_claim(
    client: Client, archive: Archive, session_id: str, queue: str, claim: Claim
) -> None:
    """Change the line of a session's tasks; the first one in line begins the session.

    Raises:
        SessionClosedError: As for `commit_turn`.
        InvalidArgumentError: As for `commit_turn`.
        ArchiveError: As for `commit_turn`.
    """
    await _send(client, archive, session_id, queue, claim, signal=CLAIM)


GOES_ON = (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW)


async def find_run(
    client: Client, workflow_id: str, run: str | None = None
) -> WorkflowExecutionDescription | None:
    """Describe a run of a workflow, the newest by default; None if Temporal does not know it.

    Raises:
        RPCError: The server did not do as asked.
    """
    try:
        handle = client.get_workflow_handle(workflow_id, run_id=run)
        return await handle.describe(rpc_timeout=RPC_TIMEOUT)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return None


async def end_of(client: Client, task: str) -> str:
    """Return how a task has ended, in a word or two; empty while it has not."""
    if (found := await find_run(client, task)) is None:
        return "deleted"
    status = found.status
    return "" if status is None or status in GOES_ON else status.name.lower().replace("_", " ")


SILENT_SECONDS = 15
"""A client that has got in line says so again sooner than that until it has created its task."""


async def is_gone(
    client: Client, task: str, state: SessionState, read: Callable[[], Awaitable[SessionState]]
) -> bool:
    """Whether a task of a line has ended; or is not there, and its client does not create it.

    Args:
        client: Temporal client.
        task: The task.
        state: The session as it was when the task was seen in its line.
        read: Reads the session.
    """
    for _ in range(SILENT_SECONDS):
        how = await end_of(client, task)
        if how != "deleted":
            return bool(how)
        await asyncio.sleep(1)
    return (await read()).claims.get(task) == state.claims.get(task)


async def ensure_session(client: Client, archive: Archive, session_id: str, queue: str) -> None:
    """Return when there is a session that a turn can be sent to; a new one has no turns.

    Raises:
        SessionClosedError: As for `commit_turn`.
        InvalidArgumentError: As for `commit_turn`.
        ArchiveError: As for `commit_turn`.
    """
    await _send(client, archive, session_id, queue)


async def _send(
    client: Client,
    archive: Archive,
    session_id: str,
    queue: str,
    *sent: CommitRef | StandingRule | Claim,
    signal: str = COMMIT,
) -> None:
    """Begin a session unless it is open, with the memory that it has, and send it a turn or a rule.

    Raises:
        SessionClosedError: It was ended from outside.
    """
    while True:
        found = await _find(client, session_id)
        is_open = found is not None and found.close_time is None
        if is_open and not sent:
            return
        rests = found is not None and found.status is WorkflowExecutionStatus.COMPLETED
        if found is not None and not is_open and not rests:
            raise SessionClosedError(session_id)
        kept = None if is_open else await read_resting(archive, session_id, rests=rests)
        again = WorkflowIDReusePolicy
        try:
            await client.start_workflow(
                "Session",
                (kept or SessionState()).model_copy(update={"unused": _seconds_unused()}),
                id=session_id,
                task_queue=queue,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                id_reuse_policy=again.ALLOW_DUPLICATE if rests else again.REJECT_DUPLICATE,
                start_signal=signal if sent else None,
                start_signal_args=sent,
                rpc_timeout=RPC_TIMEOUT,
            )
        except WorkflowAlreadyStartedError:  # it has ended since
            continue
        return


async def _find(client: Client, session_id: str) -> WorkflowExecutionDescription | None:
    """Describe a session; None without one.

    A workflow of another type is refused: it would drop the turn silently.

    Raises:
        InvalidArgumentError: It is not a session.
    """
    found = await find_run(client, session_id)
    if found is not None and found.workflow_type != "Session":
        raise InvalidArgumentError(
            f"The id {session_id!r} of the session is that of a workflow {found.workflow_type!r},"
            " which was started by other means. Nothing was committed. Delete that workflow, or"
            " use another session."
        )
    return found
