"""The work that every stack is measured at, and the measuring itself.

Needs only the standard library: each peer runs it in an environment of its own, without Holdfast.

The work is a task of N turns. A turn is one model call, whose answer is a tool call with 200 bytes
of arguments, and that tool call, which returns 1 KiB. One more model call answers with a text of
200 bytes. Times and CPU are divided by N. Four scenarios:
* free: the model is a function in the worker process.
* http: the model is called with the stack's own client over HTTP, and answered by
  benchmarks/http_server.py.
* many: so many tasks of few turns, started at once, with the free model.
* paced: the same with the model over HTTP, which takes its time; see benchmarks/paced.py.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import platform
import re
import sys
import time
import traceback
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

MODEL_BYTES = 200
TOOL_BYTES = 1024
INSTRUCTIONS = "Call lookup until you know enough, then answer."
MODEL = "gpt-5-mini"
API_KEY = "key-of-the-benchmark"
TOOL = "lookup"
PRAGMAS = {"journal_mode": "wal", "synchronous": "normal"}
"""Settings of SQLite: those of Holdfast's embedded server, for every stack that has a database."""

Source = Literal["free", "http"]
"""Where the answers of the model come from."""


def blob(size: int, seed: int) -> str:
    """Return `size` bytes of text that differ from seed to seed."""
    unit = f"{seed:06d} the quick brown fox jumps over the lazy dog "
    return (unit * (size // len(unit) + 1))[:size]


ANSWER = blob(MODEL_BYTES, 999)
"""The text that ends a task."""


def prompt(turns: int) -> str:
    """Return the input of a task of that many turns."""
    return f"turns={turns}"


def turns_in(text: str) -> int:
    """Return how many turns an input asks for."""
    found = re.search(r"turns=(\d+)", text)
    return int(found[1]) if found else 0


def arguments(done: int) -> dict[str, str]:
    """Return the arguments of the tool call that follows `done` others."""
    return {"query": blob(MODEL_BYTES - 13, done)}


def id_of(done: int) -> str:
    """Return the id of that tool call."""
    return f"call_{done}"


def done_with(newest: str | None) -> int:
    """Return how many tool calls are done, from the id of the newest that is; None for none.

    A model that counts them would take a time that grows with the task, and is not a stack's own.
    """
    return 0 if newest is None else int(newest.removeprefix("call_")) + 1


def looked_up(query: str) -> str:
    """Return what the tool returns."""
    return blob(TOOL_BYTES, int(query[:6]))


def percentile(values: list[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


class Meter:
    """Wall time and CPU time of this process (all of its threads) since it was made."""

    def __init__(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    @property
    def seconds(self) -> float:
        """Wall time so far."""
        return time.perf_counter() - self._wall

    def per_turn(self, turns: int) -> dict[str, float]:
        """Return both times so far in milliseconds a turn."""
        cpu, wall = time.process_time() - self._cpu, self.seconds
        return {
            "wall_ms_per_turn": round(1000 * wall / turns, 2),
            "cpu_ms_per_turn": round(1000 * cpu / turns, 2),
        }


class EndedError(Exception):
    """The stack's server has ended a task before its last turn."""


class Stack(ABC):
    """What runs the work.

    Attributes:
        packages: Distributions whose versions are reported.
    """

    packages: tuple[str, ...] = ()

    @abstractmethod
    async def run(self, source: Source, turns: int, task_id: str) -> None:
        """Run one task to its end.

        Raises:
            EndedError: The server has ended it.
        """

    async def prepare(self) -> None:  # noqa: B027  most have nothing to note
        """Note what is recorded before the task that `recorded` speaks of."""

    async def recorded(self, task_id: str, *, replays: bool) -> dict[str, Any]:
        """Return what is recorded of a task that has ended.

        Args:
            task_id: The task.
            replays: Whether to time a replay of its history, where there is such a thing.
        """
        del task_id, replays
        return {}

    async def reached(self, task_id: str) -> int:
        """Return how many turns of a task are recorded that did not come to its end."""
        del task_id
        return 0

    async def more(self, given: argparse.Namespace) -> list[dict[str, Any]]:
        """Measure what only this stack is asked for; nothing by default."""
        del given
        return []


def numbers(text: str) -> list[int]:
    """Read "10,100" as a list of numbers."""
    return [int(each) for each in text.split(",") if each]


def _parser(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--free", type=numbers, default=[], help="turns of the scenario free")
    parser.add_argument("--http", type=numbers, default=[], help="turns of the scenario http")
    parser.add_argument("--tasks", type=int, default=0, help="tasks of the scenario many")
    parser.add_argument("--task-turns", type=int, default=5, help="turns of each of those tasks")
    parser.add_argument("--paced", type=int, default=0, help="tasks of the scenario paced")
    parser.add_argument("--loop", type=numbers, default=[], help="turns of our scenario loop")
    parser.add_argument("--long", type=numbers, default=[], help="turns of our scenario long")
    parser.add_argument("--limit", type=float, default=1800, help="seconds that a task may take")
    parser.add_argument("--url", default="", help="address of benchmarks.http_server")
    parser.add_argument("--address", default="", help="host:port of a Temporal server")
    parser.add_argument("--directory", type=Path, help="where data is stored; memory without it")
    return parser


async def measured(
    stack: Stack, source: Source, turns: int, given: argparse.Namespace
) -> dict[str, Any]:
    """Run one task, and return its row.

    Args:
        stack: What runs it.
        source: Where the answers of the model come from, which names the row's scenario.
        turns: How many turns it has.
        given: The script's arguments.
    """
    row: dict[str, Any] = {"scenario": source, "turns": turns}
    await stack.prepare()
    task_id, meter = uuid.uuid4().hex, Meter()
    try:
        async with asyncio.timeout(given.limit):
            await stack.run(source, turns, task_id)
    except (EndedError, TimeoutError) as error:
        how = "by the server" if isinstance(error, EndedError) else "at the time limit"
        reached = await stack.reached(task_id)
        return {
            **row,
            "ended": how,
            "reached": reached,
            "seconds": round(meter.seconds, 3),
            "why": f"{error}",
        }
    times = {**meter.per_turn(turns), "seconds": round(meter.seconds, 3)}
    found = await stack.recorded(task_id, replays=source == "free")
    if "events" in found:
        found["events_per_turn"] = round(found["events"] / turns, 1)
    return {**row, **times, **found}


async def _many(
    stack: Stack, source: Source, tasks: int, given: argparse.Namespace
) -> dict[str, Any]:
    """Run many tasks at once, and return their row."""
    turns = tasks * given.task_turns
    meter = Meter()
    ids = [uuid.uuid4().hex for _ in range(tasks)]
    await asyncio.gather(*(stack.run(source, given.task_turns, each) for each in ids))
    seconds = meter.seconds
    return {
        "scenario": "many" if source == "free" else "paced",
        "turns": given.task_turns,
        "tasks": tasks,
        "cpu_ms_per_turn": meter.per_turn(turns)["cpu_ms_per_turn"],
        "turns_per_s": round(turns / seconds, 1),
        "seconds": round(seconds, 3),
    }


def _emit(row: dict[str, Any]) -> None:
    print(json.dumps(row, separators=(",", ":")), flush=True)


async def _measure(stack: Stack, given: argparse.Namespace) -> None:
    """Measure everything that was asked for, after a short task that is not counted."""
    versions = {name: metadata.version(name) for name in stack.packages}
    _emit({"scenario": "about", "versions": versions, "python": platform.python_version()})
    if given.free or given.tasks:
        await stack.run("free", 2, uuid.uuid4().hex)
    for turns in given.free:
        _emit(await measured(stack, "free", turns, given))
    if given.tasks:
        _emit(await _many(stack, "free", given.tasks, given))
    if given.paced:
        _emit(await _many(stack, "http", given.paced, given))
    if given.http:
        await stack.run("http", 2, uuid.uuid4().hex)
    for turns in given.http:
        row = await measured(stack, "http", turns, given)
        _emit(row)
        if "ended" in row:
            break  # longer tasks would be ended, too
    for row in await stack.more(given):
        _emit(row)


def main(
    description: str | None,
    opened: Callable[[argparse.Namespace], AbstractAsyncContextManager[Stack]],
) -> None:
    """Read the arguments of a stack's script, measure, and print a JSON line for each measurement.

    Args:
        description: The script's docstring.
        opened: Makes the stack ready, and puts it away.
    """

    async def work(given: argparse.Namespace) -> None:
        async with opened(given) as stack:
            await _measure(stack, given)

    _leave_after(work(_parser((description or "").splitlines()[0]).parse_args()))


def _leave_after(work: Coroutine[Any, Any, None]) -> None:
    """Run this in a loop, then end the process at once.

    Temporal's SDK sometimes aborts a process that ends in the ordinary way right after its worker.
    """
    code = 0
    try:
        asyncio.run(work)
    except Exception:  # noqa: BLE001  printed, and the exit code says it
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
