"""`wait_for_event`: a call that waits for an event, in the mailbox of the event's name."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import timedelta

from temporalio import activity
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import TemporalError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.agents.tools.context import Effect, ToolContext
from holdfast.agents.tools.tool import Tool
from holdfast.agents.tools.waiting import AwaitingTool, WaitingError, made_as, time_of
from holdfast.errors import UserError
from holdfast.task.data.calls import Wait
from holdfast.task.mailbox import (
    DAY,
    MAILBOX,
    WAITS,
    Event,
    Heard,
    Mailbox,
    Waiter,
    check_match,
    mailbox_id,
)
from holdfast.values.base import Json
from holdfast.values.checks.ids import DEFAULT_APP, is_of_agent, queue_of
from holdfast.values.text.shown import time_shown

ANSWER_SECONDS = timedelta(seconds=10)
LONGEST_WAIT = 400 * DAY


async def tell_mailbox(
    client: Client, queue: str, name: str, signal: str, sent: Event | Waiter
) -> None:
    """Send a mailbox an event, or a call that waits; the first one begins it.

    Once this returns it is recorded, also when no worker process is up.

    Raises:
        InvalidArgumentError: No event can have the name.
        RPCError: The server did not take it.
    """
    await client.start_workflow(
        MAILBOX,
        Mailbox(),
        id=mailbox_id(queue, name),
        task_queue=queue,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        start_signal=signal,
        start_signal_args=[sent],
        rpc_timeout=ANSWER_SECONDS,
    )


async def heard(client: Client, queue: str, name: str, key: str) -> Heard | None:
    """Ask a mailbox how it has taken an event, or a call; None without an answer."""
    mailbox = client.get_workflow_handle(mailbox_id(queue, name))
    with suppress(RPCError, TemporalError, TimeoutError):
        said: Heard = await mailbox.query(
            "heard", key, result_type=Heard, rpc_timeout=ANSWER_SECONDS
        )
        return said
    return None


def _queue() -> str:
    """Return the queue of the mailboxes of the present activity's app."""
    queue = activity.info().task_queue
    return queue_of(DEFAULT_APP) if is_of_agent(queue) else queue


async def _wait_for_event(
    ctx: ToolContext,
    name: str,
    match: dict[str, Json] | None = None,
    timeout: str = "7 d",  # noqa: ASYNC109  what the model says; no code of ours waits so long
) -> str:
    """Wait until something happens elsewhere; its data are the result. Nothing runs meanwhile.

    Args:
        name: Name of the event, as "order.paid".
        match: Which one: names of fields of its data to what they must be, as {"order.id": 7}.
            All events of the name fit by default.
        timeout: How long to wait, as "30 min" or "2 d"; or until when, as "2027-01-31T14:00:00Z".
    """
    until = time_of(timeout)
    if until > time.time() + LONGEST_WAIT:
        msg = f"{timeout!r} is more than {LONGEST_WAIT / DAY:g} days away. Name an earlier time."
        raise ValueError(msg)
    # The model cannot choose it: the events of other tenants are not this task's.
    own: dict[str, Json] = {"tenant": ctx.tenant} if ctx.tenant else {}
    waiter = Waiter(
        key=ctx.idempotency_key,
        token=ctx.completion_token,
        match=check_match((match or {}) | own),
        until=until,
    )
    client, queue = activity.client(), _queue()
    await tell_mailbox(client, queue, name, "wait", waiter)
    found = await heard(client, queue, name, waiter.key)
    if found is not None and found.refused:
        raise UserError(found.refused)
    over = f"No event {name!r} that fits has come until {time_shown(until)}."
    raise WaitingError(Wait(waits="event", until=until, note=name, since=time.time()), over)


async def _leave(effect: Effect) -> None:
    """Let a mailbox forget a call that is undone."""
    id = mailbox_id(_queue(), str(effect.arguments.get("name")))
    try:
        await (
            activity.client()
            .get_workflow_handle(id)
            .signal("leave", Waiter(key=effect.key, token=""), rpc_timeout=ANSWER_SECONDS)
        )
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:  # it has ended: it knows nothing any more
            raise


wait_for_event = made_as(
    AwaitingTool,
    Tool.from_function(
        _wait_for_event,
        name=WAITS,
        idempotent=True,
        retry_on=(RPCError,),
        max_attempts=8,
        undo=_leave,
        undo_idempotent=True,
    ),
)
"""Lets an agent wait for an event, which `AgentRunner.send_event` sends, or a signed webhook."""
