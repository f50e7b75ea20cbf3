"""Agents with several models: runs go on by the next one, and the record says so."""

from decimal import Decimal
from typing import Any

import pytest

from holdfast import Agent, AgentRunner, ModelSettings, RunConfig, Runner
from holdfast.errors import ModelUnavailableError, StepFailedError, UserError
from holdfast.models.openai.chat import ChatCompletionsModel
from holdfast.models.openai.responses import ResponsesModel
from holdfast.models.prices import Price, Prices
from holdfast.serving.governor import Provider
from holdfast.serving.governor.shares import Shares
from holdfast.serving.governor.workflow import QUEUE
from holdfast.testing import ScriptedModel
from holdfast.values.messages import Usage
from tests.support.rig import Rig, until

PRICES = Prices({"gpt-5": Price(input=5, output=5), "claude": Price(input=3, output=3)})


@pytest.mark.parametrize("streams", [False, True])
async def test_a_run_goes_on_by_the_next_model_and_its_record_says_why(
    rig: Rig, *, streams: bool
) -> None:
    place: dict[str, Any] = {"base_url": rig.model.base_url, "api_key": "k"}
    models = [ResponsesModel("gpt-5", **place), ChatCompletionsModel("claude", **place)]
    agent = Agent(name="agent", model=models)
    await rig.serve(agent, prices=PRICES)
    runner, config = rig.runner(), RunConfig(max_dollars=1)
    rig.model.fail(503, message="overloaded")
    rig.model.reply("hello there", usage=Usage(input_tokens=10, output_tokens=2))
    if streams:
        run = Runner.run_streamed(agent, "q", runner=runner, run_config=config)
        events = [event async for event in run.stream_events()]
        raw = [event.data for event in events if event.type == "raw_response_event"]
        deltas = [each.delta for each in raw if each.type == "response.output_text.delta"]
        assert "".join(deltas) == run.final_output == "hello there"
    else:
        assert (await Runner.run(agent, "q", runner=runner, run_config=config)).final_output
    assert [each.endpoint for each in rig.model.requests] == ["responses", "chat"]
    assert [each.body.get("stream", False) for each in rig.model.requests] == [streams] * 2
    [task_id] = rig.ids
    task = await runner.get_task(task_id)
    assert (task.usage.requests, task.usage.cost) == (1, Decimal("0.000036"))
    [event] = [each for each in await runner.audit(task_id) if each.kind == "model_call"]
    assert (event.body["model"], event.attempts) == ("claude", 1)
    [why] = event.body["tried"]
    assert why.startswith("gpt-5: is not available (HTTP 503")
    assert why.endswith("overloaded")
    assert not await runner.verify(task_id)
    await rig.assert_replays()
    for each in models:
        await each.close()


async def test_a_step_waits_with_an_error_that_names_all_and_goes_on_with_other_models(
    rig: Rig,
) -> None:
    def down() -> ModelUnavailableError:
        return ModelUnavailableError("It is down.")

    models = [ScriptedModel([down()], name=name) for name in ("a", "b")]
    agent = Agent(name="agent", model=models, model_settings=ModelSettings(max_attempts=1))
    runner = await rig.serving(agent)
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match="a: It is down; b: It is down"):
        await runner.run_step(task)
    assert [each.calls for each in models] == [1, 1]
    agent.model = (ScriptedModel(["healed"], name="b"), ScriptedModel([down()], name="a"))
    assert str(await runner.run_step(task)) == "healed"


async def test_a_run_that_names_several_asks_its_provider_for_each(rig: Rig) -> None:
    class Mine:
        def get_model(self, name: str | None) -> ScriptedModel:
            script = [ModelUnavailableError("no")] if name == "first" else [f"{name} answers"]
            return ScriptedModel(script, name=name or "")

    agent = Agent(name="agent", model="offline")
    await rig.serve(agent)
    config = RunConfig(model=["first", "second"], model_provider=Mine())
    result = await Runner.run(agent, "q", runner=rig.runner(), run_config=config)
    assert result.final_output == "second answers"
    with pytest.raises(UserError, match="cannot go on with another model"):
        await Runner.run(
            agent, "q", runner=rig.runner(), run_config=config, previous_response_id="resp_1"
        )


async def test_each_model_waits_for_its_turn_at_its_own_provider() -> None:
    first = ScriptedModel([ModelUnavailableError("busy", is_limit=True)], name="a")
    agent = Agent(name="agent", model=[first, ScriptedModel(["hello"], name="b")])
    limits = [
        Provider(name=name, models=(name,), requests_per_minute=6000, at_once=1) for name in "ab"
    ]
    async with AgentRunner.local(agent, data_dir=None, providers=limits) as runner:
        task = await runner.create_task("q")
        assert str(await runner.run_task(task)) == "hello"
        [event] = [each for each in await runner.audit(task) if each.kind == "model_call"]
        assert (event.body["model"], event.body["tried"]) == ("b", ["a: busy"])
        client = runner.client

        async def both_know() -> bool:
            asked = [client.get_workflow_handle(f"{QUEUE}.{name}") for name in "ab"]
            known = [await each.query("shares", result_type=Shares) for each in asked]
            return [(each.calls, each.refused) for each in known] == [(0, 1), (1, 0)]

        await until(both_know)
