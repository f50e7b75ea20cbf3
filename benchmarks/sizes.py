"""Measure tasks of sizes that people do not have in mind: each scenario prints one JSON line.

    python -m benchmarks.sizes calls approvals items queued offline online
    python -m benchmarks.sizes offline --commands 20000

* calls: one answer makes `--calls` tool calls, all are run; `s` is the time to the task's answer.
* approvals: one answer makes `--approvals` calls that each need one; one person approves them all
  at once, `ask_s` to all being asked, `s` from the decision to the task's answer.
* items: `--answers` answers with `--item-mb` megabytes of provider items each, and a call.
* queued: ten steps of a task that has `--queued` further steps in its queue: `record_bytes` of the
  longest of their records, and `history_bytes`, the mean size of a step's events.
* offline: `--commands` pieces of feedback are sent while no worker process is up. `per_s` is the
  rate at which they are taken in once there is one; `heartbeat_gap_s` the longest time that a
  tool of another task on the same worker went without being able to give a sign of life, and
  `attempts` how often it was started (2: its heartbeats were lost).
* online: the same number is sent while a worker is up, in the middle of a tool; meanwhile other
  requests are made of the task and of another: `slowest` is the longest that one of them took.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker

from benchmarks.shared import numbers
from holdfast import Agent, AgentRunner, Message, ToolCall, tool
from holdfast.archive.archive import Archive
from holdfast.engine.connect import connect_embedded
from holdfast.engine.dev_server.ephemeral import ephemeral_server
from holdfast.models import ModelAnswer, ModelRequest
from holdfast.reading.reader import Reader
from holdfast.serving.activities import Activities
from holdfast.serving.names import check_archive
from holdfast.serving.plugin import HoldfastPlugin
from holdfast.serving.worker_process import serving_worker
from holdfast.values.base import canonical
from holdfast.values.checks.ids import queue_of
from holdfast.values.steps import TaskStep, TaskStepOutput
from holdfast.workers import AgentWorker, FunctionAgentWorker, FunctionCallingAgentWorker

SENDERS = 64
STEPS = 10
BEAT = 0.5

gate, begun = asyncio.Event(), asyncio.Event()
gaps: list[float] = []
attempts: list[int] = []


@tool(effect="read")
def look(k: int) -> int:
    """Look."""
    return k


@tool(needs_approval=True)
def pay(k: int) -> int:
    """Pay."""
    return k


@tool(effect="read")
async def wait() -> str:
    """Wait, and measure how late the event loop is."""
    attempts.append(1)
    begun.set()
    while not gate.is_set():
        before = time.perf_counter()
        await asyncio.sleep(BEAT)
        gaps.append(time.perf_counter() - before - BEAT)
    return "waited"


class Scripted:
    """Answers a request by the tool that its user names, so many times, then ends."""

    name = "scripted"

    def __init__(self, answers: int = 1, count: int = 1, item_bytes: int = 0) -> None:
        """Make so many answers of so many calls, with provider items of that size."""
        self._answers = answers
        self._count = count
        self._item = "x" * item_bytes

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Answer at once."""
        made = sum(message.role == "assistant" for message in request.messages)
        name = next(message.text for message in request.messages if message.role == "user")
        if made >= self._answers or name not in ("look", "pay", "wait"):
            return ModelAnswer(message=Message(role="assistant", content="done"))
        calls = tuple(
            ToolCall(
                id=f"c{made}_{k}", name=name, arguments="{}" if name == "wait" else f'{{"k": {k}}}'
            )
            for k in range(self._count)
        )
        item: dict[str, Any] = {
            "type": "reasoning",
            "id": f"rs_{made}",
            "summary": [],
            "x": self._item,
        }
        items: tuple[dict[str, Any], ...] = (item,) if self._item else ()
        return ModelAnswer(message=Message(role="assistant", calls=calls, items=items))


class Bench:
    """A server, a client, and a worker that can be started and stopped.

    Attributes:
        client: The client.
        runner: A runner for the agent.
    """

    def __init__(self, client: Client, archive: Archive, model: Any, worker: AgentWorker) -> None:
        """Use this client."""
        self.client = client
        self._agent = Agent(name="agent", model=model, tools=[look, pay, wait], worker=worker)
        self._archive = archive
        self._app = f"b{uuid.uuid4().hex[:6]}"
        self.runner = AgentRunner(agent="agent", app=self._app, client=client, archive=archive)

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[Worker]:
        """Run a worker."""
        activities = Activities([self._agent], self._archive)
        worker = serving_worker(
            self.client,
            activities,
            queue=queue_of(self._app),
            graceful_shutdown_timeout=timedelta(seconds=1),
        )
        async with worker:
            yield worker

    async def send(self, task_id: str, count: int) -> None:
        """Send so many pieces of feedback as signals, many at a time."""
        handle = self.client.get_workflow_handle(task_id)
        numbers = iter(range(count))

        async def sender() -> None:
            for k in numbers:
                body = {"text": f"feedback number {k}", "id": f"{task_id}{k}", "by": "bench"}
                await handle.signal("feedback", body)

        await asyncio.gather(*(sender() for _ in range(SENDERS)))

    async def records(self, task_id: str) -> list[int]:
        """Return the size of the record of each completed step."""
        entries = await Reader(self.client, self._archive).entries(task_id)
        return [len(canonical(entry.wire())) for entry in entries if entry.step is not None]

    async def history(self, task_id: str) -> int:
        """Return the size of the history of a task's present run."""
        history = await self.client.get_workflow_handle(task_id).fetch_history()
        return sum(event.ByteSize() for event in history.events)

    async def events(self, task_id: str) -> int:
        """Return the length of the history of a task's present run."""
        return (await self.client.get_workflow_handle(task_id).describe()).history_length


@asynccontextmanager
async def bench(model: Any, worker: AgentWorker | None = None) -> AsyncGenerator[Bench]:
    """Start a server."""
    with tempfile.TemporaryDirectory() as directory:
        archive = Archive(Path(directory))
        async with await ephemeral_server() as server:
            client = await connect_embedded(server.info, plugins=[HoldfastPlugin(archive=archive)])
            await check_archive(client, archive)
            yield Bench(client, archive, model, worker or FunctionCallingAgentWorker())


async def timed(work: Awaitable[Any]) -> float:
    """Return how long something took."""
    start = time.perf_counter()
    await work
    return round(time.perf_counter() - start, 2)


def _forget() -> None:
    gate.clear()
    begun.clear()
    gaps.clear()
    attempts.clear()


async def calls(given: argparse.Namespace) -> dict[str, Any]:
    """See the module."""
    async with bench(Scripted(count=given.calls)) as b, b.serving():
        task = await b.runner.create_task("look")
        took = await timed(b.runner.run_task(task))
        done = len((await b.runner.get_completed_steps(task))[0].sources)
    return {"calls": done, "s": took}


async def approvals(given: argparse.Namespace) -> dict[str, Any]:
    """See the module."""
    async with bench(Scripted(count=given.approvals)) as b, b.serving():
        task = await b.runner.create_task("pay")
        asked = await timed(b.runner.run_task(task))
        pending = await b.runner.pending_approvals(task)
        start = time.perf_counter()
        for approval in pending[:50]:
            await b.runner.approve(approval, by="bench")
        each = (time.perf_counter() - start) / 50
        await b.runner.approve(pending[50], by="bench", always=True)
        took = await timed(b.runner.run_task(task))
        done = len((await b.runner.get_completed_steps(task))[0].sources)
    return {
        "approvals": len(pending),
        "done": done,
        "ask_s": asked,
        "approve_ms": round(1000 * each, 1),
        "s": took,
    }


async def items(given: argparse.Namespace) -> dict[str, Any]:
    """See the module."""
    size = int(given.item_mb * 1024 * 1024)
    async with bench(Scripted(answers=given.answers, item_bytes=size)) as b, b.serving():
        task = await b.runner.create_task("look")
        took = await timed(b.runner.run_task(task))
        transcript = await timed(b.runner.transcript(task))
    megabytes = round(given.answers * given.item_mb, 1)
    return {"mb": megabytes, "s": took, "transcript_s": transcript}


def queue_steps(step: TaskStep) -> TaskStepOutput:
    """Queue as many steps as the input says; the queued ones queue nothing."""
    count = int(step.input or 0)
    following = [step.get_next_step() for _ in range(count)]
    return TaskStepOutput(output="", task_step=step, next_steps=tuple(following), is_last=False)


async def queued(given: argparse.Namespace) -> dict[str, Any]:
    """See the module."""
    rows: dict[str, Any] = {}
    worker = FunctionAgentWorker(queue_steps)
    async with bench(Scripted(), worker) as b, b.serving():
        for count in given.queued:
            task = await b.runner.create_task(str(count + STEPS))
            await b.runner.run_step(task)
            before = await b.history(task.task_id)
            for _ in range(STEPS):
                await b.runner.run_step(task)
            grown = await b.history(task.task_id) - before
            rows[str(count)] = {
                "record_bytes": max((await b.records(task.task_id))[1:]),
                "history_bytes": round(grown / STEPS),
            }
    return {"queued": rows}


async def until(condition: Callable[[], Awaitable[bool]]) -> float:
    """Wait for something; return how long it took."""
    start = time.perf_counter()
    while not await condition():  # noqa: ASYNC110  what it asks for is in another process
        await asyncio.sleep(0.05)
    return time.perf_counter() - start


async def offline(given: argparse.Namespace) -> dict[str, Any]:
    """See the module."""
    _forget()
    async with bench(Scripted()) as b:
        task = await b.runner.create_task("look")
        sending = await timed(b.send(task.task_id, given.commands))
        other = await b.runner.create_task("wait", step_mode="automatic")
        handle = b.client.get_workflow_handle(task.task_id)

        async def taken() -> bool:
            try:
                found = await handle.query("entries", {"skip": given.commands}, result_type=dict)
            except Exception:  # noqa: BLE001  the worker is busy: that is what is measured
                return False
            return bool(found.get("entries") or found.get("segment"))

        async with b.serving():
            took = await until(taken)
            answer = await timed(b.runner.run_task(task))
            gate.set()
            rest = await timed(b.runner.run_task(other))
        events = await b.events(task.task_id)
    return {
        "commands": given.commands,
        "send_s": sending,
        "per_s": round(given.commands / took),
        "run_task_s": answer,
        "other_s": rest,
        "heartbeat_gap_s": round(max(gaps, default=0), 2),
        "attempts": len(attempts),
        "events": events,
    }


async def online(given: argparse.Namespace) -> dict[str, Any]:
    """See the module."""
    _forget()
    slowest: dict[str, float] = {}

    async def note(name: str, work: Awaitable[Any]) -> None:
        slowest[name] = max(slowest.get(name, 0), await timed(work))

    async with bench(Scripted()) as b, b.serving():
        task = await b.runner.create_task("wait", step_mode="automatic")
        await begun.wait()
        sending = asyncio.create_task(timed(b.send(task.task_id, given.commands)))
        while not sending.done():
            other = await b.runner.create_task("hello")
            await note("run_task", b.runner.run_task(other))
            await note("finalize", b.runner.finalize_response(other))
            await note("get_task", b.runner.get_task(task))
            await note("audit", b.runner.audit(task))
            await asyncio.sleep(0.2)
        events = await b.events(task.task_id)
        gate.set()
        await note("run_task_after", b.runner.run_task(task))
        await note("finalize_after", b.runner.finalize_response(task))
        await note("audit_after", b.runner.audit(task))
    return {
        "commands": given.commands,
        "per_s": round(given.commands / await sending),
        "slowest": slowest,
        "heartbeat_gap_s": round(max(gaps, default=0), 2),
        "attempts": len(attempts),
        "events": events,
    }


SCENARIOS = {each.__name__: each for each in (calls, approvals, items, queued, offline, online)}


async def measure(given: argparse.Namespace) -> None:
    """Run the scenarios and print what was found."""
    for name in given.scenarios or SCENARIOS:
        found = await SCENARIOS[name](given)
        about = {"bench": f"sizes.{name}", "cpus": os.cpu_count()}
        print(json.dumps({**about, **found}, separators=(",", ":")), flush=True)


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("scenarios", nargs="*", help=", ".join(SCENARIOS))
    parser.add_argument("--calls", type=int, default=1800, help="calls of one answer")
    parser.add_argument("--approvals", type=int, default=3000, help="calls that need an approval")
    parser.add_argument("--answers", type=int, default=15, help="answers with provider items")
    parser.add_argument("--item-mb", type=float, default=2.5, help="megabytes of items of each")
    parser.add_argument(
        "--queued", type=numbers, default=[0, 50, 400], help="steps in the queue, comma-separated"
    )
    parser.add_argument("--commands", type=int, default=20_000, help="pieces of feedback")
    given = parser.parse_args()
    unknown = set(given.scenarios) - set(SCENARIOS)
    if unknown:
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
    asyncio.run(measure(given))


if __name__ == "__main__":
    main()
