"""Measure one, two and four workers on one server, then compute what a cluster of them takes.

    python -m benchmarks.scale measured --workers 1 2 4 --tasks 100
    python -m benchmarks.scale cluster --shards 16 512 --workers 50 --writes 6 --cpu-ms 22

* measured: so many worker processes share a queue and an archive, on a dev server with a file.
  Tasks of five turns start at once, with a model that answers after a second over HTTP. Prints,
  for each number of workers, the CPU a turn of the workers together, of the client and of the
  server; and `writes`: how often a turn changes the record of a workflow on the server, by the
  server's own count.
* cluster: simulates tasks that arrive at random at a cluster. A turn changes its workflow's record
  `--writes` times, each of which holds the one shard of its task for `--db-ms`: a shard makes one
  operation at a time (`history.shardIOConcurrency`, 1 by default). Between them it takes a worker
  for `--cpu-ms` in all, and the model for a second. Prints the greatest rate of turns at which 95
  of 100 turns wait at most `--late-ms` for shards and workers, and how busy both are then.

The simulation knows nothing of networks, of the other services of a cluster, or of a database
that gets slower under load.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from benchmarks.compare import http_server
from benchmarks.paced import Server, server
from benchmarks.processes import processor_seconds
from benchmarks.shared import API_KEY, MODEL, percentile, prompt
from benchmarks.work import bench_agent
from holdfast import AgentRunner, Runner
from holdfast.engine.dev_server.process import free_port
from holdfast.models.openai.responses import ResponsesModel

URL = os.environ.get("BENCH_URL", "http://127.0.0.1")
agents = [bench_agent("scale", ResponsesModel(MODEL, base_url=URL, api_key=API_KEY))]
"""What the worker processes serve."""

TURNS = 5
SIMULATED_SECONDS = 60
"""How long turns arrive in a simulation; the first tenth of them is not counted."""
_WRITES = re.compile(
    r'^persistence_requests\{(?=.*operation="(?:Create|Update)WorkflowExecution").*\} (\S+)',
    re.MULTILINE,
)


def writes(made: Server) -> float:
    """Count the changes of workflows' records so far."""
    return sum(map(float, _WRITES.findall(made.page())))


def is_ready(address: str) -> bool:
    """Whether the worker at this address of its health checks polls."""
    with suppress(OSError), urlopen(f"http://{address}/ready"):
        return True
    return False


@asynccontextmanager
async def worker(environment: dict[str, str]) -> AsyncGenerator[int]:
    """Run a worker process until the block ends; yield its process id."""
    command = [sys.executable, "-m", "holdfast", "worker", "benchmarks.scale:agents"]
    health = f"127.0.0.1:{free_port()}"
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, **environment, "HOLDFAST_HEALTH": health},
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(60):
            while not await asyncio.to_thread(is_ready, health):  # noqa: ASYNC110  another process
                await asyncio.sleep(0.1)
        yield process.pid
    finally:
        process.terminate()
        await process.wait()


async def measured_with(count: int, tasks: int, url: str) -> dict[str, Any]:
    """Run the tasks with so many workers, and return their row."""
    with tempfile.TemporaryDirectory() as directory:
        archive = str(Path(directory) / "archive")
        async with AsyncExitStack() as stack:
            made = await stack.enter_async_context(server(directory))
            environment = {
                "TEMPORAL_ADDRESS": made.address,
                "HOLDFAST_ARCHIVE": archive,
                "BENCH_URL": url,
            }
            pids = [await stack.enter_async_context(worker(environment)) for _ in range(count)]
            runner = await stack.enter_async_context(
                await AgentRunner.connect(made.address, archive=archive, agent="scale")
            )

            async def one() -> None:
                await Runner.run(agents[0], prompt(TURNS), max_turns=None, runner=runner)

            # Until each worker has loaded what a task needs.
            await asyncio.gather(*(one() for _ in range(5 * count)))
            before = [await processor_seconds(pid) for pid in (*pids, made.pid)]
            cpu, start, changes = time.process_time(), time.perf_counter(), writes(made)
            await asyncio.gather(*(one() for _ in range(tasks)))
            seconds, client = time.perf_counter() - start, time.process_time() - cpu
            after = [await processor_seconds(pid) for pid in (*pids, made.pid)]
            await asyncio.sleep(2)  # the server counts once a second
            changes = writes(made) - changes
    used = [late - early for early, late in zip(before, after, strict=True)]
    turns = tasks * TURNS
    return {
        "workers": count,
        "tasks": tasks,
        "cpus": os.cpu_count(),
        "seconds": round(seconds, 1),
        "worker_ms_per_turn": round(1000 * sum(used[:-1]) / turns, 1),
        "busiest_share": round(max(used[:-1]) / sum(used[:-1]), 2),
        "client_ms_per_turn": round(1000 * client / turns, 1),
        "server_ms_per_turn": round(1000 * used[-1] / turns, 1),
        "writes_per_turn": round(changes / turns, 1),
    }


def delays(rate: float, given: argparse.Namespace, shards: int) -> list[float]:
    """Simulate turns that arrive at a rate; return how many seconds each waited in queues."""
    rng = random.Random(f"{rate} {shards}")
    free = {"shard": [0.0] * shards, "worker": [0.0] * given.workers[0]}
    # What a turn takes, one after the other: half of its changes, its model, the other half.
    change = [("shard", given.db_ms / 1000), ("worker", given.cpu_ms / 1000 / given.writes)]
    half = given.writes // 2
    plan = [*change * half, ("model", given.seconds), *change * (given.writes - half)]
    turns = round(rate * SIMULATED_SECONDS)
    begins, waits = 0.0, [0.0] * turns
    shard_of = [rng.randrange(shards) for _ in range(turns)]

    todo = list[tuple[float, int, int]]()
    for turn in range(turns):
        begins += rng.expovariate(rate)
        todo.append((begins, turn, 0))
    while todo:  # what comes next, of all turns
        now, turn, step = heapq.heappop(todo)
        if step == len(plan):
            continue
        kind, mean = plan[step]
        starts, takes = now, rng.expovariate(1 / mean)
        if kind in free:
            servers = free[kind]
            place = shard_of[turn] if kind == "shard" else servers.index(min(servers))
            starts = max(now, servers[place])
            servers[place] = starts + takes
        waits[turn] += starts - now
        heapq.heappush(todo, (starts + takes, turn, step + 1))
    return waits[turns // 10 :]


def greatest(given: argparse.Namespace, shards: int) -> dict[str, Any]:
    """Find the greatest rate at which turns are not late."""
    by_shards = shards / given.writes / (given.db_ms / 1000)
    by_workers = given.workers[0] / (given.cpu_ms / 1000)
    low, high = 0.0, min(by_shards, by_workers)
    while high - low > 0.01 * high:
        rate = (low + high) / 2
        if percentile(delays(rate, given, shards), 0.95) <= given.late_ms / 1000:
            low = rate
        else:
            high = rate
    return {
        "shards": shards,
        "workers": given.workers[0],
        "turns_per_s": round(low),
        "turns_a_day": round(low * 86_400),
        "shards_busy": round(low / by_shards, 2),
        "workers_busy": round(low / by_workers, 2),
    }


def main() -> None:
    """Read the arguments, measure or simulate, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("measured", "cluster"))
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--tasks", type=int, default=100, help="measured: tasks at once")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long the model takes")
    parser.add_argument("--shards", type=int, nargs="+", default=[16])
    parser.add_argument("--writes", type=int, default=6, help="cluster: changes a turn")
    parser.add_argument("--cpu-ms", type=float, default=22, help="cluster: CPU of workers a turn")
    parser.add_argument("--db-ms", type=float, default=5, help="cluster: time of one change")
    parser.add_argument("--late-ms", type=float, default=250, help="cluster: wait of a turn")
    given = parser.parse_args()
    if given.what == "cluster":
        for shards in given.shards:
            print(json.dumps(greatest(given, shards)), flush=True)
        return
    with http_server(given.seconds) as url:
        for count in given.workers:
            print(json.dumps(asyncio.run(measured_with(count, given.tasks, url))), flush=True)


if __name__ == "__main__":
    main()
