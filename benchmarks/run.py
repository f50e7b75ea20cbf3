"""Measure a task of N turns, and many tasks at once. Prints one JSON line.

    python -m benchmarks.run --turns 10,100,1000 --tasks 50

What is measured, and how:
* bytes: sum of the encoded sizes of all history events, over all runs of the task's chain; what the
  archive holds is given beside it.
* replay: wall time of replaying the history of the longest chain run with Temporal's Replayer.
* worker CPU per turn: CPU time of this process, which holds client and worker, over the turns.
* turns per second: `--tasks` tasks of `--task-turns` turns, started at once; wall time to the last.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer

from benchmarks.work import bench_agent
from holdfast import AgentRunner, Runner
from holdfast.client.agent_runner.base import new_id
from holdfast.engine.converter import holdfast_converter
from holdfast.workflows.agent_task import AgentTask


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


async def replay_ms(history: WorkflowHistory, times: int) -> float:
    """Return the median wall time of a replay in milliseconds."""
    walls: list[float] = []
    for _ in range(times):
        replayer = Replayer(workflows=[AgentTask], data_converter=holdfast_converter())
        start = time.perf_counter()
        await replayer.replay_workflow(history)
        walls.append(time.perf_counter() - start)
    return round(1000 * statistics.median(walls), 1)


async def measure_turns(runner: AgentRunner, turns: int, times: int) -> dict[str, Any]:
    """Run tasks of this many turns, one after the other."""
    walls: list[float] = []
    task_id = ""
    cpu = time.process_time()
    for _ in range(times):
        task_id = new_id("bench")
        start = time.perf_counter()
        await Runner.run(
            bench_agent(), f"turns={turns}", max_turns=None, runner=runner, task_id=task_id
        )
        walls.append(time.perf_counter() - start)
    cpu = time.process_time() - cpu
    runs = await histories(runner.client, task_id)
    sizes: collections.Counter[str] = collections.Counter()
    counts: collections.Counter[str] = collections.Counter()
    for event in (event for run in runs for event in run.events):
        sizes[kind_of(event)] += event.ByteSize()
        counts[kind_of(event)] += 1
    longest = max(runs, key=lambda run: len(run.events))
    return {
        "turns": turns,
        "runs_of_the_chain": len(runs),
        "events": counts.total(),
        "bytes": sizes.total(),
        "bytes_per_turn": round(sizes.total() / turns),
        "bytes_by_kind": dict(sizes.most_common(8)),
        "events_by_kind": dict(counts.most_common(8)),
        "wall_ms_per_turn": round(1000 * statistics.median(walls) / (turns + 1), 2),
        "worker_cpu_ms_per_turn": round(1000 * cpu / times / (turns + 1), 2),
        "replay_ms": await replay_ms(longest, times),
        "replayed_events": len(longest.events),
    }


async def measure_tasks(runner: AgentRunner, tasks: int, turns: int, times: int) -> dict[str, Any]:
    """Run many tasks at once."""
    walls: list[float] = []
    cpu = time.process_time()
    for _ in range(times):
        start = time.perf_counter()
        await asyncio.gather(
            *(
                Runner.run(bench_agent(), f"turns={turns}", max_turns=None, runner=runner)
                for _ in range(tasks)
            )
        )
        walls.append(time.perf_counter() - start)
    cpu = time.process_time() - cpu
    wall = statistics.median(walls)
    return {
        "tasks": tasks,
        "turns": turns,
        "elapsed_s": round(wall, 3),
        "turns_per_s": round(tasks * (turns + 1) / wall, 1),
        "worker_cpu_ms_per_turn": round(1000 * cpu / times / tasks / (turns + 1), 2),
    }


def bytes_in(directory: Path) -> int:
    """Return the size of all files below a directory."""
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


async def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Run everything that was asked for."""
    out: dict[str, Any] = {
        "bench": "holdfast",
        "python": ".".join(map(str, sys.version_info[:3])),
        "cpus": os.cpu_count(),
        "loadavg_at_start": round(os.getloadavg()[0], 2),
        "runs": given.runs,
        "sizes": [],
    }
    with tempfile.TemporaryDirectory() as directory:
        async with AgentRunner.local(bench_agent(), data_dir=directory) as runner:
            await measure_turns(runner, 2, 1)
            archive = Path(directory) / "archive"
            for turns in given.turns:
                before = bytes_in(archive)
                row = await measure_turns(runner, turns, given.runs)
                row["archive_bytes_per_turn"] = round(
                    (bytes_in(archive) - before) / turns / given.runs
                )
                out["sizes"].append(row)
            if given.tasks:
                out["concurrent"] = await measure_tasks(
                    runner, given.tasks, given.task_turns, given.runs
                )
    return out


def numbers(text: str) -> list[int]:
    """Read "10,100" as a list of numbers."""
    return [int(each) for each in text.split(",") if each]


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=numbers, default=[10, 100], help="sizes, comma-separated")
    parser.add_argument("--tasks", type=int, default=50, help="tasks at once; 0 for none")
    parser.add_argument("--task-turns", type=int, default=5, help="turns of each of those tasks")
    parser.add_argument("--runs", type=int, default=3, help="repetitions; medians are reported")
    line = json.dumps(asyncio.run(measure(parser.parse_args())), separators=(",", ":"))
    print(line, flush=True)


if __name__ == "__main__":
    main()
