"""Attempts of tool calls: those in an activity of their own, and those in that of their step."""

from __future__ import annotations

from contextvars import ContextVar
from typing import NamedTuple

from temporalio import activity


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
