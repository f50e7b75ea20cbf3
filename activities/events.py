"""The activity `deliver`: it gives a call that waits its event, and finds out whether it has it."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import timedelta
from functools import partial

from temporalio import activity
from temporalio.exceptions import TemporalError
from temporalio.service import RPCError

from holdfast.activities.failures import typed_failures
from holdfast.activities.long_calls import is_not_found
from holdfast.reading.queries import while_busy
from holdfast.task.data.commands import Receipt
from holdfast.task.mailbox import Delivery
from holdfast.values.base import Json, digest
from holdfast.values.text.shown import time_shown

ANSWER_SECONDS = timedelta(seconds=5)


@activity.defn(name="deliver")
async def deliver(sent: Delivery) -> bool:
    """Give a call its event; sent again, it changes nothing.

    Returns:
        Whether the call has it, or will have it once its task is served; not when it waits no
        longer.
    """
    event, waiter = sent.event, sent.waiter
    found: dict[str, Json] = {"event": sent.name, "id": event.id, "at": time_shown(event.at)}
    found["data"] = event.data
    command = digest(f"{event.id} {waiter.key}".encode())
    body = {
        "id": command,
        "by": f"event {sent.name}",
        "token": waiter.token,
        "result": json.dumps(found, ensure_ascii=False),
    }
    handle = activity.client().get_workflow_handle(waiter.task)
    with typed_failures():
        try:
            await handle.signal("complete", body, rpc_timeout=ANSWER_SECONDS)
        except RPCError as error:
            if is_not_found(error):
                return False
            raise
        # It is recorded. A task without a worker process takes it before its clock goes on.
        with suppress(RPCError, TemporalError, TimeoutError, ValueError):
            ask = partial(handle.query, "receipt", command, rpc_timeout=ANSWER_SECONDS)
            said = await while_busy(partial(ask, result_type=dict[str, Json]))
            return not said or Receipt.model_validate(said).status != "refused"
    return True
