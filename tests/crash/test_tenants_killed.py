"""Worker processes are killed while a tenant's day is counted, and its governor begins anew.

Each is killed with calls in progress, once the governor knows of those before: what a killed
process used in its last seconds does not count.
"""

import asyncio
import time
from typing import Any

import pytest

from holdfast import Agent, Price, Prices, Task
from holdfast.serving.governor import TenantBudget, days, workflow
from holdfast.serving.governor.days import Day
from holdfast.serving.governor.shares import Shares
from holdfast.serving.governor.workflow import TENANTS
from holdfast.testing import hang
from tests.crash.lab import Lab
from tests.crash.programs import Job, make_agent
from tests.support.rig import histories, until
from tests.support.scale import times

ROUNDS = times(1, 20)
TASKS, HELD = 6, 2
PRICES = Prices({"fake-model": Price(input=1_000, output=1_000)})


def make(job: Job) -> Agent:
    """Make the plain agent, in a process whose governor soon continues as new."""
    workflow.MOST_ANSWERS = 3
    return make_agent(job)


async def counted(lab: Lab) -> Day:
    """Return what the governor has counted."""
    handle = lab.runner.client.get_workflow_handle(TENANTS)
    found: Shares = await handle.query("shares", result_type=Shares)
    return found.days.get(lab.job.app, Day())


async def test_a_day_is_counted_whole_over_kills_and_rollovers(lab: Lab) -> None:
    budget = TenantBudget(tenant=lab.job.app, dollars_per_day=10_000, tokens_per_day=10**9)
    options: dict[str, Any] = {"providers": [budget], "prices": PRICES}
    worker = await lab.serve(make=make, options=options)
    tasks = list[Task]()

    async def is_counted() -> bool:
        used = [(await lab.runner.get_task(each)).usage for each in tasks]
        tokens, day = sum(each.total_tokens for each in used), await counted(lab)
        paid = sum(each.paid for each in used)
        return bool(tokens) and (day.tokens, day.dollars) == (tokens, paid)

    async def begin(task: str) -> None:
        new = await lab.create(f"look:{task}", step_mode="automatic", tenant=lab.job.app)
        tasks.append(new)

    async def only_held() -> bool:
        found = [(await lab.runner.get_task(each)).status for each in tasks]
        return found.count("answered") == len(tasks) - HELD

    await begin("first")  # shows what a call uses
    await lab.until_status(tasks[0], "answered")
    for n in range(ROUNDS):
        lab.api.when(lab.is_mine, hang(), times=HELD)
        for k in range(TASKS):
            await begin(f"{n}.{k}")
        await lab.api.until_held(HELD)
        await until(only_held)
        await until(is_counted)
        await lab.kill(worker)
        worker = lab.start(make=make, options=options)
        lab.api.release()
        for each in tasks[-TASKS:]:
            await lab.until_status(each, "answered")
    await until(is_counted)
    assert len(await histories(lab.runner.client, TENANTS)) > ROUNDS


def make_dated(job: Job) -> Agent:
    """Make the agent, in a process whose midnight is when the file says, if there is one."""
    file = job.home / "midnight"

    def day_of(now: float, zone: str) -> tuple[int, float]:
        del zone
        midnight = float(file.read_text()) if file.exists() else now + 3600
        return (30_000, midnight) if now < midnight else (30_001, midnight + 86_400)

    days.day_of = day_of
    return make(job)


@pytest.mark.exhaustive
async def test_what_waits_for_a_person_or_the_next_day_goes_on_after_kills_and_is_counted(
    lab: Lab,
) -> None:
    budget = TenantBudget(tenant=lab.job.app, dollars_per_day="0.001")  # less than any call
    served: Any = {"make": make_dated, "options": {"providers": [budget], "prices": PRICES}}

    async def begin(text: str) -> Task:
        options: Any = {"step_mode": "automatic", "tenant": lab.job.app}
        return await lab.runner.create_task(f"{text} {lab.job.app}", **options)

    async def are_counted(*tasks: Task) -> bool:
        used = [(await lab.runner.get_task(each)).usage for each in tasks]
        assert {each.requests for each in used} == {1}
        return (await counted(lab)).dollars == sum(each.paid for each in used)

    async def waits_or_is_late() -> bool:
        return (await lab.runner.get_task(late)).status == "waiting" or time.time() > midnight

    worker = await lab.serve(**served)
    await lab.until_status(first := await begin("first"), "answered")
    await until(lambda: are_counted(first))
    await lab.until_status(raised := await begin("raised"), "waiting")
    [asked] = await lab.runner.pending_approvals(raised)
    await lab.kill(worker)
    approving = asyncio.create_task(lab.runner.approve(asked, by="ann"))
    for point in ("schedule:step", "begin:step"):
        await lab.until_dead(lab.start(**served, die=((point, 1),)))
    lab.hold_model(0)
    worker = lab.start(**served)
    await lab.api.until_held(1)
    await lab.kill(worker)
    lab.api.release()
    worker = lab.start(**served)
    await approving
    await lab.until_status(raised, "answered")
    await until(lambda: are_counted(first, raised))

    await lab.kill(worker)
    midnight = time.time() + 6
    (lab.home / "midnight").write_text(str(midnight), "utf-8")
    worker = lab.start(**served)
    late = await begin("late")
    await until(waits_or_is_late)
    await lab.kill(worker)
    await lab.until(lambda: time.time() > midnight, "midnight")
    lab.start(**served)
    await lab.until_status(late, "answered")
    await until(lambda: are_counted(late))
