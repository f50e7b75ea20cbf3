"""Measure a custom AgentWorker of N steps without a model. Prints one JSON line per size.

    python -m benchmarks.custom --steps 100,1000

Each step changes a state of 200 bytes and gives 100 bytes of output; the task runs by itself. So
the bytes per step are what Holdfast records of any step, and must not grow with their
number. `continue_as_new` counts how often the history was rolled.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.histories import histories, kind_of
from benchmarks.ours import bytes_in
from benchmarks.shared import blob, numbers
from benchmarks.work import BenchModel
from holdfast import Agent, AgentRunner, Task
from holdfast.workers import CustomAgentWorker, StepContext

STATE_BYTES = 200
OUTPUT_BYTES = 100


class Counter(CustomAgentWorker):
    """Counts as far as the input says."""

    def initialize_state(self, task: Task) -> dict[str, Any]:
        return {"count": 0, "last": int(task.input), "filling": blob(STATE_BYTES, 0)}

    async def next_state(
        self, state: dict[str, Any], ctx: StepContext
    ) -> tuple[dict[str, Any], bool]:
        del ctx
        state["count"] += 1
        state["filling"] = blob(STATE_BYTES, state["count"])
        state["output"] = blob(OUTPUT_BYTES, state["count"])
        return state, state["count"] == state["last"]


def counting_agent() -> Agent:
    """Make the agent that does the work; its model is never asked."""
    return Agent(name="bench-custom", model=BenchModel(), worker=Counter())


async def measure_steps(runner: AgentRunner, steps: int, archive: Path) -> dict[str, Any]:
    """Run a task of this many steps."""
    before, cpu, start = bytes_in(archive), time.process_time(), time.perf_counter()
    task = await runner.create_task(str(steps))
    last = await runner.run_task(task)
    wall = time.perf_counter() - start
    cpu = time.process_time() - cpu
    assert last.output == blob(OUTPUT_BYTES, steps)
    assert (await runner.get_task(task)).steps == steps
    await runner.finalize_response(task)
    await runner.client.get_workflow_handle(task.task_id).result()  # its archive is written
    runs = await histories(runner.client, task.task_id)
    events = [event for run in runs for event in run.events]
    size = sum(event.ByteSize() for event in events)
    activities = sum(kind_of(event) == "activity_task_scheduled:step" for event in events)
    assert activities == steps
    return {
        "bench": "holdfast-custom",
        "steps": steps,
        "cpus": os.cpu_count(),
        "loadavg": round(os.getloadavg()[0], 2),
        "events": len(events),
        "bytes": size,
        "bytes_per_step": round(size / steps),
        "archive_bytes_per_step": round((bytes_in(archive) - before) / steps),
        "continue_as_new": len(runs) - 1,
        "wall_s": round(wall, 2),
        "wall_ms_per_step": round(1000 * wall / steps, 2),
        "cpu_ms_per_step": round(1000 * cpu / steps, 2),
    }


async def measure(sizes: list[int], times: int) -> None:
    """Measure each size so many times and print the run with the median wall time."""
    with tempfile.TemporaryDirectory() as directory:
        async with AgentRunner.local(counting_agent(), data_dir=directory) as runner:
            archive = Path(directory) / "archive"
            await measure_steps(runner, 2, archive)
            for steps in sizes:
                rows = [await measure_steps(runner, steps, archive) for _ in range(times)]
                median = statistics.median_low(row["wall_s"] for row in rows)
                row = next(row for row in rows if row["wall_s"] == median)
                print(json.dumps(row, separators=(",", ":")), flush=True)


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=numbers, default=[100, 1000], help="comma-separated")
    parser.add_argument("--runs", type=int, default=1, help="repetitions; the median is printed")
    given = parser.parse_args()
    asyncio.run(measure(given.steps, given.runs))


if __name__ == "__main__":
    main()
