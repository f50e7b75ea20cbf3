"""Model calls that fail: what a person must heal parks at once, what time heals is retried."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    ModelSettings,
    OutputGuardrail,
    Runner,
    TaskStep,
    TaskStepOutput,
)
from holdfast.errors import ModelUnavailableError, StepFailedError
from holdfast.models.openai.responses import ResponsesModel
from holdfast.testing import FakeOpenAI
from holdfast.workers import AgentWorker, StepContext
from tests.support.rig import MakeAgent, MakeRunner, Rig


async def test_a_refused_request_parks_the_task_at_once(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner, status = await make_runner(), 422
    model.fail(status, message="not like this")
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match=f"{status}.*not like this") as caught:
        await runner.run_step(task)
    assert caught.value.cause_type == "ModelRequestError"
    assert len(model.requests) == 1
    found = await runner.get_task(task)
    assert found.status == "needs_attention"
    assert str(status) in found.error
    model.reply("healed")
    assert str(await runner.run_step(task)) == "healed"


async def test_a_wrong_key_is_in_no_error(rig: Rig, model: FakeOpenAI) -> None:
    key = "sk-proj-abcdefghijklmnop"
    made = ResponsesModel("gpt-5-mini", base_url=model.base_url, api_key=key)
    await rig.serve(Agent(name="agent", model=made))
    runner = rig.runner()
    model.fail(401, message=f"Incorrect API key provided: {key}")
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match="401") as caught:
        await runner.run_step(task)
    assert key not in str(caught.value)
    history = await runner.client.get_workflow_handle(task.task_id).fetch_history()
    assert key not in history.to_json()
    await made.close()


@pytest.mark.parametrize("is_slow", [False, True])
async def test_what_time_heals_is_retried(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, *, is_slow: bool
) -> None:
    await rig.serve(make_agent(model_settings=ModelSettings(timeout_seconds=0.5)))
    if is_slow:
        model.malformed()
        model.hang("never")
    else:
        model.fail(503)
        model.cut()
    model.reply("done")
    output = await rig.runner().run_step(await rig.runner().create_task("q"))
    assert str(output) == "done"
    assert output.usage.requests == 1 + is_slow  # what is not JSON is an answer all the same
    assert len(model.requests) == 3


async def test_a_model_that_stays_away_parks_the_task_when_the_attempts_are_over(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    await rig.serve(make_agent(model_settings=ModelSettings(max_attempts=2)))
    runner = rig.runner()
    model.fail(500)
    model.fail(500)
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match="500") as caught:
        await runner.run_step(task)
    assert caught.value.cause_type == "ModelUnavailableError"
    model.reply("back")
    assert str(await runner.run_step(task)) == "back"


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_rate_limits_are_waited_out_by_time_and_use_up_no_attempts(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, *, is_streamed: bool
) -> None:
    await rig.serve(make_agent(model_settings=ModelSettings(max_attempts=2)))
    runner = rig.runner()
    model.fail(429, retry_after=0.01)
    model.fail(503, retry_after=0.01)
    model.fail(500)
    model.reply("done")
    task = await runner.create_task("q")
    if is_streamed:
        assert str(await runner.stream_step(task).result()) == "done"
    else:
        assert str(await runner.run_step(task)) == "done"
    assert len(model.requests) == 4


class Judge:
    """Asks a model of its own, whose provider limits it three times."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, *_: Any) -> Any:
        self.asked += 1
        if self.asked <= 3:
            raise ModelUnavailableError("busy", is_limit=True, retry_after=0.01)
        return GuardrailFunctionOutput(None, tripwire_triggered=False)


@pytest.mark.parametrize("place", ["input", "output", "memo"])
async def test_rate_limits_of_a_model_that_a_guardrail_or_a_memo_asks_use_up_no_attempts(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, place: str
) -> None:
    judge, model_settings = Judge(), ModelSettings(max_attempts=2)

    class Judging(AgentWorker):
        async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
            await ctx.memo("judged", judge)
            said = await ctx.call_model()
            return TaskStepOutput(output=said.text, task_step=step, is_last=True)

    kinds: dict[str, dict[str, Any]] = {
        "input": {"input_guardrails": [InputGuardrail(judge)]},
        "output": {"output_guardrails": [OutputGuardrail(judge)]},
        "memo": {"worker": Judging()},
    }
    agent = make_agent(model_settings=model_settings, **kinds[place])
    await rig.serve(agent)
    model.reply("done")
    assert (await Runner.run(agent, "q", runner=rig.runner())).final_output == "done"
    assert judge.asked == 4


async def test_a_rate_limit_that_lasts_longer_than_is_allowed_asks_a_person(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    await rig.serve(make_agent(model_settings=ModelSettings(rate_limit_seconds=60)))
    runner = rig.runner()
    model.fail(429, retry_after=0.01)
    model.fail(429, retry_after=90)
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match=r"(?s)429.*rate_limit_seconds") as caught:
        await runner.run_step(task)
    assert caught.value.cause_type == "ModelUnavailableError"
    model.reply("back")
    assert str(await runner.run_step(task)) == "back"


async def test_failures_of_the_provider_are_no_answers_that_cannot_be_used(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    for _ in range(2):
        model.fail(500, headers={"retry-after": "0.01"})
    model.malformed()
    model.reply("done")
    assert str(await runner.run_step(await runner.create_task("q"))) == "done"
