"""What the stacks on Temporal share: running a workflow, and reading its history."""

from __future__ import annotations

from typing import Any

from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import TerminatedError
from temporalio.worker import Replayer

from benchmarks.histories import completed_activities, histories, replay_ms, size_of
from benchmarks.shared import ANSWER, EndedError, Source, Stack, prompt

QUEUE = "bench"


class TemporalStack(Stack):
    """One workflow for each task.

    Attributes:
        workflows: The workflow of each source of model answers; takes the task's input.
        plugins: Plugins of the replayer.
        tool_activity: What is in the name of the tool's activities alone.
    """

    workflows: dict[Source, Any]
    plugins: list[Any]
    tool_activity: str

    def __init__(self, client: Client) -> None:
        self._client = client

    async def run(self, source: Source, turns: int, task_id: str) -> None:
        flow = self.workflows[source]
        try:
            found = await self._client.execute_workflow(
                flow.run, args=[prompt(turns), turns], id=task_id, task_queue=QUEUE
            )
        except WorkflowFailureError as error:
            if isinstance(error.cause, TerminatedError):  # a client does not terminate any here
                raise EndedError(str(error.cause)) from error
            raise
        assert found == ANSWER

    async def recorded(self, task_id: str, *, replays: bool) -> dict[str, Any]:
        runs = await histories(self._client, task_id)
        found = size_of(runs)
        if replays:
            found["replay_ms"] = await replay_ms(runs, self._replayer)
        return found

    def _replayer(self) -> Replayer:
        return Replayer(workflows=list(self.workflows.values()), plugins=self.plugins)

    async def reached(self, task_id: str) -> int:
        return await completed_activities(self._client, task_id, self.tool_activity)
