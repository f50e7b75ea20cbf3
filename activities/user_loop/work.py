"""The work of activities on a user loop, and how it fails there."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from holdfast.activities.failures import LoggedError
from holdfast.errors import with_remedy
from holdfast.task.data.failures import INTERRUPTED, NOT_STARTED, facts
from holdfast.values.code import user_calls
from holdfast.values.text.logs import log

MOST_HANGS = 3
"""Attempts of users' code that does not return, before the task waits for a person."""

HANGS = "CodeHangsError"
"""Type of the failure of an activity whose users' code did not return in time."""

BLOCKED = "Blocked"
"""Type of the failure of a tool call that blocks its event loop."""

NOT_OURS = "code that no task of Holdfast began"
"""Names what blocks a loop when no activity does, such as a callback that was posted to it."""

INLINE = "step with tools"
"""Kind of the work of a step that runs tools: its next attempt leaves them to their activities."""


class Work:
    """One activity's work on a user loop.

    Attributes:
        kind: Type of the activity.
        task_id: The task that it works for.
        calls: The users' code that it is calling.
        done: How it ended, or that it was given up.
    """

    def __init__(self, kind: str, task_id: str) -> None:
        """Describe work that has not begun."""
        self.kind = kind
        self.task_id = task_id
        self.calls = user_calls.Calls()
        self.done: Future[Any] = Future()
        self.task: asyncio.Task[Any] | None = None

    def __str__(self) -> str:
        """Name the code that is running, for logs and errors."""
        called = str(self.calls) or f"activity {self.kind!r}"
        return f"{called} of task {self.task_id!r}"


working: ContextVar[Work | None] = ContextVar("holdfast_work", default=None)
"""The activity's work in whose context a task is made."""


@contextmanager
def inline_calls() -> Generator[None]:
    """Mark the work of the current activity as one that runs tools which have activities, too."""
    work = working.get()
    if work is None:
        yield
        return
    kind, work.kind = work.kind, INLINE
    try:
        yield
    finally:
        work.kind = kind


def hangs(work: Work, seconds: float) -> LoggedError:
    """Return the failure of users' code that did not return in time; the last parks the task."""
    attempt = activity.info().attempt
    text = (
        f"{work.calls} did not come back within {seconds:g} seconds, in attempt {attempt} of"
        f" {MOST_HANGS}."
    )
    remedy = "Find out what it waits for, restart the worker process and ask again."
    log.warning("%s", with_remedy(text, remedy))
    known, last = facts(remedy=remedy, parks=True), attempt >= MOST_HANGS
    return LoggedError(text, *known, type=HANGS, non_retryable=last)


def given_up(work: Work, seconds: float) -> LoggedError:
    """Return the failure of users' code that blocks its loop; it would block the next one, too."""
    text = (
        f"{str(work.calls) or work.kind} blocked the event loop of its worker process for"
        f" {seconds:g} seconds and was given up."
    )
    remedy = (
        "Make it await what it waits for, or make it a plain function (def), which runs in a"
        " thread; then restart the worker process."
    )
    kind, known = BLOCKED if work.kind == "tool" else HANGS, facts(remedy=remedy, parks=True)
    return LoggedError(text, *known, type=kind, non_retryable=work.kind != INLINE)


def held_up(work: Work, blocking: Work | None) -> ApplicationError:
    """Return the failure of work that other code held up; its next attempt gets another loop."""
    what = blocking or NOT_OURS
    if work.task is None:
        text = f"Activity {work.kind!r} was not begun: {what} blocks the event loop."
        return ApplicationError(text, type=NOT_STARTED)
    text = f"{str(work.calls) or work.kind} was cut off: {what} blocks the event loop."
    return ApplicationError(text, type=INTERRUPTED)
