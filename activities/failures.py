"""How errors and results of activities cross into the task.

Errors cross by class name, retried or not. Every result is decoded once before it is handed over,
because the task has to decode it as well.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, get_type_hints

from temporalio import activity
from temporalio.client import WorkflowQueryFailedError
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from holdfast.activities.heartbeat import FailedCalls
from holdfast.engine.search_attributes import SPLIT
from holdfast.errors import (
    DAMAGED,
    LONGEST_WAIT_SECONDS,
    ArchiveError,
    ConnectError,
    HoldfastError,
    KeyMissingError,
    MCPConnectionError,
    ModelUnavailableError,
    NoWorkerError,
    OutcomeUnknownError,
    QueryFailedError,
    UserError,
    remedy_of,
    with_remedy,
)
from holdfast.task.data.failures import (
    CERTAIN,
    INTERRUPTED,
    NOT_STARTED,
    Failure,
    facts,
    failure_with,
    lost_failure,
)
from holdfast.values.checks.gate import safe_text
from holdfast.values.code import raised, user_calls
from holdfast.values.code.user_calls import message_with_place, naming
from holdfast.values.settings import RATE_LIMIT_SECONDS
from holdfast.values.text.logs import log

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


SHORTEST_WAIT_SECONDS = 0.001
"""Shortest time until a model call is repeated: that of Temporal's timers."""


class LoggedError(ApplicationError):
    """A failure that is in the log already: Temporal need not log it again, with its traceback."""


def is_news(record: logging.LogRecord) -> bool:
    """Whether a log record of Temporal's is about something else than a LoggedError."""
    return not record.exc_info or not isinstance(record.exc_info[1], LoggedError)


def log_failures_once() -> None:
    """Keep Temporal from logging again, in this process, what the activities have logged."""
    activity.logger.base_logger.addFilter(is_news)


LONGEST_PAUSE_SECONDS = 60
"""Longest wait between two calls that fail, unless the provider asks for more."""

LIMIT_REMEDY = "run the step again later, or give more time by ModelSettings(rate_limit_seconds=)."


@contextmanager
def typed_failures(*, attempts: int = 0) -> Generator[None]:
    """Turn every exception into one that the task understands.

    What may pass with time is retried, after the provider's Retry-After. An archive or a server
    that cannot be reached is retried too; damage is not. Everything else waits for a person, a
    UserError as well: it says that code must be mended, and then the task can go on.

    The original error is logged, with its traceback unless it is a HoldfastError. It does not
    become the cause of the new one: causes are stored in the history, and secrets would have to be
    cut out of their texts.

    Args:
        attempts: Number of the attempt from which on an unavailable model is not tried again; 0
            leaves that to the server. Attempts that a rate limit ended do not count: time lifts it.
    """
    try:
        yield
    except ApplicationError:
        raise
    except ModelUnavailableError as error:
        keep_for_caller(error)
        tried = activity.info().attempt
        # Once is daily life; a program that waits for long says what for.
        if tried > 1 and not error.is_unasked:
            log.warning("Attempt %d of a model call failed: %s", tried, text_of(error))
        raise _again_or_not(error, attempts) from None
    except asyncio.CancelledError as error:
        if user_calls.is_cancelled():
            raise
        msg = "Code of this activity raised CancelledError, though nothing has cancelled it."
        log.warning("An activity failed: %s", msg, exc_info=True)
        raise LoggedError(msg, type=type(error).__name__, non_retryable=True) from None
    except Exception as error:
        is_ours = isinstance(error, HoldfastError)
        log.warning("An activity failed: %s", text_of(error), exc_info=not is_ours)
        keep_for_caller(error)
        raise LoggedError(
            clean_message(error),
            *facts(remedy=clean_remedy(error), parks=isinstance(error, UserError)),
            type=type(error).__name__,
            non_retryable=not heals_by_time(error),
        ) from None


def _again_or_not(error: ModelUnavailableError, attempts: int) -> ApplicationError:
    """Return the failure of an attempt whose model was not available."""
    before, asked = FailedCalls.known(), error.retry_after
    wait = None if asked is None or not asked >= 0 else min(asked, LONGEST_WAIT_SECONDS)
    kind, remedy = ApplicationError, clean_remedy(error)
    pause = before.limits if error.is_limit else 2 ** (before.attempt - 1) // 2
    is_paused = not error.is_unasked and (error.is_limit or not error.is_repeated)
    if wait is not None and is_paused:  # it may ask for a second, or for none, again and again
        wait = max(wait, min(pause, LONGEST_PAUSE_SECONDS))
    if error.is_limit:
        kind = WaitingError
        most = error.limit_seconds or RATE_LIMIT_SECONDS
        now = activity.info().started_time.timestamp()
        is_last = now - (before.since or now) + (wait or 0) > most
        if is_last:
            remedy = f"It is waited out for {most:g} s: {LIMIT_REMEDY}"
    else:
        is_last = 0 < attempts <= before.attempt
    # Temporal takes a wait of zero for none given, and waits for 1, 2, 4 s and so on.
    delay = None if wait is None else timedelta(seconds=max(wait, SHORTEST_WAIT_SECONDS))
    return kind(
        clean_message(error),
        *facts(remedy=remedy),
        type=type(error).__name__,
        next_retry_delay=delay,
        non_retryable=is_last,
        category=ApplicationErrorCategory.BENIGN,
    )


class WaitingError(ApplicationError):
    """The failure of an attempt that does not count: the provider's limit is waited out."""


@contextmanager
def counted(attempts: int) -> Generator[None]:
    """Have the server make no attempt after the last one; attempts that only waited do not count.

    Args:
        attempts: Most attempts, lost ones included.
    """
    try:
        yield
    except WaitingError:
        raise
    except ApplicationError as error:
        if FailedCalls.known().attempt < attempts or error.non_retryable:
            raise
        raise with_fact(error, is_last=True) from None


def lost_often() -> ApplicationError:
    """Return the failure of an activity whose workers were lost as often as is allowed."""
    lost = lost_failure(activity.info().activity_type)
    known = facts(remedy=lost.remedy)
    return ApplicationError(lost.message, *known, type=lost.type, non_retryable=True)


@contextmanager
def not_started(what: str) -> Generator[None]:
    """Mark errors of the block, which prepares a call, as errors before the call was made.

    Args:
        what: What was to be run, for a person.

    Raises:
        ApplicationError: "NotStarted" when it may pass with time: the call may be scheduled again,
            whatever its effect.
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
        msg = f"The {what} was not started: {clean_message(error)}"
        raise ApplicationError(msg, *facts(remedy=clean_remedy(error)), type=NOT_STARTED) from None


@contextmanager
def interrupted(what: str) -> Generator[None]:
    """Mark a cancellation of the block by the stop of its worker process: the call was started.

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
    """Run a guardrail, hook or predicate: an error that it raises parks the task.

    Args:
        what: What the function is, for a person.
        function: The function; the error names it, with its file and line.

    Raises:
        ApplicationError: It raised; the task waits, whatever the type of the error.
    """
    try:
        with naming(what, function):
            yield
    except Exception as error:
        log.warning("Code of the user's failed: %s", text_of(error), exc_info=True)
        keep_for_caller(error)
        known = facts(remedy=clean_remedy(error), parks=True)
        kind = type(error).__name__
        raise LoggedError(clean_message(error), *known, type=kind, non_retryable=True) from None


def failure_in(error: ApplicationError) -> Failure:
    """Return the failure that the error of an activity carries."""
    return failure_with(error.type, error.message, error.details)


def failure_by(error: Exception) -> Failure:
    """Make the failure with which an error stops a step."""
    if isinstance(error, ApplicationError):
        return failure_in(error).model_copy(update={"parks": True})
    keep_for_caller(error)
    return Failure(
        type=type(error).__name__,
        message=clean_message(error),
        remedy=clean_remedy(error),
        parks=isinstance(error, UserError),
    )


def keep_for_caller(error: Exception, text: str = "") -> None:
    """Keep an exception for the caller of the run, if that may be in this process.

    Args:
        error: The exception.
        text: What the failure of the task says; empty for the message of the exception.
    """
    task_id = activity.info().workflow_id if activity.in_activity() else None
    if task_id is not None and user_calls.is_carried(task_id):
        raised.keep(task_id, error, text or clean_message(error))


def heals_by_time(error: Exception) -> bool:
    """Whether the archive, the server or a worker may answer at the next attempt."""
    match error:
        case KeyMissingError():  # another worker process may have the key
            return True
        case _ if isinstance(error, DAMAGED):
            return False
        case ArchiveError() | ConnectError() | NoWorkerError() | QueryFailedError():
            return True
        case MCPConnectionError():
            return True
        case WorkflowQueryFailedError():  # one that met a part of a workflow task has met no fault
            return SPLIT in str(error)
        case RPCError(status=status):  # a query may have waited for a worker that is gone
            return status not in LASTING
        case _:
            return False


def text_of(error: Exception) -> str:
    """Return the text of an error, without secrets and of readable length."""
    return with_remedy(clean_message(error), clean_remedy(error))


def clean_message(error: Exception) -> str:
    """Return what happened, without secrets and of readable length."""
    return safe_text(message_with_place(error)) or "it has no message"


def clean_remedy(error: Exception) -> str:
    """Return what to do about an error, or empty; likewise."""
    return safe_text(remedy_of(error))


@contextmanager
def certain() -> Generator[None]:
    """Mark failures of the block as certain, unless the code says that it does not know."""
    try:
        yield
    except ApplicationError as error:
        if error.type == OutcomeUnknownError.__name__:
            raise
        raise marked(error) from None


def marked(error: ApplicationError) -> ApplicationError:
    """Return a failure that says that it hides no effect."""
    return with_fact(error, CERTAIN)


def with_fact(
    error: ApplicationError, *fact: dict[str, Any], is_last: bool = False
) -> ApplicationError:
    """Return a failure with one more fact in its details, or as one that is not repeated."""
    return type(error)(
        error.message,
        *error.details,
        *fact,
        type=error.type,
        non_retryable=is_last or error.non_retryable,
        next_retry_delay=error.next_retry_delay,
        category=error.category,
    )


UNREADABLE_RESULT = "UnreadableResultError"
"""Type of the failure of an activity whose result could not be read again."""


class ReadableResults(Interceptor):
    """Fails an activity whose result the task could not read.

    A result that was handed over and cannot be read fails the workflow task for ever. A failure
    parks the task, and a person can resume it.
    """

    def intercept_activity(
        self,
        next: ActivityInboundInterceptor,  # noqa: A002  Temporal's name
    ) -> ActivityInboundInterceptor:
        """Check the result of each activity."""
        return _Reading(next)


class _Reading(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        """Run an activity and check its result.

        Raises:
            ApplicationError: It cannot be written, or not be read again.
        """
        result = await super().execute_activity(input)
        declared: Any = inspect.unwrap(input.fn)
        declared = getattr(declared, "__func__", declared)
        if declared.__module__.startswith("holdfast."):  # not a team's own activities
            check_readable(result, _kind_of_result(declared))
        return result


@functools.cache
def _kind_of_result(function: Callable[..., Any]) -> Any:
    """Return the declared type of a function's result; None when it declares none."""
    return get_type_hints(function).get("return")


def check_readable(result: Any, kind: Any) -> None:
    """Write and read a result as the task will.

    Args:
        result: The result of the running activity.
        kind: Its type; None when it is not known.

    Raises:
        ApplicationError: It cannot be written, or not be read again.
    """
    converter = activity.payload_converter()
    try:
        hints = None if kind is None else [kind]
        converter.from_payloads(converter.to_payloads([result]), hints)
    except Exception as error:
        reason = safe_text(str(error))
        log.exception("The result of activity %r cannot be read", activity.info().activity_type)
        msg = f"What activity {activity.info().activity_type!r} gave cannot be recorded: {reason}"
        raise ApplicationError(msg, type=UNREADABLE_RESULT, non_retryable=True) from None
