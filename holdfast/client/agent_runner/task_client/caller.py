"""One caller of the step API: it names its requests, and acknowledges the outputs that it got.

A task gives each completed step to the first caller that asks, and to another one as long as no one
has acknowledged it: a program that was killed before it saw an output gets it when it starts again.
A caller acknowledges by its next request, or by a signal: a second after an output that no request
followed, and when it is closed. The signal costs one event of history.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import defaultdict

from temporalio.client import Client
from temporalio.service import RPCError

from holdfast.task.data.children import GIVEN, OutputsGiven
from holdfast.values.checks.ids import check_name

log = logging.getLogger("holdfast")

REST_SECONDS = 1.0
CLOSING_SECONDS = 2.0


def unique_id() -> str:
    """Make up the id of a request."""
    return uuid.uuid4().hex[:16]


def request_id_of(given: str | None) -> str:
    """Return the id of a request, made up when none was given.

    Raises:
        InvalidArgumentError: The id cannot be used.
    """
    return unique_id() if given is None else check_name("request_id", given)


class Caller:
    """What one AgentRunner has asked of tasks, and has been given.

    Attributes:
        name: Its name, in the ids of its requests.
    """

    def __init__(self) -> None:
        """Make up a name."""
        self.name = uuid.uuid4().hex[:7]
        self._unanswered: defaultdict[str, list[str]] = defaultdict(list)
        self._resting: dict[str, asyncio.TimerHandle] = {}
        self._sending: set[asyncio.Task[None]] = set()

    def request(self, task_id: str) -> str:
        """Name a new request to a task."""
        self.follow(task_id)
        return f"{self.name}~{uuid.uuid4().hex[:8]}"

    def kept(self, task_id: str) -> str:
        """Take the name of the oldest request that got no answer; empty for none.

        The task answers a request once: under the same name it gives the same step, also when that
        step was undone since.
        """
        self.follow(task_id)
        unanswered = self._unanswered.get(task_id)
        return unanswered.pop(0) if unanswered else ""

    def unanswered(self, task_id: str, request_id: str) -> None:
        """Keep the name of a request that got no answer."""
        self._unanswered[task_id].append(request_id)

    def given(self, task_id: str, client: Client) -> None:
        """Acknowledge an output after a while, unless a request follows."""
        self.follow(task_id)

        def send() -> None:
            self._resting.pop(task_id, None)
            sending = asyncio.create_task(self._acknowledge(task_id, client))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)

        loop = asyncio.get_running_loop()
        self._resting[task_id] = loop.call_later(REST_SECONDS, send)

    def follow(self, task_id: str, *, forget: bool = False) -> None:
        """Take back what was to be acknowledged: a request follows, which does it.

        Args:
            task_id: The task.
            forget: Whether requests without an answer do not count any more: the task is closed,
                or its steps were undone.
        """
        resting = self._resting.pop(task_id, None)
        if resting is not None:
            resting.cancel()
        if forget:
            self._unanswered.pop(task_id, None)

    async def close(self, client: Client) -> None:
        """Acknowledge all that was given."""
        rest = list(self._resting)
        for task_id in rest:
            self.follow(task_id)
        async with asyncio.timeout(CLOSING_SECONDS):
            await asyncio.gather(
                *self._sending, *(self._acknowledge(task_id, client) for task_id in rest)
            )

    async def _acknowledge(self, task_id: str, client: Client) -> None:
        """Send the signal. Without it, the next caller is given the newest output once more."""
        handle = client.get_workflow_handle(task_id)
        try:
            await handle.signal(GIVEN, OutputsGiven(caller=self.name))
        except RPCError as error:
            log.debug("Task %r did not get the acknowledgement of its output: %s", task_id, error)
