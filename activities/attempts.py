"""Attempts of tool calls: those in an activity of their own, and those in that of their step."""

from __future__ import annotations

from contextvars import ContextVar
from typing import NamedTuple

from temporalio import activity
from temporalio.api.failure.v1 import Failure
from temporalio.service import RPCError

from holdfast.activities.heartbeat import FailedCalls
from holdfast.task.data.failures import Losses, losses_in


class InlineCall(NamedTuple):
    """A call that runs in the activity of its step.

    Attributes:
        i: Its position among the calls of the step.
        began: When it was begun, seconds since the epoch.
    """

    i: int
    began: float


inline_call: ContextVar[InlineCall | None] = ContextVar("holdfast_inline_call", default=None)
"""The call that runs here in the activity of its step; None in an activity of its own."""


def attempt_of(tried: int) -> int:
    """Number the attempt of what runs here, from 1.

    Args:
        tried: Attempts before this activity was scheduled.
    """
    return tried + (1 if inline_call.get() is not None else activity.info().attempt)


def begun_at() -> float:
    """Return when the current call was begun, seconds since the epoch."""
    call = inline_call.get()
    return activity.info().started_time.timestamp() if call is None else call.began


def place_here() -> str:
    """Name the place of what runs here among all activities of the task's run."""
    call, id = inline_call.get(), activity.info().activity_id
    return id if call is None else f"{id}.{call.i}"


async def losses() -> Losses:
    """Return which attempts before this one count as lost.

    The server keeps why the last attempt ended, and of earlier ones only their number. A failed
    attempt says what it knew (`LOST`). When the last one was lost, or the server cannot be asked,
    all of them count as lost but for those that a rate limit ended.
    """
    info = activity.info()
    if info.attempt == 1 or info.workflow_id is None:
        return Losses()
    handle = activity.client().get_workflow_handle(info.workflow_id, run_id=info.workflow_run_id)
    try:
        described = await handle.describe()
    except RPCError:
        return Losses(FailedCalls.known().attempt - 1)
    pending = described.raw_description.pending_activities
    mine = [each.last_failure for each in pending if each.activity_id == info.activity_id]
    if any(each.HasField("timeout_failure_info") for each in mine):
        return Losses(FailedCalls.known().attempt - 1)
    return await _said_in(mine[0]) if mine else Losses()


async def _said_in(failure: Failure) -> Losses:
    """Return what a failed attempt has said of those before it."""
    payloads = list(failure.application_failure_info.details.payloads)
    details = await activity.client().data_converter.decode(payloads) if payloads else []
    return losses_in(details) or Losses()
