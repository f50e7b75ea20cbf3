"""Model calls that fail: a person heals, time does, or the next of several models answers."""

import re
from decimal import Decimal
from typing import Any

import pytest

from holdfast import (
    Agent,
    AgentRunner,
    GuardrailFunctionOutput,
    ModelSettings,
    OutputGuardrail,
    RunConfig,
    Runner,
)
from holdfast.errors import ModelUnavailableError, StepFailedError, UserError
from holdfast.models.openai.chat import ChatCompletionsModel
from holdfast.models.openai.responses import ResponsesModel
from holdfast.models.prices import Price, Prices
from holdfast.serving.governor import Provider
from holdfast.serving.governor.shares import Shares
from holdfast.serving.governor.workflow import QUEUE
from holdfast.testing import Reply, ScriptedModel, fail
from holdfast.values.messages import Usage
from tests.support.rig import Rig, until


@pytest.mark.parametrize(
    ("settings", "failures", "said", "kind"),
    [
        ({}, [fail(422, message="not like this")], "422.*not like this", "ModelRequestError"),
        ({"max_attempts": 2}, [fail(500)] * 2, "500", "ModelUnavailableError"),
        (
            {"rate_limit_seconds": 60},
            [fail(429, retry_after=0.01), fail(429, retry_after=90)],
            "(?s)429.*rate_limit_seconds",
            "ModelUnavailableError",
        ),
    ],
    ids=["refused", "the attempts are over", "limited for longer than is allowed"],
)
async def test_a_task_waits_for_a_person_where_no_further_attempt_helps(
    rig: Rig, settings: dict[str, Any], failures: list[Reply], said: str, kind: str
) -> None:
    runner = await rig.serving(rig.agent(model_settings=ModelSettings(**settings)))
    rig.model.add(*failures)
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match=said) as caught:
        await runner.run_step(task)
    assert caught.value.cause_type == kind
    assert len(rig.model.requests) == len(failures)
    found = await runner.get_task(task)
    assert found.status == "needs_attention"
    assert re.search(said, found.error)
    rig.model.reply("healed")
    assert str(await runner.run_step(task)) == "healed"


async def test_what_time_heals_is_retried(rig: Rig) -> None:
    await rig.serve(rig.agent(model_settings=ModelSettings(timeout_seconds=0.5)))
    rig.model.malformed()
    rig.model.hang("never")
    rig.model.reply("done")
    output = await rig.runner().run_step(await rig.runner().create_task("q"))
    assert str(output) == "done"
    assert output.usage.requests == 2  # what is not JSON is an answer all the same
    assert len(rig.model.requests) == 3


async def test_rate_limits_are_waited_out_by_time_and_use_up_no_attempts(rig: Rig) -> None:
    runner = await rig.serving(rig.agent(model_settings=ModelSettings(max_attempts=2)))
    rig.model.add(fail(429, retry_after=0.01), fail(503, retry_after=0.01), fail(500), "done")
    assert str(await runner.run_step(await runner.create_task("q"))) == "done"
    assert len(rig.model.requests) == 4


class Judge:
    """Asks a model of its own, whose provider limits it three times."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, *_: Any) -> Any:
        self.asked += 1
        if self.asked <= 3:
            raise ModelUnavailableError("busy", is_limit=True, retry_after=0.01)
        return GuardrailFunctionOutput(None, tripwire_triggered=False)


async def test_rate_limits_of_a_model_that_a_guardrail_asks_use_up_no_attempts(rig: Rig) -> None:
    judge, model_settings = Judge(), ModelSettings(max_attempts=2)
    guards = [OutputGuardrail(judge)]
    agent = rig.agent(model_settings=model_settings, output_guardrails=guards)
    await rig.serve(agent)
    rig.model.reply("done")
    assert (await Runner.run(agent, "q", runner=rig.runner())).final_output == "done"
    assert judge.asked == 4


async def test_failures_of_the_provider_are_no_answers_that_cannot_be_used(rig: Rig) -> None:
    runner = await rig.make()
    for _ in range(2):
        rig.model.fail(500, headers={"retry-after": "0.01"})
    rig.model.malformed()
    rig.model.reply("done")
    assert str(await runner.run_step(await runner.create_task("q"))) == "done"


# ---- several models


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
