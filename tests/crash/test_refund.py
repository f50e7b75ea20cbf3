"""A refund that must not happen twice: neither blindly repeated nor forgotten, whatever crashes.

The tool declares nothing: it is irreversible, not idempotent and has no probe. So a call that was
cut off has to come to a person, who here looks into the books and says what is true.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import activity
from temporalio.worker import (
    ActivityInboundInterceptor,
    ActivityOutboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
)

from holdfast import AgentRunner, Task, TaskStep, TaskStepOutput, tool
from holdfast.messages import ToolCall
from holdfast.testing import FakeOpenAI
from holdfast.workers import StepContext
from tests.crash import refunds
from tests.crash.lab import Lab, make_lab
from tests.crash.programs import Job
from tests.support.rig import MakeAgent, Rig
from tests.support.scale import times
from tests.support.workers import Doing, ends

SEED = int(os.environ.get("HOLDFAST_CRASH_SEED", "0")) or random.SystemRandom().randrange(10**6)
SILENCED = times(24, 200)
AT_ONCE = 100
KILLED = times(4, 20)
TASKS_PER_KILL = 5

PLACES = ("begin:step", "end:step", "begin:tool", "before", "after", "end:tool")
"""Where a task's worker may fall silent; "before" and "after" are inside the tool, as seen from
the refund. Twice as often inside, where it hurts."""
WEIGHTS = (1, 1, 2, 4, 4, 2)


@dataclass
class Books:
    """The world: what was refunded, and where each order's worker is to fall silent.

    Attributes:
        refunded: How often each order was refunded.
        started: How often the tool was started for it.
        silent_at: Place at which the worker of an order's task dies; taken out once it has.
        died_at: The same, once it has.
    """

    refunded: Counter[str] = field(default_factory=Counter[str])
    started: Counter[str] = field(default_factory=Counter[str])
    silent_at: dict[str, str] = field(default_factory=dict[str, str])
    died_at: dict[str, str] = field(default_factory=dict[str, str])

    async def pass_by(self, place: str, order: str) -> None:
        """Fall silent for ever if this is the place."""
        if self.silent_at.get(order) == place:
            self.died_at[order] = self.silent_at.pop(order)
            silent.add(activity.info().task_token)
            await asyncio.Event().wait()


silent: set[bytes] = set()


class Silence(Interceptor):
    """Lets activities fall silent: from then on they neither heartbeat nor answer."""

    def __init__(self, books: Books) -> None:
        self.books = books

    def intercept_activity(
        self,
        next: ActivityInboundInterceptor,  # noqa: A002  the engine's name
    ) -> ActivityInboundInterceptor:
        return SilentActivity(next, self.books)


class SilentActivity(ActivityInboundInterceptor):
    def __init__(self, inner: ActivityInboundInterceptor, books: Books) -> None:
        super().__init__(inner)
        self._books = books

    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        super().init(SilentHeartbeat(outbound))

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        await self._books.pass_by(f"begin:{info.activity_type}", info.workflow_id or "")
        result = await super().execute_activity(input)
        await self._books.pass_by(f"end:{info.activity_type}", info.workflow_id or "")
        return result


class SilentHeartbeat(ActivityOutboundInterceptor):
    def heartbeat(self, *details: Any) -> None:
        if activity.info().task_token not in silent:
            super().heartbeat(*details)


async def settle(runner: AgentRunner, task: Task | str, is_refunded: Any) -> int:
    """Run a task to its end, deciding on unknown refunds by the books; count those."""
    unknown = 0
    output = await runner.run_task(task)
    while output.status == "waiting":
        for approval in await runner.pending_approvals(task):
            assert approval.kind == "unknown"
            order = json.loads(approval.arguments)["thing"]
            unknown += 1
            if is_refunded(order):
                await runner.respond(approval, "bo", f"refunded({order})")
            else:
                await runner.approve(approval, "bo")
        output = await runner.run_task(task)
    return unknown


@pytest.mark.timeout(600)
async def test_workers_that_fall_silent_double_no_refund_and_lose_none(
    make_agent: MakeAgent, rig: Rig
) -> None:
    """In one process: the server sees of a crash only that nothing answers or heartbeats any more.

    That is what is simulated here, at any place of an activity. What is not simulated is the loss
    of the worker's memory and of its workflow cache; the test with SIGKILL does that.
    """
    chance = random.Random(SEED)
    books = Books()
    orders = [f"{rig.app}-order-{k}" for k in range(SILENCED)]
    books.silent_at = {order: chance.choices(PLACES, WEIGHTS)[0] for order in orders}
    drawn = dict(books.silent_at)

    @tool
    async def refund(thing: str) -> str:
        """Refund an order."""
        books.started[thing] += 1
        await books.pass_by("before", thing)
        books.refunded[thing] += 1
        await books.pass_by("after", thing)
        return f"refunded({thing})"

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        arguments = json.dumps({"thing": step.input})
        [result] = await ctx.call_tools([ToolCall(id="c", name="refund", arguments=arguments)])
        return ends(step, result.content)

    await rig.serve(
        make_agent(refund, worker=Doing(body)),
        interceptors=[Silence(books)],
        graceful_shutdown_timeout=timedelta(0),
        max_concurrent_activities=10 * SILENCED,
    )
    runner = rig.runner()
    free = asyncio.Semaphore(AT_ONCE)
    blind: list[str] = []

    async def one(order: str) -> int:
        async with free:
            await runner.create_task(order, task_id=order, step_mode="automatic")
            asked = await settle(runner, order, books.refunded.__getitem__)
            output = await runner.get_task_output(order)
            if output.output != f"refunded({order})":
                blind.append(order)
            return asked

    unknown = dict(zip(orders, await asyncio.gather(*map(one, orders)), strict=True))
    inside = [order for order in orders if not drawn[order].endswith(":step")]
    done_first = [order for order in inside if drawn[order] in ("after", "end:tool")]
    doubled = [order for order in orders if books.refunded[order] > 1]
    lost = [order for order in orders if books.refunded[order] < 1]
    print(  # noqa: T201  the figures, with -s
        f"\nrefunds, workers fallen silent (seed {SEED}): {len(books.died_at)} of {len(orders)},"
        f" {len(inside)} inside the call, {len(done_first)} of them after the refund;"
        f" unknown shown to a person: {sum(unknown.values())};"
        f" doubled: {len(doubled)}; lost: {len(lost)}"
    )
    assert books.died_at == drawn
    assert (doubled, lost, blind) == ([], [], [])
    assert unknown == {order: int(order in inside) for order in orders}
    assert done_first


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
            worker = lab.start(refunds.work, die=die)
            await kill_at_random(lab, worker, chance)
        cut = {e["thing"] for e in lab.events("start")} - {e["thing"] for e in lab.events("end")}
        cut_after = cut & {e["thing"] for e in lab.events("refund")}
        lab.start(refunds.work)
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
