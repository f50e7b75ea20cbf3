"""Measure a task of N turns with the real `openai` client over HTTP. Prints one JSON line.

    python -m benchmarks.real_client --turns 10,100,1000

The server is `benchmarks.http_server`, in a process of its own. What is measured, and how:
* worker CPU per turn: CPU time of this process, which holds client and worker, over the turns.
* longest stall: the longest time in which a callback that is due every millisecond could not run,
  because something else held the event loop.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.run import histories
from benchmarks.work import APP, lookup
from holdfast import Agent, AgentRunner, Runner
from holdfast.client.agent_runner.base import new_id
from holdfast.models.openai.responses import ResponsesModel


@contextmanager
def server() -> Generator[str]:
    """Run the server; yield its address."""
    command = [sys.executable, "-m", "benchmarks.http_server"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process.stdout.readline().strip()  # type: ignore[union-attr]
        finally:
            process.stdin.close()  # type: ignore[union-attr]


class Stalls:
    """Notes how long the event loop is held at most."""

    def __init__(self) -> None:
        """Note nothing yet."""
        self.longest = 0.0

    async def watch(self) -> None:
        """Watch until cancelled."""
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(0.001)
            self.longest = max(self.longest, time.perf_counter() - begun - 0.001)


async def measure(runner: AgentRunner, agent: Agent, turns: int) -> dict[str, Any]:
    """Run one task of this many turns."""
    stalls, task_id = Stalls(), new_id("bench")
    watching = asyncio.create_task(stalls.watch())
    cpu, start = time.process_time(), time.perf_counter()
    await Runner.run(agent, f"turns={turns}", max_turns=None, runner=runner, task_id=task_id)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - start
    watching.cancel()
    runs = await histories(runner.client, task_id)
    events = [event for run in runs for event in run.events]
    return {
        "turns": turns,
        "worker_cpu_ms_per_turn": round(1000 * cpu / turns, 1),
        "wall_ms_per_turn": round(1000 * wall / turns, 1),
        "longest_stall_ms": round(1000 * stalls.longest, 1),
        "bytes": sum(event.ByteSize() for event in events),
        "events_per_turn": round(len(events) / turns, 1),
    }


@asynccontextmanager
async def bench() -> AsyncGenerator[tuple[AgentRunner, Agent]]:
    """Run the server and an embedded engine with the agent."""
    with server() as url, tempfile.TemporaryDirectory() as home:
        model = ResponsesModel("gpt-5-mini", base_url=url, api_key="sk-of-the-benchmark")
        agent = Agent(name=APP, instructions="Call lookup.", model=model, tools=[lookup])
        async with AgentRunner.local(agent, data_dir=Path(home)) as runner:
            await Runner.run(agent, "turns=2", runner=runner)
            yield runner, agent


async def main(given: argparse.Namespace) -> dict[str, Any]:
    """Run everything that was asked for."""
    load = round(os.getloadavg()[0], 2)
    async with bench() as (runner, agent):
        turns = [int(each) for each in given.turns.split(",") for _ in range(given.times)]
        rows = [await measure(runner, agent, each) for each in turns]
    return {"bench": "holdfast, real client", "loadavg_at_start": load, "rows": rows}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", default="10,100,300", help="turns of a task, several by commas")
    parser.add_argument("--times", type=int, default=1, help="tasks of each length")
    print(json.dumps(asyncio.run(main(parser.parse_args()))))
