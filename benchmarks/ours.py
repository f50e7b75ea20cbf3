"""Holdfast at the work of benchmarks/shared.py, on the embedded server or that of an address.

Two more scenarios are only ours. One, as its tasks are longer than peers can take:
* long: as free.
The other, as it needs to know when the model was called last:
* loop: as http, while a callback is due every millisecond. It says how late that callback was at
  most, and in 99 of 100 cases, up to the end of the last model call; and, by itself, how late it
  was at most during a model call, and while the task's result was read. Client and worker share
  this process and its loop.
"""

from __future__ import annotations

import asyncio
import time
from argparse import Namespace
from bisect import bisect
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.worker import Replayer, Worker

from benchmarks.histories import histories, replay_ms, size_of
from benchmarks.shared import (
    ANSWER,
    API_KEY,
    MODEL,
    Source,
    Stack,
    main,
    measured,
    percentile,
    prompt,
)
from benchmarks.work import BenchModel, bench_agent
from holdfast import Agent, AgentRunner, HoldfastPlugin, Runner
from holdfast.archive import Archive
from holdfast.client.agent_runner.base import new_id
from holdfast.engine.converter import holdfast_converter
from holdfast.models import ModelAnswer, ModelRequest
from holdfast.models.openai.responses import ResponsesModel
from holdfast.serving.worker_process import leave_imports
from holdfast.workflows.agent_task import AgentTask

QUEUE = "bench"
DUE_SECONDS = 0.001


class TimedModel(ResponsesModel):
    """The model over HTTP; it notes when its calls were made.

    Attributes:
        made: Begin and end of each call, oldest first.
    """

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.made: list[tuple[float, float]] = []

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        begin = time.perf_counter()
        answer = await super().respond(request)
        self.made.append((begin, time.perf_counter()))
        return answer


class LoopWatch:
    """Notes how late a callback is that is due every millisecond."""

    def __init__(self) -> None:
        self._lags: list[tuple[float, float]] = []

    async def watch(self) -> None:
        """Watch until cancelled."""
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(DUE_SECONDS)
            now = time.perf_counter()
            self._lags.append((now, now - begun - DUE_SECONDS))

    def between(self, start: float, end: float) -> list[float]:
        """Return the delays that ended in this time, in milliseconds."""
        return [1000 * lag for now, lag in self._lags if start <= now < end]

    def within(self, calls: list[tuple[float, float]]) -> list[float]:
        """Return the delays that began and ended in one of these times, in milliseconds."""
        ends = [end for _, end in calls]
        found: list[float] = []
        for now, lag in self._lags:
            k = bisect(ends, now)
            if k < len(calls) and calls[k][0] <= now - lag:
                found.append(1000 * lag)
        return found


def bytes_in(directory: Path) -> int:
    """Return the size of all files below a directory."""
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


def replayer() -> Replayer:
    return Replayer(workflows=[AgentTask], data_converter=holdfast_converter())


class Holdfast(Stack):
    packages = ("holdfast-agents", "temporalio", "openai")

    def __init__(
        self,
        runner: AgentRunner,
        agents: dict[Source, Agent],
        model: TimedModel,
        archive: Path | None,
    ) -> None:
        self._runner = runner
        self._agents = agents
        self._model = model
        self._archive = archive
        self._before = 0

    async def prepare(self) -> None:
        self._before = bytes_in(self._archive) if self._archive else 0

    async def run(self, source: Source, turns: int, task_id: str) -> None:
        found = await Runner.run(
            self._agents[source],
            prompt(turns),
            max_turns=None,
            runner=self._runner,
            task_id=task_id,
        )
        assert found.final_output == ANSWER

    async def recorded(self, task_id: str, *, replays: bool) -> dict[str, Any]:
        runs = await histories(self._runner.client, task_id)
        found = size_of(runs)
        if self._archive:
            found["archive_bytes"] = bytes_in(self._archive) - self._before
        if replays:
            found["replay_ms"] = await replay_ms(runs, replayer)
        return found

    async def more(self, given: Namespace) -> list[dict[str, Any]]:
        loop = [await self._loop(turns) for turns in given.loop]
        long = [await measured(self, "free", turns, given) for turns in given.long]
        return [*loop, *({**row, "scenario": "long"} for row in long)]

    async def _loop(self, turns: int) -> dict[str, Any]:
        """Run a task beside a callback that is due every millisecond."""
        leave_imports()  # as a worker process does
        watch = LoopWatch()
        watching = asyncio.create_task(watch.watch())
        start = time.perf_counter()
        await self.run("http", turns, new_id("bench"))
        await asyncio.sleep(DUE_SECONDS)  # lets the callback note what the end held up
        watching.cancel()
        last_end = self._model.made[-1][1]
        work = watch.between(start, last_end)
        reading = watch.between(last_end, time.perf_counter())
        calls = watch.within([each for each in self._model.made if each[0] >= start])
        return {
            "scenario": "loop",
            "turns": turns,
            "lag_max_ms": round(max(work), 1),
            "lag_p99_ms": round(percentile(work, 0.99), 1),
            "call_lag_max_ms": round(max(calls), 1),
            "result_lag_max_ms": round(max(reading), 1),
        }


@asynccontextmanager
async def opened(given: Namespace) -> AsyncGenerator[Stack]:
    model = TimedModel(MODEL, base_url=given.url or "http://127.0.0.1", api_key=API_KEY)
    free, http = bench_agent("free", BenchModel()), bench_agent("http", model)
    archive = given.directory / "archive" if given.directory else None
    if given.address:
        kept = Archive(given.directory)
        plugin = HoldfastPlugin(archive=kept, agents=[free, http])
        client = await Client.connect(given.address, plugins=[plugin])
        async with (
            Worker(client, task_queue=QUEUE, workflows=[]),
            AgentRunner(client=client, archive=kept, agent="http", queue=QUEUE) as runner,
        ):
            yield Holdfast(runner, {"free": free, "http": http}, model, None)
        return
    async with AgentRunner.local(free, http, data_dir=given.directory) as runner:
        yield Holdfast(runner, {"free": free, "http": http}, model, archive)


if __name__ == "__main__":
    main(__doc__, opened)
