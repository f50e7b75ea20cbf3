"""Calls of a worker process that wait for their turn at a provider."""

import threading
from datetime import datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from temporalio.worker import Worker

from holdfast import Agent, AgentRunner, HoldfastPlugin, ModelSettings, Price, Prices
from holdfast.desk.identity.tenants import runner_of
from holdfast.desk.identity.tokens import NotAllowedError
from holdfast.errors import CommandRefusedError, ModelUnavailableError
from holdfast.models.base import ModelAnswer, ModelRequest
from holdfast.models.openai.responses import ResponsesModel
from holdfast.serving.governor import Provider, TenantBudget, gate
from holdfast.serving.governor.served import bare
from holdfast.serving.governor.shares import Shares
from holdfast.serving.governor.workflow import QUEUE, TENANTS
from holdfast.serving.worker_process import build_worker
from holdfast.testing import FakeOpenAI, ScriptedModel, call, hang
from holdfast.values.messages import Message, ToolCall, Usage
from tests.support.rig import run_a_task, until, until_blocked, until_status
from tests.support.runs import look
from tests.support.scale import all_of

MORE_THAN_FAILURES = 4
CALLS = 3


async def known(runner: AgentRunner) -> Shares:
    """Return what the governor knows."""
    found: Shares = await runner.client.get_workflow_handle(f"{QUEUE}.openai").query(
        "shares", result_type=Shares
    )
    return found


async def test_a_call_that_waits_for_its_turn_says_so_costs_no_attempt_and_gives_it_back(
    model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "PATIENCE_SECONDS", 0.4)
    monkeypatch.setattr(gate, "AGAIN_SECONDS", 0.05)
    agent = Agent(
        name="agent",
        model=ResponsesModel("gpt-5-mini", base_url=model.base_url, api_key="k"),
        model_settings=ModelSettings(max_attempts=1, rate_limit_seconds=1),
        tools=[look],
    )
    limits = Provider(name="openai", requests_per_minute=6000, at_once=1)
    async with AgentRunner.local(agent, data_dir=None, providers=[limits]) as runner:
        model.add(hang("first"))
        first = await runner.create_task("first", step_mode="automatic", tenant="a", priority=1)
        await model.until_held()
        second = await runner.create_task("second", step_mode="automatic", tenant="b")

        async def has_come_again() -> bool:
            handle = runner.client.get_workflow_handle(second.task_id)
            pending = (await handle.describe()).raw_description.pending_activities
            return any(each.attempt > MORE_THAN_FAILURES for each in pending)

        async def has_told() -> bool:
            return (await known(runner)).calls == CALLS

        await until_blocked(runner, second, "waits for its turn at provider 'openai'")
        await until(has_come_again)
        await runner.abandon(second, "no more")
        await until_status(runner, second, "abandoned")
        assert len(model.requests) == 1
        third = await runner.create_task("third", tenant="c")
        model.add(call("look", {}), "third")
        model.release()
        assert str(await runner.run_task(third)) == "third"
        assert str(await runner.run_task(first)) == "first"
        await until(has_told)
        found = await known(runner)
        tasks = [await runner.get_task(task) for task in (first, third)]
        assert found.tokens == sum(task.usage.total_tokens for task in tasks)
        assert found.refused == 0


async def test_an_answer_that_cannot_be_used_counts_as_well() -> None:
    lost = ModelUnavailableError("It cannot be read.")
    lost.usage = Usage(requests=1, input_tokens=30, output_tokens=12)
    agent = Agent(name="agent", model=ScriptedModel([lost, "said"]))
    limits = Provider(name="openai", models=("scripted",), requests_per_minute=6000)
    async with AgentRunner.local(agent, data_dir=None, providers=[limits]) as runner:
        task = await run_a_task(runner)
        total = (await runner.get_task(task)).usage.total_tokens

        async def has_told() -> bool:
            return (await known(runner)).calls == 2

        await until(has_told)
        assert (await known(runner)).tokens == total >= 42


def costly(request: ModelRequest) -> ModelAnswer:
    """Answer for ten cents; the first of two answers looks."""
    usage = Usage(requests=1, input_tokens=90, output_tokens=10)
    looks = request.messages[-1].text == "look" and request.tools
    calls = (ToolCall(id="c1", name="look", arguments="{}"),) if looks else ()
    said = Message(role="assistant", content="" if looks else "said", calls=calls)
    return ModelAnswer(message=said, usage=usage)


CENTS = Prices({"scripted": Price(input=1_000, output=1_000)})


async def test_a_tenant_that_has_used_its_day_waits_for_a_person_and_others_go_on() -> None:
    agent = Agent(name="clerk", model=ScriptedModel(costly), tools=[look])
    budget = TenantBudget(tenant="a", dollars_per_day="0.20", time_zone="Europe/Berlin")
    limits = Provider(name="acme", models=("scripted",), requests_per_minute=6000)
    async with AgentRunner.local(
        agent, data_dir=None, providers=[budget, limits], prices=CENTS
    ) as runner:
        first = await runner.create_task("look", tenant="a")
        assert str(await runner.run_task(first)) == "said"
        second = await runner.create_task("look", tenant="a", step_mode="automatic")
        await until_status(runner, second, "waiting")
        [asked] = await runner.pending_approvals(second)
        assert asked.text.startswith(
            "The budget is used up: the $0.20 that tenant 'a' may use in a day (Europe/Berlin) are"
            " used up. approve: go on until this task has cost $1.00, or another amount;"
        )
        midnight = datetime.fromtimestamp(asked.expires - 2, ZoneInfo("Europe/Berlin"))
        assert midnight.strftime("%H:%M:%S") == "00:00:00"
        assert any("tenant 'a'" in repr(each) for each in await runner.audit(second))
        other = await runner.create_task("look", tenant="b")
        assert str(await runner.run_task(other)) == "said"
        with pytest.raises(NotAllowedError, match="go past its day"):
            await runner_of(runner, "a").approve(asked, by="anna")
        with pytest.raises(CommandRefusedError, match="raise it to more than that"):
            await runner.approve(asked, by="anna", arguments={"max_dollars": "0"})
        await runner.approve(asked, by="anna", arguments={"max_dollars": "0.15"})
        assert str(await runner.run_task(second)) == "said"
        counted = await runner.client.get_workflow_handle(TENANTS).query(
            "shares", result_type=Shares
        )
        assert counted.days["a"].dollars >= Decimal("0.20")
        assert list(counted.days) == ["a"]


@pytest.mark.parametrize("by", ["build_worker", all_of("plugin")])
async def test_a_worker_that_a_team_runs_leaves_no_thread_behind(by: str) -> None:
    agent = Agent(name="agent", model=ScriptedModel(costly))
    limits = Provider(name="acme", models=("scripted",), requests_per_minute=6000)

    before = {*threading.enumerate()}  # other tests of this process have threads of their own

    def threads() -> set[str]:
        ours = {"holdfast-governor", "holdfast-tools", "holdfast-watch"}
        return ours & {each.name for each in {*threading.enumerate()} - before}

    async with AgentRunner.local(agent, data_dir=None) as local:
        known: dict[str, Any] = {"archive": local.archive, "providers": [limits]}
        plugin = HoldfastPlugin(agents=[agent], **known)

        for _ in range(2):
            if by == "plugin":
                worker = Worker(bare(local.client), task_queue="hf.own", plugins=[plugin])
            else:
                worker = build_worker(local.client, [agent], app="own", **known)
            async with worker:
                runner = AgentRunner(
                    agent="agent", app="own", client=local.client, archive=local.archive
                )
                assert str(await runner.run_task(await runner.create_task("q"))) == "said"
                assert "holdfast-governor" in threads()
            await until(lambda: not threads())
