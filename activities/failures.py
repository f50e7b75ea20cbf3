"""How errors of activities cross into the task: by class name, retried or not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError, RPCStatusCode

from holdfast.errors import (
    LONGEST_WAIT_SECONDS,
    ArchiveError,
    BlobMissingError,
    ConnectError,
    DigestMismatchError,
    HoldfastError,
    ModelUnavailableError,
    NoWorkerError,
    QueryFailedError,
    UserError,
)
from holdfast.task.data.failures import INTERRUPTED, NOT_STARTED, Failure
from holdfast.values.code.user_calls import naming, text_with_place
from holdfast.values.messages import clean
from holdfast.values.text.logs import log
from holdfast.values.text.redact import redact

LONGEST_TEXT = 2000
LASTING = frozenset(
    {
        RPCStatusCode.INVALID_ARGUMENT,
        RPCStatusCode.NOT_FOUND,
        RPCStatusCode.PERMISSION_DENIED,
        RPCStatusCode.UNAUTHENTICATED,
        RPCStatusCode.UNIMPLEMENTED,
    }
)
"""Refusals of the Temporal server that the next attempt would get as well."""


class ToldError(ApplicationError):
    """A failure that is in the log already: Temporal need not log it again, with its traceback."""


def is_news(record: logging.LogRecord) -> bool:
    """Whether a record of Temporal's tells of something else than a ToldError."""
    return not record.exc_info or not isinstance(record.exc_info[1], ToldError)


def log_failures_once() -> None:
    """Keep Temporal from logging again, in this process, what the activities have logged."""
    activity.logger.base_logger.addFilter(is_news)


@contextmanager
def typed_failures() -> Generator[None]:
    """Turn every exception into one that the task understands.

    What time can heal is retried, with the provider's Retry-After obeyed. An archive or a server
    that cannot be reached is retried too; damage is not. Everything else waits for a person, a
    UserError as well: it says that code is to be mended, and then the task can go on. The
    original goes to the log, with its traceback if it is none of our own errors, which say what to
    do. It is no cause: causes are stored in the history, and nobody has cut the secrets out of
    their texts.
    """
    try:
        yield
    except ApplicationError:
        raise
    except ModelUnavailableError as error:
        asked = error.retry_after
        wait = None if asked is None or not asked >= 0 else min(asked, LONGEST_WAIT_SECONDS)
        delay = None if wait is None else timedelta(seconds=wait)
        raise ApplicationError(
            text_of(error),
            type=type(error).__name__,
            next_retry_delay=delay,
            category=ApplicationErrorCategory.BENIGN,
        ) from None
    except Exception as error:
        is_ours = isinstance(error, HoldfastError)
        log.warning("An activity failed: %s", text_of(error), exc_info=not is_ours)
        facts = [{"parks": True}] if isinstance(error, UserError) else []
        kind, lasts = type(error).__name__, not heals_by_time(error)
        raise ToldError(text_of(error), *facts, type=kind, non_retryable=lasts) from None


@contextmanager
def not_started(what: str) -> Generator[None]:
    """Say of what stops the block, which stands before a call, that the call has not been made.

    Args:
        what: What was to be run, for a person.

    Raises:
        ApplicationError: "NotStarted" when time can heal it: the call may be scheduled again
            whatever it does to the world.
    """
    try:
        yield
    except asyncio.CancelledError:
        if not activity.is_worker_shutdown():
            raise
        msg = f"The worker process was stopped before the {what} started."
        raise ApplicationError(msg, type=NOT_STARTED) from None
    except Exception as error:
        if not heals_by_time(error):
            raise
        msg = f"The {what} was not started: {text_of(error)}"
        raise ApplicationError(msg, type=NOT_STARTED) from None


@contextmanager
def interrupted(what: str) -> Generator[None]:
    """Say of a call that is cut off because its worker process is stopped that it was started.

    Args:
        what: What was running, for a person.

    Raises:
        ApplicationError: "Interrupted" when the process is being stopped.
    """
    try:
        yield
    except asyncio.CancelledError:
        if not activity.is_worker_shutdown():
            raise
        msg = f"The worker process was stopped while the {what} ran."
        raise ApplicationError(msg, type=INTERRUPTED) from None


@contextmanager
def users_code(what: str, function: Callable[..., Any] | None) -> Generator[None]:
    """Run a guardrail, hook or predicate: what it raises is its own defect, not the run's end.

    Args:
        what: What the function is, for a person.
        function: It; the error names it, with its file and line.

    Raises:
        ApplicationError: It raised; the task waits, whatever the type of the error.
    """
    try:
        with naming(what, function):
            yield
    except Exception as error:
        log.warning("Code of the user's failed: %s", text_of(error), exc_info=True)
        kind, fact = type(error).__name__, {"parks": True}
        raise ToldError(text_of(error), fact, type=kind, non_retryable=True) from None


def failure_by(error: Exception) -> Failure:
    """Say what stopped a step, with what it came from."""
    if isinstance(error, ApplicationError):
        kind = error.type or "ApplicationError"
        return Failure(type=kind, message=error.message, parks=True)
    parks = isinstance(error, UserError)
    return Failure(type=type(error).__name__, message=text_of(error), parks=parks)


def heals_by_time(error: Exception) -> bool:
    """Whether the archive, the server or a worker may answer at the next attempt."""
    match error:
        case BlobMissingError() | DigestMismatchError():
            return False
        case ArchiveError() | ConnectError() | NoWorkerError() | QueryFailedError():
            return True
        case RPCError(status=status):  # a query may have waited for a worker that is gone
            return status not in LASTING
        case _:
            return False


def text_of(error: Exception) -> str:
    """Return the text of an error, without secrets and of readable length."""
    return clean(redact(text_with_place(error)))[:LONGEST_TEXT]
