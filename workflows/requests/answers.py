"""Answers to updates: how a refusal, or a failure, reaches the client."""

from __future__ import annotations

from temporalio.exceptions import ApplicationError

from holdfast.task.data.failures import REMEDY, Failure
from holdfast.task.data.state import PARKED, RunReply
from holdfast.task.requests.run_requests import Pending


def refusal(failure: Failure, *, parked: bool = False) -> ApplicationError:
    """Make the error with which an update is refused or fails.

    Args:
        failure: Why.
        parked: Whether the task waits with this failure, rather than that the request was wrong.
    """
    data = {**failure.data, REMEDY: failure.remedy} if failure.remedy else failure.data
    facts = (data,) if data else ()
    details = (PARKED, failure.step, *facts) if parked else facts
    return ApplicationError(failure.message, *details, type=failure.type, non_retryable=True)


def result_of(pending: Pending) -> RunReply:
    """Return the answer to a request.

    Raises:
        ApplicationError: The request failed; its type names the error class.
    """
    if isinstance(pending.reply, Failure):
        raise refusal(pending.reply, parked=pending.parked)
    return pending.reply
