"""Results of activities are decoded once before they are handed over, as the task will do."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
)

from holdfast.activities.failures import LONGEST_TEXT
from holdfast.values.messages import clean
from holdfast.values.text.logs import log
from holdfast.values.text.redact import redact

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
            check_readable(result, get_type_hints(declared).get("return"))
        return result


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
        reason = clean(redact(str(error)))[:LONGEST_TEXT]
        log.exception("The result of activity %r cannot be read", activity.info().activity_type)
        msg = f"What activity {activity.info().activity_type!r} gave cannot be recorded: {reason}"
        raise ApplicationError(msg, type=UNREADABLE_RESULT, non_retryable=True) from None
