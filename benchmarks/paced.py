"""Measure many tasks at once whose model takes a second, as models do.

    python -m benchmarks.paced --tasks 100 --turns 5 --seconds 1 --rounds 2

Each stack on Temporal takes its turn in each round, at the work `paced` of benchmarks/shared.py,
with client and worker in one process, and a dev server of its own that has the settings of
Holdfast's embedded server. Prints a JSON line for each:
* cpu_ms_per_turn: of client and worker, all threads.
* server_ms_per_turn: CPU of the server from before the stack's process to after its end.
* actions: billable actions of Temporal a task, by kind, as the server itself counts them.
* seconds: until the last task has ended. No stack can take less than `least`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple
from urllib.request import urlopen

from temporalio.client import Client

from benchmarks.compare import command_of, http_server, is_installed
from benchmarks.processes import processor_seconds
from benchmarks.report import ROOT
from benchmarks.results import ALONE, OURS, PEERS, Peer
from holdfast.engine.dev_server.command import server_command, server_environment
from holdfast.engine.dev_server.process import free_port

_ACTION = re.compile(
    r'^action\{(?=.*namespace="default").*action_type="(\w+)".*\} (\S+)', re.MULTILINE
)


class Server(NamedTuple):
    """A dev server of this benchmark."""

    address: str
    metrics: str
    pid: int

    def page(self) -> str:
        """Read its metrics."""
        with urlopen(self.metrics) as page:  # noqa: S310  a server of this process
            return str(page.read(), "utf-8")

    def actions(self) -> Counter[str]:
        """Count the billable actions so far, by kind."""
        counted = Counter[str]()
        for kind, number in _ACTION.findall(self.page()):
            counted[kind.removeprefix("command_").removeprefix("grpc_")] += int(float(number))
        return counted


@asynccontextmanager
async def server(directory: str) -> AsyncGenerator[Server]:
    """Run a server with a file in this directory."""
    port, metrics = free_port(), free_port()
    command = [*server_command(port, database="bench.db"), "--metrics-port", str(metrics)]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=directory, env=server_environment(), stdout=subprocess.DEVNULL
    )
    try:
        made = Server(f"127.0.0.1:{port}", f"http://127.0.0.1:{metrics}/metrics", process.pid)
        await _until_up(made)
        yield made
    finally:
        process.terminate()
        await process.wait()


async def _until_up(made: Server) -> None:
    async with asyncio.timeout(60):
        while True:
            with suppress(RuntimeError, OSError):
                made.actions()
                await Client.connect(made.address)
                return
            await asyncio.sleep(0.1)


async def measured(peer: Peer, url: str, given: argparse.Namespace) -> dict[str, Any]:
    """Run a stack's script once, and return its row.

    Raises:
        RuntimeError: The script has failed.
    """
    load, _, _ = os.getloadavg()
    with tempfile.TemporaryDirectory() as directory:
        async with server(directory) as made:
            before = await processor_seconds(made.pid)
            process = await asyncio.create_subprocess_exec(
                *command_of(peer),
                *("--paced", str(given.tasks), "--task-turns", str(given.turns), "--url", url),
                *("--address", made.address, "--directory", directory),
                stdout=subprocess.PIPE,
                cwd=ROOT,
                env={**os.environ, "BENCH_URL": url, "OPENAI_AGENTS_DISABLE_TRACING": "1"},
            )
            out, _ = await process.communicate()
            if process.returncode:
                msg = f"the script of {peer.name} has failed; its error stands above"
                raise RuntimeError(msg)
            seconds = await processor_seconds(made.pid) - before
            await asyncio.sleep(2)  # the server counts once a second
            actions = made.actions()
    row: dict[str, Any] = json.loads(out.splitlines()[-1])
    return {
        "stack": peer.name,
        "load": round(load, 1),
        **row,
        "least": given.seconds * (given.turns + 1),
        "server_ms_per_turn": round(1000 * seconds / given.tasks / given.turns, 1),
        "actions_per_turn": round(actions.total() / given.tasks / given.turns, 2),
        "actions": {kind: round(n / given.tasks, 2) for kind, n in actions.items() if n},
    }


async def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=100, help="tasks at once")
    parser.add_argument("--turns", type=int, default=5, help="turns of each")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long the model takes")
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    stacks = [OURS, ALONE, *(each for each in PEERS if each.is_on_temporal)]
    with http_server(given.seconds) as url:
        for _ in range(given.rounds):
            for peer in filter(is_installed, stacks):
                print(json.dumps(await measured(peer, url, given)), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
