"""Measure Holdfast, and its peers where they are installed, at the work of benchmarks/shared.py.

    python -m benchmarks.compare --rounds 5
    python -m benchmarks.compare --quick

In each round the stacks take turns, each in a process of its own. Those on Temporal get a server of
their own, with the settings of Holdfast's embedded server. Every database is an SQLite file with
the same settings; many tasks at once are measured in memory, too. Writes the rows to
.build/bench/<stack>.jsonl, then prints the medians, with ratios to Holdfast's. `make bench-peers`
installs the peers.

A task that took more than two minutes, or that its server ended, is not repeated in later rounds. A
task that takes longer than `--limit` is given up.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.report import FRESH, ROOT, shown
from benchmarks.results import ALONE, OURS, PEERS, Peer, Place, collected
from benchmarks.shared import numbers
from holdfast.engine.dev_server.ephemeral import ephemeral_server
from holdfast.engine.dev_server.leases import leased_server

LONG_SECONDS = 120


class Plan(NamedTuple):
    """The sizes that are measured; see the arguments of the scripts in benchmarks/shared.py."""

    rounds: int
    free: tuple[int, ...] = (100,)
    http: tuple[int, ...] = (10, 100, 300, 1000)
    loop: tuple[int, ...] = (100, 1000)
    long: tuple[int, ...] = (1000, 10_000)
    tasks: int = 50
    task_turns: int = 5
    limit: float = 1800


QUICK = Plan(rounds=1, free=(10,), http=(10,), loop=(10,), long=(20,), tasks=10, task_turns=2)


_HERE = {OURS.name: "benchmarks.ours", ALONE.name: "benchmarks.temporal_alone"}
"""Scripts of the stacks that run in this environment."""


def is_installed(peer: Peer) -> bool:
    """Return whether `make bench-peers` has installed a stack."""
    return peer.name in _HERE or (_environment(peer) / ".installed").exists()


def _environment(peer: Peer) -> Path:
    return ROOT / ".build" / "peers" / peer.name


def command_of(peer: Peer) -> list[str]:
    if peer.name in _HERE:
        return [sys.executable, "-m", _HERE[peer.name]]
    return [str(_environment(peer) / "bin" / "python"), "-m", f"benchmarks.peers.{peer.name}"]


@contextmanager
def http_server(seconds: float = 0) -> Generator[str]:
    """Run benchmarks.http_server, which answers after so many seconds; yield its address."""
    command = [sys.executable, "-m", "benchmarks.http_server", str(seconds)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        try:
            yield process.stdout.readline().strip()  # type: ignore[union-attr]
        finally:
            process.stdin.close()  # type: ignore[union-attr]


@asynccontextmanager
async def _storage(peer: Peer, place: Place) -> AsyncGenerator[list[str]]:
    """Make what a stack stores in; yield the arguments that name it."""
    with tempfile.TemporaryDirectory() as name:
        if not peer.is_on_temporal:
            yield ["--directory", name] if place == "file" else []
        elif place == "file":
            async with leased_server(Path(name)) as server:
                yield ["--address", server.address]
        else:
            async with await ephemeral_server() as server:
                yield ["--address", server.info.address]


def _listed(name: str, sizes: list[int]) -> list[str]:
    return [name, ",".join(map(str, sizes))] if sizes else []


class Run:
    """One run of the benchmark."""

    def __init__(self, plan: Plan, url: str) -> None:
        self._plan = plan
        self._url = url
        self._done: set[tuple[str, str, int]] = set()

    async def measure(self, peers: list[Peer]) -> None:
        """Measure everything."""
        for number in range(1, self._plan.rounds + 1):
            for peer in peers:
                await self._measure(peer, "file", number)
                if peer.has_memory:
                    await self._measure(peer, "memory", number)

    def _arguments(self, peer: Peer, place: Place) -> list[str]:
        """Return the arguments that say what to measure."""
        plan = self._plan
        many = ["--tasks", str(plan.tasks), "--task-turns", str(plan.task_turns)]
        if place == "memory":
            return many
        own: list[str] = []
        if peer is OURS:
            own = [*_listed("--loop", list(plan.loop)), *_listed("--long", list(plan.long))]
        sizes = [*self._sizes(peer, "free"), *self._sizes(peer, "http"), *own]
        return [*many, *sizes, "--limit", str(plan.limit)]

    def _sizes(self, peer: Peer, scenario: str) -> list[str]:
        sizes: tuple[int, ...] = getattr(self._plan, scenario)
        left = [size for size in sizes if (peer.name, scenario, size) not in self._done]
        return _listed(f"--{scenario}", left)

    async def _measure(self, peer: Peer, place: Place, number: int) -> None:
        """Run a stack's script, and keep its rows.

        Raises:
            RuntimeError: The script has failed.
        """
        async with _storage(peer, place) as storage:
            process = await asyncio.create_subprocess_exec(
                *command_of(peer),
                *self._arguments(peer, place),
                *storage,
                "--url",
                self._url,
                stdout=subprocess.PIPE,
                cwd=ROOT,
                env={**os.environ, "BENCH_URL": self._url, "OPENAI_AGENTS_DISABLE_TRACING": "1"},
            )
            assert process.stdout is not None
            async for line in process.stdout:
                if line.startswith(b"{"):  # a library may print, too
                    about = {"stack": peer.name, "round": number, "place": place}
                    self._keep(peer, {**about, **json.loads(line)})
            if await process.wait():
                msg = f"the script of {peer.name} has failed; its error stands above"
                raise RuntimeError(msg)

    def _keep(self, peer: Peer, row: dict[str, Any]) -> None:
        line = json.dumps(row, separators=(",", ":"))
        print(line, file=sys.stderr, flush=True)
        with (FRESH / f"{peer.name}.jsonl").open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        scenario, turns = row["scenario"], row.get("turns", 0)
        if "ended" in row:
            longer = [size for size in getattr(self._plan, scenario) if size >= turns]
            self._done |= {(peer.name, scenario, size) for size in longer}
        elif row.get("seconds", 0) > LONG_SECONDS:
            self._done.add((peer.name, scenario, turns))


def begin(plan: Plan) -> None:
    """Forget the last run, and note what this one is."""
    FRESH.mkdir(parents=True, exist_ok=True)
    for name in ("paced", *(peer.name for peer in (OURS, *PEERS))):
        (FRESH / f"{name}.jsonl").unlink(missing_ok=True)
    about = {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "rounds": plan.rounds,
        "tasks": plan.tasks,
    }
    (FRESH / "run.json").write_text(json.dumps(about), "utf-8")


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="rounds; medians are printed")
    parser.add_argument("--quick", action="store_true", help="one round of small sizes")
    parser.add_argument("--http", type=numbers, help="turns of the scenario http, by commas")
    parser.add_argument("--limit", type=float, default=1800, help="seconds that a task may take")
    given = parser.parse_args()
    plan = QUICK if given.quick else Plan(rounds=given.rounds, limit=given.limit)
    if given.http:
        plan = plan._replace(http=tuple(given.http), loop=(max(given.http),))
    peers = [each for each in (OURS, *PEERS) if is_installed(each)]
    begin(plan)
    with http_server() as url:
        asyncio.run(Run(plan, url).measure(peers))
    print(shown(collected(FRESH)))


if __name__ == "__main__":
    main()
