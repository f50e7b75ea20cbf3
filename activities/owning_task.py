"""The task that a long call belongs to, as the process that runs the call sees it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle
from temporalio.exceptions import ApplicationError, TemporalError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.heartbeat import current
from holdfast.engine.search_attributes import HF_STATUS
from holdfast.task.data.calls import AWAITED, LONG_CALL, SECRET, LongCall
from holdfast.values.runs.status import CLOSED
from holdfast.values.text.logs import log

ASKING = timedelta(seconds=10)
"""How long one request to the server may take, and the pause before it is made again."""


class OwningTask:
    """Asks the task of the current activity about a long call, and announces the call to it.

    The call was scheduled by one run of the task. It is announced to that run, which alone knows
    the activity; whether it is still awaited is asked of the newest run, because the task may have
    continued as new.

    Attributes:
        id: The task's id.
    """

    def __init__(self) -> None:
        """Use the task that scheduled the current activity."""
        info, client = activity.info(), activity.client()
        self.id = info.workflow_id or ""
        self._newest: WorkflowHandle[Any, Any] = client.get_workflow_handle(self.id)
        self._scheduling: WorkflowHandle[Any, Any] = client.get_workflow_handle(
            self.id, run_id=info.workflow_run_id
        )

    async def secret(self) -> str | None:
        """Return what proves to the task that a signal comes from one of its activities.

        Returns:
            None when the server knows the run no more: the attempt is over.
        """
        while True:
            try:
                secret: str = await self._scheduling.query(
                    SECRET, result_type=str, rpc_timeout=ASKING
                )
            except (RPCError, TemporalError) as error:
                if is_not_found(error):
                    return None
                log.info("Task %r does not answer: %s", self.id, error)
            except Exception:  # as of a data converter
                log.exception("Task %r cannot be asked what its signals carry", self.id)
            else:
                return secret
            await asyncio.sleep(ASKING.total_seconds())

    async def announce(self, call: LongCall) -> bool:
        """Signal that a call runs for long.

        Returns:
            Whether the signal is recorded, or the run is over and can record nothing more.
        """
        try:
            await self._scheduling.signal(LONG_CALL, call, rpc_timeout=ASKING)
        except RPCError as error:
            return is_not_found(error)
        except Exception:  # as of a data converter
            log.exception("Task %r cannot be told of a call that runs for long", self.id)
            return False
        return True

    async def awaits(self, call_id: str) -> bool:
        """Whether the task awaits a long call; while the task cannot be asked, it does."""
        try:
            found = await self._newest.describe(rpc_timeout=ASKING)
            if found.status is not WorkflowExecutionStatus.RUNNING:
                return False
            awaited = await self._newest.query(AWAITED, result_type=list[str], rpc_timeout=ASKING)
        except (RPCError, TemporalError) as error:
            return not is_not_found(error)
        except Exception:  # as of a data converter
            log.exception("Task %r cannot be asked about a call that runs for long", self.id)
            return True
        return call_id in awaited


async def ensure_wanted(root: str) -> None:
    """Return unless the task has ended that a nested one works for, before it asks a model.

    The request to end comes down from one nested task to the next, which takes its time.

    Raises:
        ApplicationError: It has, and no such request has come since.
    """
    try:
        found = await activity.client().get_workflow_handle(root).describe(rpc_timeout=ASKING)
    except RPCError as error:
        if not is_not_found(error):
            return  # what cannot be asked now is no reason to stop
    else:
        known = found.typed_search_attributes.get(HF_STATUS)
        if found.status is WorkflowExecutionStatus.RUNNING and known not in CLOSED:
            return
    current.get().hasten()
    await asyncio.sleep(ASKING.total_seconds())
    msg = f"No model is asked: task {root!r}, which this one works for, has ended."
    raise ApplicationError(msg, type="TaskClosedError", non_retryable=True)


def is_not_found(error: BaseException) -> bool:
    """Whether the server says that it does not know what was asked for."""
    return isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND
