"""Model calls that fail: what a person must heal parks at once, what time heals is retried."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import (
    Agent,
    ModelRetryBackoffSettings,
    ModelRetrySettings,
    ModelSettings,
    Runner,
    tool,
)
from holdfast.activities import heartbeat
from holdfast.errors import ModelRequestError, StepFailedError
from holdfast.models.base import ModelAnswer, ModelRequest
from holdfast.models.openai.responses import ResponsesModel
from holdfast.testing import FakeOpenAI
from tests.support.rig import MakeAgent, MakeRunner, Rig


@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


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


async def test_answered_calls_are_not_repeated_after_a_refused_one(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.call("look")
    model.fail(401)
    task = await runner.create_task("q")
    await runner.run_step(task)
    with pytest.raises(StepFailedError):
        await runner.run_step(task)
    model.reply("healed")
    assert str(await runner.run_step(task)) == "healed"
    assert len(model.requests) == 3
    assert (await runner.get_task(task)).usage.requests == 2


@pytest.mark.parametrize("trouble", ["503", "cut", "malformed"])
async def test_what_time_heals_is_retried(
    make_runner: MakeRunner, model: FakeOpenAI, trouble: str
) -> None:
    runner = await make_runner()
    match trouble:
        case "cut":
            model.cut()
        case "malformed":
            model.malformed()
        case status:
            model.fail(int(status))
    model.reply("done")
    task = await runner.create_task("q")
    output = await runner.run_step(task)
    assert str(output) == "done"
    assert output.usage.requests == 1
    assert len(model.requests) == 2


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


async def test_a_model_that_is_too_slow_is_asked_again(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    await rig.serve(make_agent(model_settings=ModelSettings(timeout_seconds=0.3)))
    runner = rig.runner()
    model.hang("never")
    model.reply("quick")
    task = await runner.create_task("q")
    assert str(await runner.run_step(task)) == "quick"


async def test_a_missing_key_parks_the_task_at_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    await rig.serve(Agent(name="agent", model=ResponsesModel("gpt-5-mini")))
    runner = rig.runner()
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match="OPENAI_API_KEY"):
        await runner.run_step(task)


class Raising:
    """A model that cannot be asked."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    @property
    def name(self) -> str:
        return "raising"

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        raise self.error


async def logged(rig: Rig, error: Exception, caplog: pytest.LogCaptureFixture) -> tuple[str, int]:
    """Fail a step; return the error of the client, and count the tracebacks that are logged."""
    await rig.serve(Agent(name="agent", model=Raising(error)))
    task = await rig.runner().create_task("q")
    with pytest.raises(StepFailedError) as caught:
        await rig.runner().run_step(task)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert f"Runner.run(agent, RunState.of('{task.task_id}'))" in str(caught.value)
    assert "An activity failed: no key" in caplog.text
    tracebacks = [each for each in caplog.records if each.exc_info or each.exc_text]
    return str(caught.value), len(tracebacks)


async def test_what_a_person_must_heal_is_said_without_tracebacks(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    text, tracebacks = await logged(rig, ModelRequestError("no key"), caplog)
    assert "ModelRequestError: no key" in text
    assert tracebacks == 0


async def test_an_unknown_error_is_logged_with_its_traceback_once(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    _, tracebacks = await logged(rig, RuntimeError("no key"), caplog)
    assert tracebacks == 1


async def test_failed_attempts_are_told_from_the_loop_of_the_heartbeats(
    rig: Rig, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    homes: list[bool] = []
    beat = heartbeat.Pulse.beat

    def noted(pulse: heartbeat.Pulse) -> None:
        homes.append(asyncio.get_running_loop() is vars(pulse)["_home"])
        beat(pulse)

    monkeypatch.setattr(heartbeat.Pulse, "beat", noted)
    retry = ModelRetrySettings(3, ModelRetryBackoffSettings(0.01, jitter=False), policy=bool)
    monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-tests-1")
    agent = Agent(name="agent", model="gpt-5-mini", model_settings=ModelSettings(retry=retry))
    await rig.serve(agent, own_loop=True)
    model.fail(500)
    model.reply("done")
    result = await Runner.run(agent, "q", runner=rig.runner())
    assert result.context_wrapper.usage.requests == 2
    assert set(homes) == {True}
