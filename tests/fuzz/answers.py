"""A fuzzer of a model's answers, over the whole path.

Fake server, real client, worker process, task on a real server: whatever a model answers, a person
can go on with its task or end it. `make fuzz ANSWERS=20000` runs it; a failure names its seed.
"""

import argparse
import asyncio
import json
import logging
import random
import re
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from holdfast import Agent, AgentRunner, ModelSettings, tool
from holdfast.engine.dev_server.ephemeral import ephemeral_server
from holdfast.errors import HoldfastError, StalledTaskError, StepFailedError
from holdfast.models import ChatCompletionsModel, ResponsesModel
from tests.fuzz.mutations import good, mutated
from tests.support.hostile import Bytes, HostileServer, hostile_server
from tests.support.rig import Rig, make_engine
from tests.support.runs import look

PER_TASK = 10
"""Mutated answers that one task gets before honest ones."""

SECONDS = 90.0
"""Longest time of one request of a person; more is a failure."""

_SEED = re.compile(r"seed-[\w.-]+")


@tool(needs_approval=True)
def pay(amount: int = 1) -> str:
    """Pay."""
    return f"paid {amount}"


@dataclass
class Report:
    """What a run of the fuzzer found.

    Attributes:
        answers: Mutated answers given.
        tasks: Tasks that got them.
        ends: How the tasks ended.
        errors: What people were told on the way, by type.
        failures: Tasks with which nobody could go on, with their seeds.
    """

    answers: int = 0
    tasks: int = 0
    ends: Counter[str] = field(default_factory=Counter[str])
    errors: Counter[str] = field(default_factory=Counter[str])
    failures: list[str] = field(default_factory=list[str])


class Fuzzer:
    """Gives mutated answers to tasks and does what a person does then."""

    def __init__(self, runner: AgentRunner, report: Report) -> None:
        """Use this runner for tasks of the agents `chat` and `responses`."""
        self._runner = runner
        self._given: Counter[str] = Counter()
        self._most: dict[str, int] = {}
        self.report = report

    def answer(self, path: str, body: dict[str, Any]) -> Bytes:
        """Answer a request: mutated answers first, then honest ones."""
        found = _SEED.search(json.dumps(body))
        seed = found[0] if found else "seed-none"
        api = "chat" if path.endswith("completions") else "responses"
        streamed = body.get("stream") is True
        number = self._given[seed]
        if number >= self._most.get(seed, 0):
            return good(api=api, streamed=streamed)
        self._given[seed] += 1
        self.report.answers += 1
        return mutated(f"{seed}/{number}", api=api, streamed=streamed)

    async def task(self, seed: str, answers: int) -> None:
        """Take one task through its mutated answers to an end."""
        self._most[seed] = answers
        self.report.tasks += 1
        try:
            async with asyncio.timeout(4 * SECONDS):
                self.report.ends[await self._to_its_end(seed)] += 1
        except Exception as error:  # noqa: BLE001  every kind of failure is reported
            self.report.failures.append(f"{seed}: {type(error).__name__}: {error!s:.300}")

    async def _to_its_end(self, seed: str) -> str:
        rng = random.Random(seed)
        agent, streams = rng.choice(["chat", "responses"]), rng.random() < 0.5
        runner = self._runner
        task = await runner.create_task(seed, agent=agent, streams=streams)
        restart: Any = None
        for _ in range(4 * PER_TASK):
            if rng.random() < 0.01:
                break
            try:
                async with asyncio.timeout(SECONDS):
                    output = await runner.run_step(task, restart=restart)
            except HoldfastError as error:
                self.report.errors[type(error).__name__] += 1
                restart = None
                if isinstance(error, StepFailedError | StalledTaskError):
                    restart = "step" if self._exhausted(seed) else rng.choice([None, "step"])
                continue
            restart = None
            if output.status == "waiting":
                await self._decide(rng, task)
            elif output.is_last and not self._exhausted(seed):
                await runner.undo_step(task, residue="keep", by="ann")
            elif output.is_last:
                await runner.finalize_response(task)
                return await self._checked(task, "finished")
        await runner.abandon(task, reason="enough")
        return await self._checked(task, "abandoned")

    def _exhausted(self, seed: str) -> bool:
        return self._given[seed] >= self._most[seed]

    async def _decide(self, rng: random.Random, task: Any) -> None:
        for approval in await self._runner.pending_approvals(task):
            try:
                if rng.random() < 0.5:
                    await self._runner.approve(approval, by="ann")
                else:
                    await self._runner.reject(approval, by="ann", reason="no")
            except HoldfastError as error:
                self.report.errors[type(error).__name__] += 1

    async def _checked(self, task: Any, status: str) -> str:
        """Check that a task is closed as it should be, and that all of it can be read."""
        async with asyncio.timeout(SECONDS):
            while (found := await self._runner.get_task(task)).status != status:
                if found.status in ("finished", "abandoned", "failed"):
                    raise AssertionError(f"it is {found.status}, not {status}: {found.error}")
                await asyncio.sleep(0.05)
        json.dumps([event.wire() for event in await self._runner.audit(task)]).encode()
        return status


async def fuzz(
    rig: Rig, answers: int, seed: int, *, at_once: int = 8, seconds: float = 86_400.0
) -> Report:
    """Give so many mutated answers to tasks of this rig, as long as there is time."""
    report, until = Report(), time.monotonic() + seconds
    fuzzer = Fuzzer(rig.runner("chat"), report)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(hostile_server(fuzzer.answer))
        await rig.serve(*(_agents(stack, server)))
        stack.push_async_callback(rig.stop)
        waiting = iter(range(10**9))

        async def work() -> None:
            while report.answers < answers and time.monotonic() < until:
                left = max(min(PER_TASK, answers - report.answers), 1)
                await fuzzer.task(f"seed-{seed}-{next(waiting)}", left)

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(work())
    return report


def _agents(stack: AsyncExitStack, server: HostileServer) -> list[Agent]:
    agents: list[Agent] = []
    for name, kind in (("chat", ChatCompletionsModel), ("responses", ResponsesModel)):
        model = kind("m", base_url=server.base_url, api_key="sk-of-the-tests-1")
        stack.push_async_callback(model.close)
        settings = ModelSettings(max_attempts=1)
        agents.append(Agent(name=name, model=model, tools=[look, pay], model_settings=settings))
    return agents


async def _main(answers: int, seed: int, seconds: float) -> int:
    logging.disable(logging.CRITICAL)  # what went wrong is told by the report
    begun = time.monotonic()
    with TemporaryDirectory() as directory:
        async with await ephemeral_server() as running:
            rig = Rig(await make_engine(running.info, Path(directory)))
            report = await fuzz(rig, answers, seed, seconds=seconds)
    seconds = time.monotonic() - begun
    print(f"{report.answers} mutated answers to {report.tasks} tasks in {seconds:.0f} s")  # noqa: T201
    print(f"ends: {dict(report.ends)}; errors told: {dict(report.errors)}")  # noqa: T201
    for failure in report.failures:
        print(f"FAILED {failure}")  # noqa: T201
    return 1 if report.failures else 0


def main() -> None:
    """Run the fuzzer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("answers", type=int, nargs="?", default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=86_400.0)
    given = parser.parse_args()
    sys.exit(asyncio.run(_main(given.answers, given.seed, given.seconds)))


if __name__ == "__main__":
    main()
