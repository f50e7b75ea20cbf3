"""A refund that must not happen twice: neither blindly repeated nor forgotten, whatever crashes.

The tool declares nothing: it is irreversible, not idempotent and has no probe. So a call that was
cut off has to come to a person, who here looks into the books and says what is true.
"""

import asyncio
import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, AgentRunner, Task, ToolContext, tool
from holdfast.testing import FakeOpenAI
from holdfast.values.settings import ModelSettings
from tests.crash.lab import Lab, make_lab
from tests.crash.programs import AGENT, Job, note
from tests.support.scale import times

LONGEST_SECONDS = 0.03


def make_agent(job: Job) -> Agent:
    """Make an agent with one tool, which is neither idempotent nor reversible."""
    chance = random.SystemRandom()

    @tool
    async def refund(ctx: ToolContext, thing: str) -> str:
        """Refund an order."""
        note(job.home, "start", thing=thing, key=ctx.idempotency_key)
        await asyncio.sleep(chance.uniform(0, LONGEST_SECONDS))
        note(job.home, "refund", thing=thing, key=ctx.idempotency_key)
        await asyncio.sleep(chance.uniform(0, LONGEST_SECONDS))
        note(job.home, "end", thing=thing, key=ctx.idempotency_key)
        return f"refunded({thing})"

    return Agent(
        name=AGENT,
        model="fake-model",
        tools=[refund],
        model_settings=ModelSettings(max_attempts=10),
    )


SEED = int(os.environ.get("HOLDFAST_CRASH_SEED", "0")) or random.SystemRandom().randrange(10**6)
KILLED = times(2, 20)
TASKS_PER_KILL = 5


async def settle(runner: AgentRunner, task: Task | str, is_refunded: Any) -> None:
    """Run a task to its end, deciding on unknown refunds by the books."""
    output = await runner.run_task(task)
    while output.status == "waiting":
        for approval in await runner.pending_approvals(task):
            assert approval.kind == "unknown"
            order = json.loads(approval.arguments)["thing"]
            if is_refunded(order):
                await runner.respond(approval, "bo", f"refunded({order})")
            else:
                await runner.approve(approval, "bo")
        output = await runner.run_task(task)


async def kill_at_random(lab: Lab, worker: Any, chance: random.Random) -> None:
    """Kill a worker, unless it does so itself: at once after some more events, or when idle."""

    def seen() -> int:
        return sum(len(lab.events(kind)) for kind in ("start", "refund", "end"))

    limit = seen() + chance.randint(1, 3 * TASKS_PER_KILL)
    loop = asyncio.get_running_loop()
    latest = loop.time() + 4
    while worker.exitcode is None and seen() < limit and loop.time() < latest:
        await asyncio.sleep(0.002)
    if worker.exitcode is None:
        await lab.kill(worker)


@pytest.mark.timeout(600)
async def test_killed_workers_double_no_refund_and_lose_none(
    shared_job: Job, tmp_path: Path, api: FakeOpenAI
) -> None:
    chance = random.Random(SEED)
    tasks: dict[str, Task] = {}
    async with make_lab(shared_job, tmp_path / "lab", api) as lab:
        for k in range(KILLED):
            for j in range(TASKS_PER_KILL):
                order = f"order{k}.{j}"
                tasks[order] = await lab.create(f"refund:{order}", step_mode="automatic")
            itself = chance.random() < 0.5
            die = (("any", chance.randint(5, 8 * TASKS_PER_KILL)),) if itself else ()
            worker = lab.start(make=make_agent, die=die)
            await kill_at_random(lab, worker, chance)
        cut = {e["thing"] for e in lab.events("start")} - {e["thing"] for e in lab.events("end")}
        cut_after = cut & {e["thing"] for e in lab.events("refund")}
        lab.start(make=make_agent)
        shown: list[str] = []

        def is_refunded(order: str) -> bool:
            shown.append(order)
            return bool(lab.events("refund", thing=order))

        async with asyncio.timeout(500):
            await asyncio.gather(
                *(settle(lab.runner, task, is_refunded) for task in tasks.values())
            )
        refunded = Counter(e["thing"] for e in lab.events("refund"))
        doubled = [order for order in tasks if refunded[order] > 1]
        lost = [order for order in tasks if refunded[order] < 1]
        print(  # noqa: T201  the figures, with -s
            f"\nrefunds, workers killed (seed {SEED}): {KILLED} kills, {len(tasks)} refunds,"
            f" {len(cut)} cut off inside the tool, {len(cut_after)} of them after the refund;"
            f" unknown shown to a person: {len(shown)};"
            f" doubled: {len(doubled)}; lost: {len(lost)}"
        )
        assert (doubled, lost) == ([], []), lab.story()
        assert cut <= set(shown), lab.story()
        assert len(set(shown)) == len(shown)
        keys = {(e["thing"], e["key"]) for e in lab.events("start")}
        assert len(keys) == len({thing for thing, _ in keys})
        for order, task in tasks.items():
            output = await lab.runner.get_task_output(task)
            assert output.output == f"final refunded({order})"
