"""Calls of a worker process that wait for their turn at a provider."""

import pytest

from holdfast import Agent, AgentRunner, ModelSettings, tool
from holdfast.errors import ModelUnavailableError
from holdfast.governor import Provider, gate
from holdfast.governor.shares import Shares
from holdfast.governor.workflow import QUEUE
from holdfast.models.openai.responses import ResponsesModel
from holdfast.testing import FakeOpenAI, ScriptedModel, hang
from holdfast.values.messages import Usage
from tests.support.rig import until, until_status

MORE_THAN_FAILURES = 4
CALLS = 3


@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


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

        async def waits() -> bool:
            found = await runner.get_task(second)
            return "waits for its turn at provider 'openai'" in found.blocked_by

        async def has_come_again() -> bool:
            handle = runner.client.get_workflow_handle(second.task_id)
            pending = (await handle.describe()).raw_description.pending_activities
            return any(each.attempt > MORE_THAN_FAILURES for each in pending)

        async def has_told() -> bool:
            return (await known(runner)).calls == CALLS

        await until(waits)
        await until(has_come_again)
        await runner.abandon(second, "no more")
        await until_status(runner, second, "abandoned")
        assert len(model.requests) == 1
        third = await runner.create_task("third", tenant="c")
        model.call("look", {})
        model.reply("third")
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
        task = await runner.create_task("q")
        await runner.run_task(task)
        total = (await runner.get_task(task)).usage.total_tokens

        async def has_told() -> bool:
            return (await known(runner)).calls == 2

        await until(has_told)
        assert (await known(runner)).tokens == total >= 42
