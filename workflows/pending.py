"""A request that waits for the task, and what it is told in the end."""

from __future__ import annotations

from temporalio.exceptions import ApplicationError

from holdfast.task.data.records import Failure
from holdfast.task.data.state import PARKED, RunReply
from holdfast.task.data.wire import RunRequest


def refusal(failure: Failure, *, parked: bool = False) -> ApplicationError:
    """Make the error with which an update is refused or fails.

    Args:
        failure: Why.
        parked: Whether the task waits with this failure, rather than that the request was wrong.
    """
    facts = (failure.data,) if failure.data else ()
    details = (PARKED, failure.step, *facts) if parked else facts
    return ApplicationError(failure.message, *details, type=failure.type, non_retryable=True)


class Pending:
    """One `run` update in progress.

    Attributes:
        id: The update's id.
        asked: What was asked.
        done: Whether the update may return.
    """

    def __init__(self, request_id: str, asked: RunRequest) -> None:
        """Remember the request."""
        self.id = request_id
        self.asked = asked
        self.done = False
        self._reply: RunReply | Failure = RunReply()
        self._parked = False

    def answer(self, reply: RunReply) -> None:
        """Let the update return."""
        self._reply = reply
        self.done = True

    def fail(self, failure: Failure, *, parked: bool = False) -> None:
        """Let the update raise; `parked` tells that the task waits with this failure."""
        self._reply = failure
        self._parked = parked
        self.done = True

    def result(self) -> RunReply:
        """Return what was answered.

        Raises:
            ApplicationError: The request failed; its type names the error class.
        """
        if isinstance(self._reply, Failure):
            raise refusal(self._reply, parked=self._parked)
        return self._reply
