"""Watching a task for news without asking the task: by what the server says of it."""

from __future__ import annotations

from typing import Any

from temporalio.client import WorkflowExecutionStatus
from temporalio.converter import DataConverter

from holdfast.models.draft import Frame
from holdfast.reading.ended import activities_of
from holdfast.reading.reader import Reader
from holdfast.reading.streams.hub import StreamKey
from holdfast.reading.streams.progress import read_progress
from holdfast.values.base import Json


class Watch:
    """Notices new records of a task, and reads unfinished answers from its heartbeats.

    One look costs one request to the server and no work of the task's.

    Attributes:
        frames: Unfinished answers, from the heartbeats of the activities that make them.
        idle: Whether no activity of the task is running or waiting to run.
    """

    def __init__(self, reader: Reader, task_id: str) -> None:
        """Know nothing yet."""
        self._reader = reader
        self._task_id = task_id
        self._seen: tuple[str, int, WorkflowExecutionStatus | None] | None = None
        self.frames: dict[StreamKey, Frame] = {}
        self.idle = False

    async def changed(self) -> bool:
        """Look; return whether the history has grown.

        Raises:
            TaskNotFoundError: There is no such task.
            ConnectError: The server could not be reached.
        """
        found = await self._reader.describe(self._task_id)
        pending = activities_of(found)
        self.idle = not pending and not found.raw_description.HasField("pending_workflow_task")
        converter = self._reader.client.data_converter
        self.frames = {}
        for activity in pending:
            if activity.activity_type.name == "step" and activity.HasField("heartbeat_details"):
                details = list(activity.heartbeat_details.payloads)
                await self._read(converter, details)
        seen = (found.run_id, found.history_length, found.status)
        has_news, self._seen = seen != self._seen, seen
        return has_news

    async def _read(self, converter: DataConverter, payloads: list[Any]) -> None:
        said: list[Json] = await converter.decode(payloads)
        progress = read_progress(self._task_id, said[0] if said else None)
        if progress is not None:
            self.frames[progress[0]] = progress[1]
