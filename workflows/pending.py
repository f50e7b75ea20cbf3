"""A request that waits for the task, and what it is told in the end."""

from __future__ import annotations

from temporalio.exceptions import ApplicationError

from holdfast.wire import Failure, RunReply, RunRequest


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

    def answer(self, reply: RunReply) -> None:
        """Let the update return."""
        self._reply = reply
        self.done = True

    def fail(self, failure: Failure) -> None:
        """Let the update raise."""
        self._reply = failure
        self.done = True

    def result(self) -> RunReply:
        """Return what was answered.

        Raises:
            ApplicationError: The request failed; its type names the error class.
        """
        if isinstance(self._reply, Failure):
            raise ApplicationError(self._reply.message, type=self._reply.type, non_retryable=True)
        return self._reply
