"""The answer of a task as it is written, token by token."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.errors import EngineError, HoldfastError, TaskNotFoundError
from holdfast.reading.streams.reader import RawResponsesStreamEvent, StreamEvent

AGAIN_SECONDS = 1.0


class Answer:
    """Follows what models say in a task.

    Attributes:
        text: What the newest answer says so far.
        is_whole: Whether that answer is complete.
    """

    def __init__(self, runner: AgentRunner, task_id: str) -> None:
        """Follow nothing yet."""
        self._runner, self._task_id = runner, task_id
        self._offset = 0
        self.text = ""
        self.is_whole = True

    async def follow(self) -> None:
        """Follow until the task is closed; go on when a worker or the server is back."""
        while True:
            try:
                events = self._runner.stream_events(self._task_id, offset=self._offset)
                async with aclosing(events):
                    async for event in events:
                        self._offset = event.offset
                        self._take(event)
            except TaskNotFoundError:
                return
            except (EngineError, HoldfastError):
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                return

    def _take(self, event: StreamEvent) -> None:
        if not isinstance(event, RawResponsesStreamEvent):
            return
        data: Any = event.data
        match data.type:
            case "response.created":
                self.text, self.is_whole = "", False
            case "response.output_text.delta":
                self.text += data.delta
            case "response.completed" | "response.incomplete" | "response.failed":
                self.is_whole = True
            case _:
                return
