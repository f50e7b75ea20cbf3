"""Measure tasks that wait for a person: how long a decision takes when many of them wait.

    python -m benchmarks.parked --tasks 2000

What is measured, and how:
* decision_ms: from sending `approve` to the step's output being there, median over `--decisions`
  tasks, with one task waiting and with `--tasks` waiting.
* pending_s: wall time of `pending_approvals()` over all of them.
* history_events_while_parked: events that a parked task's history gains over the whole run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from typing import Any

from holdfast import Agent, AgentRunner, Message, ToolCall, tool
from holdfast.models import ModelAnswer, ModelRequest

BATCH = 50


class OneCall:
    """Calls the tool once, then answers."""

    name = "one-call"

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Answer at once."""
        if any(message.role == "tool" for message in request.messages):
            return ModelAnswer(message=Message(role="assistant", content="done"))
        call = ToolCall(id="call_1", name="pay", arguments='{"cents": 100}')
        return ModelAnswer(message=Message(role="assistant", calls=(call,)))


@tool(needs_approval=True)
def pay(cents: int) -> str:
    """Pay an amount."""
    return f"paid {cents}"


async def park(runner: AgentRunner, count: int) -> list[str]:
    """Create tasks and run each until it waits."""

    async def one() -> str:
        task = await runner.create_task("pay")
        await runner.run_step(task)
        return task.task_id

    ids: list[str] = []
    for start in range(0, count, BATCH):
        ids += await asyncio.gather(*(one() for _ in range(min(BATCH, count - start))))
    return ids


async def decide(runner: AgentRunner, task_ids: list[str]) -> float:
    """Approve tasks one after the other; return the median time to their output in milliseconds."""
    walls: list[float] = []
    for task_id in task_ids:
        start = time.perf_counter()
        await runner.approve(f"{task_id}:1", by="bench")
        output = await runner.run_step(task_id)
        walls.append(time.perf_counter() - start)
        if output.status != "done":
            msg = f"task {task_id} still waits"
            raise RuntimeError(msg)
    return round(1000 * statistics.median(walls), 1)


async def events_of(runner: AgentRunner, task_id: str) -> int:
    """Return the length of a task's history."""
    description = await runner.client.get_workflow_handle(task_id).describe()
    return description.history_length


async def listed(runner: AgentRunner, count: int) -> float:
    """Wait until visibility shows all, then time one listing in seconds."""
    while len(await runner.pending_approvals()) < count:  # visibility is a moment behind
        pass
    start = time.perf_counter()
    await runner.pending_approvals()
    return round(time.perf_counter() - start, 3)


async def measure(tasks: int, decisions: int) -> dict[str, Any]:
    """Run everything."""
    agent = Agent(name="parked", model=OneCall(), tools=[pay])
    with tempfile.TemporaryDirectory() as directory:
        async with AgentRunner.local(agent, data_dir=directory) as runner:
            alone = [await decide(runner, await park(runner, 1)) for _ in range(decisions)]
            start = time.perf_counter()
            ids = await park(runner, tasks)
            parking = time.perf_counter() - start
            before = await events_of(runner, ids[-1])
            pending = await listed(runner, tasks)
            among = await decide(runner, ids[:decisions])
            gained = await events_of(runner, ids[-1]) - before
    return {
        "bench": "parked",
        "python": ".".join(map(str, sys.version_info[:3])),
        "cpus": os.cpu_count(),
        "tasks": tasks,
        "decisions": decisions,
        "parking_s": round(parking, 1),
        "pending_s": pending,
        "decision_ms_alone": statistics.median(alone),
        "decision_ms_among_all": among,
        "history_events_while_parked": gained,
    }


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=2000, help="tasks that wait")
    parser.add_argument("--decisions", type=int, default=10, help="decisions that are timed")
    given = parser.parse_args()
    found = asyncio.run(measure(given.tasks, given.decisions))
    print(json.dumps(found, separators=(",", ":")), flush=True)


if __name__ == "__main__":
    main()
