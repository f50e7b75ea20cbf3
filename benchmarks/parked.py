"""Measure many tasks at once: waiting for a person, and running. Prints a JSON line for each.

    python -m benchmarks.parked parked running --tasks 10000 --at-once 1000

One worker process serves all tasks, on the embedded server.

* parked: `--tasks` tasks wait for an approval. `decision_ms` is the time from sending `approve` to
  the step's output, median over `--decisions` tasks: of the oldest and the newest of all, and, in
  turn with them, of one that waits alone on an engine of its own;
  `pending_s` of `pending_approvals()` and `list_s` of `list_tasks()` over all of them, the median
  of three; `history_events_while_parked` what a parked task's history gains over the whole run;
  `worker_mb` and `server_mb` the resident memory of the two processes before, and with all.
* running: `--at-once` tasks of `--turns` turns run at once, after fewer of them (`--few`):
  `turns_per_s`, and the processor time of the worker process for each turn.
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
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.processes import megabytes, processor_seconds, served
from benchmarks.shared import prompt
from benchmarks.work import BenchModel, bench_agent
from holdfast import Agent, AgentRunner, Message, ToolCall, tool
from holdfast.models import ModelAnswer, ModelRequest

BATCH = 50
LISTINGS = 3


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


parking = Agent(name="parked", model=OneCall(), tools=[pay])
working = bench_agent("working", BenchModel())


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


async def decide(runner: AgentRunner, task_id: str) -> float:
    """Approve a task; return the time to its output in milliseconds."""
    start = time.perf_counter()
    await runner.approve(f"{task_id}:1", by="bench")
    output = await runner.run_step(task_id)
    wall = time.perf_counter() - start
    if output.status != "done":
        msg = f"task {task_id} still waits"
        raise RuntimeError(msg)
    return 1000 * wall


async def decisions(runner: AgentRunner, ids: list[str], count: int) -> dict[str, float]:
    """Time decisions about parked tasks, each in turn with one about a task that waits alone."""
    walls: dict[str, list[float]] = {"alone": [], "oldest_of_all": [], "newest_of_all": []}
    with tempfile.TemporaryDirectory() as directory:
        async with served("benchmarks.parked:parking", Path(directory)) as (apart, _, _):
            await decide(apart, (await park(apart, 1))[0])
            for old, new in zip(ids[:count], ids[-count - 1 : -1], strict=True):
                [one] = await park(apart, 1)
                walls["alone"].append(await decide(apart, one))
                # The first ones are no longer in the worker's cache, the last ones are.
                walls["oldest_of_all"].append(await decide(runner, old))
                walls["newest_of_all"].append(await decide(runner, new))
    return {
        f"decision_ms_{name}": round(statistics.median(each), 1) for name, each in walls.items()
    }


async def events_of(runner: AgentRunner, task_id: str) -> int:
    """Return the length of a task's history."""
    description = await runner.client.get_workflow_handle(task_id).describe()
    return description.history_length


async def listed(listing: Callable[[], Awaitable[list[Any]]], count: int) -> float:
    """Wait until visibility shows all, then time the listing in seconds."""
    while len(await listing()) < count:  # visibility is a moment behind
        pass
    walls: list[float] = []
    for _ in range(LISTINGS):
        start = time.perf_counter()
        await listing()
        walls.append(time.perf_counter() - start)
    return round(statistics.median(walls), 3)


async def parked(given: argparse.Namespace) -> dict[str, Any]:
    """See the module."""
    tasks: int = given.tasks
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        async with served("benchmarks.parked:parking", path) as (runner, worker, server):
            await decide(runner, (await park(runner, 1))[0])
            memory = await megabytes(worker), await megabytes(server)
            start = time.perf_counter()
            ids = await park(runner, tasks)
            took = time.perf_counter() - start
            before = await events_of(runner, ids[-1])
            pending = await listed(runner.pending_approvals, tasks)
            listing = await listed(runner.list_tasks, tasks)
            took_to_decide = await decisions(runner, ids, given.decisions)
            gained = await events_of(runner, ids[-1]) - before
            with_all = await megabytes(worker), await megabytes(server)
    return {
        "tasks": tasks,
        "decisions": given.decisions,
        "parking_s": round(took, 1),
        "pending_s": pending,
        "list_s": listing,
        **took_to_decide,
        "history_events_while_parked": gained,
        "worker_mb": [memory[0], with_all[0]],
        "server_mb": [memory[1], with_all[1]],
    }


async def run_all(
    runner: AgentRunner, count: int, turns: int, worker: int
) -> dict[str, float | int]:
    """Run so many tasks at once to their answers."""

    async def one() -> None:
        task = await runner.create_task(prompt(turns))
        await runner.run_task(task)

    cpu, start = await processor_seconds(worker), time.perf_counter()
    await asyncio.gather(*(one() for _ in range(count)))
    wall = time.perf_counter() - start
    done = count * (turns + 1)
    used = 1000 * (await processor_seconds(worker) - cpu) / done
    return {
        "tasks": count,
        "elapsed_s": round(wall, 1),
        "turns_per_s": round(done / wall, 1),
        "worker_cpu_ms_per_turn": round(used, 1),
    }


async def running(given: argparse.Namespace) -> dict[str, Any]:
    """See the module."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        async with served("benchmarks.parked:working", path) as (runner, worker, server):
            await run_all(runner, given.few, given.turns, worker)
            few = await run_all(runner, given.few, given.turns, worker)
            memory = await megabytes(worker), await megabytes(server)
            many = await run_all(runner, given.at_once, given.turns, worker)
            after = await megabytes(worker), await megabytes(server)
    return {
        "turns": given.turns,
        "few": few,
        "many": many,
        "worker_mb": [memory[0], after[0]],
        "server_mb": [memory[1], after[1]],
    }


SCENARIOS = {each.__name__: each for each in (parked, running)}


async def measure(given: argparse.Namespace) -> None:
    """Run the scenarios and print what was found."""
    for name in given.scenarios or SCENARIOS:
        found = await SCENARIOS[name](given)
        python = ".".join(map(str, sys.version_info[:3]))
        about = {"bench": name, "python": python, "cpus": os.cpu_count()}
        print(json.dumps({**about, **found}, separators=(",", ":")), flush=True)


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("scenarios", nargs="*", help=", ".join(SCENARIOS))
    parser.add_argument("--tasks", type=int, default=2000, help="tasks that wait")
    parser.add_argument("--decisions", type=int, default=10, help="decisions that are timed")
    parser.add_argument("--at-once", type=int, default=1000, help="tasks that run at once")
    parser.add_argument("--few", type=int, default=50, help="tasks that run at once before")
    parser.add_argument("--turns", type=int, default=5, help="turns of each of those tasks")
    given = parser.parse_args()
    unknown = set(given.scenarios) - set(SCENARIOS)
    if unknown:
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
    asyncio.run(measure(given))


if __name__ == "__main__":
    main()
