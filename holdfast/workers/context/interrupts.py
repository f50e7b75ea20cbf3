"""Stopping a step before its end: a later activity runs the step from its top."""

from __future__ import annotations

import asyncio
from typing import Literal, Never

from holdfast.values.base import Value
from holdfast.values.messages import ToolCall


class Interrupt(Value):
    """Why the step cannot go on in this activity.

    Attributes:
        kind: "tools": the task must run tools. "more": a second model call, or costly memo, belongs
            to the next activity. "limit": the task's limit forbids the call. "over": the last call
            that the budget allowed has been made, so its answer ends the step.
        request: Digest of the request.
        calls: The calls, for "tools".
    """

    kind: Literal["tools", "more", "limit", "over"]
    request: str = ""
    calls: tuple[ToolCall, ...] = ()


class StepStop:
    """Stops the one run of a step that an activity makes.

    Attributes:
        interrupted: Why the step was stopped: an Interrupt, or the error of a model call.
    """

    def __init__(self) -> None:
        """Let the step run, in the running loop."""
        self.interrupted: asyncio.Future[Interrupt] = asyncio.get_running_loop().create_future()
        self._closed = asyncio.Event()

    def go_on(self) -> None:
        """Refuse a call after the step was interrupted, as from a `finally` on its way out.

        Nothing could answer it in this activity, and a run that waited for it would never end.

        Raises:
            asyncio.CancelledError: The step is interrupted.
        """
        if self.interrupted.done():
            raise asyncio.CancelledError

    async def fail(self, error: Exception) -> Never:
        """Stop here with the error of a model call, which the AgentWorker never gets to see.

        An answer that it gave in the place of a failed call would stand in the journal where the
        repeated call's answer belongs.
        """
        if not self.interrupted.done():
            self.interrupted.set_exception(error)
        await self._halt()

    async def interrupt(self, why: Interrupt) -> Never:
        """Stop here with the reason."""
        self.go_on()
        self.interrupted.set_result(why)
        await self._halt()

    def close(self) -> None:
        """Cancel calls that wait, and calls to come."""
        if not self.interrupted.done():
            self.interrupted.cancel()
        self._closed.set()

    async def _halt(self) -> Never:
        """Wait for the driver, which cancels the step."""
        await self._closed.wait()
        raise asyncio.CancelledError
