"""Worker processes are killed while a tenant's day is counted, and its governor begins anew.

Each is killed with calls in progress, once the governor knows of those before: what a killed
process used in its last seconds does not count.
"""

from typing import Any

from holdfast import Agent, Price, Prices, Task
from holdfast.serving.governor import TenantBudget, workflow
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
