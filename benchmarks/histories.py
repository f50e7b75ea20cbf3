"""What a Temporal server has recorded of a task. Needs only the SDK, not Holdfast."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer


async def histories(client: Client, task_id: str) -> list[WorkflowHistory]:
    """Return the histories of a task's runs, first run first."""
    runs: list[WorkflowHistory] = []
    run_id = (await client.get_workflow_handle(task_id).describe()).run_id
    while run_id:
        handle = client.get_workflow_handle(task_id, run_id=run_id)
        history = await handle.fetch_history()
        runs.insert(0, history)
        started = history.events[0].workflow_execution_started_event_attributes
        run_id = started.continued_execution_run_id
    return runs


def kind_of(event: HistoryEvent) -> str:
    """Return an event's kind, with the activity's name."""
    kind = (event.WhichOneof("attributes") or "").removesuffix("_event_attributes")
    if kind == "activity_task_scheduled":
        kind += f":{event.activity_task_scheduled_event_attributes.activity_type.name}"
    return kind


def size_of(runs: list[WorkflowHistory]) -> dict[str, Any]:
    """Return bytes and events of a task's runs."""
    events = [event for run in runs for event in run.events]
    return {
        "bytes": sum(event.ByteSize() for event in events),
        "events": len(events),
        "runs_of_the_workflow": len(runs),
    }


async def replay_ms(runs: list[WorkflowHistory], replayer: Callable[[], Replayer]) -> float:
    """Return the wall time of replaying the longest of a task's runs: the median of three."""
    longest = max(runs, key=lambda run: len(run.events))
    walls: list[float] = []
    for _ in range(3):
        made = replayer()
        start = time.perf_counter()
        await made.replay_workflow(longest)
        walls.append(1000 * (time.perf_counter() - start))
    return round(statistics.median(walls), 1)


async def completed_activities(client: Client, task_id: str, part: str) -> int:
    """Return how many activities of a task, with this in their names, are recorded as completed."""
    events = [event for run in await histories(client, task_id) for event in run.events]
    begun = {event.event_id for event in events if part in kind_of(event).partition(":")[2]}
    ends = (event.activity_task_completed_event_attributes for event in events)
    return sum(end.scheduled_event_id in begun for end in ends)
