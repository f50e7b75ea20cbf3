"""Model calls that fail: what a person must heal parks at once, what time heals is retried."""

import re
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
from holdfast.testing import Reply, fail
from holdfast.workers import AgentWorker, StepContext
from tests.support.rig import Rig
from tests.support.scale import all_of


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


async def test_a_wrong_key_is_in_no_error(rig: Rig) -> None:
    key = "sk-proj-abcdefghijklmnop"
    made = ResponsesModel("gpt-5-mini", base_url=rig.model.base_url, api_key=key)
    await rig.serve(Agent(name="agent", model=made))
    runner = rig.runner()
    rig.model.fail(401, message=f"Incorrect API key provided: {key}")
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match="401") as caught:
        await runner.run_step(task)
    assert key not in str(caught.value)
    history = await runner.client.get_workflow_handle(task.task_id).fetch_history()
    assert key not in history.to_json()
    await made.close()


@pytest.mark.parametrize("is_slow", [all_of(False), True])
async def test_what_time_heals_is_retried(rig: Rig, *, is_slow: bool) -> None:
    await rig.serve(rig.agent(model_settings=ModelSettings(timeout_seconds=0.5)))
    if is_slow:
        rig.model.malformed()
        rig.model.hang("never")
    else:
        rig.model.fail(503)
        rig.model.cut()
    rig.model.reply("done")
    output = await rig.runner().run_step(await rig.runner().create_task("q"))
    assert str(output) == "done"
    assert output.usage.requests == 1 + is_slow  # what is not JSON is an answer all the same
    assert len(rig.model.requests) == 3


@pytest.mark.parametrize("is_streamed", [False, all_of(True)])
async def test_rate_limits_are_waited_out_by_time_and_use_up_no_attempts(
    rig: Rig, *, is_streamed: bool
) -> None:
    runner = await rig.serving(rig.agent(model_settings=ModelSettings(max_attempts=2)))
    rig.model.add(fail(429, retry_after=0.01), fail(503, retry_after=0.01), fail(500), "done")
    task = await runner.create_task("q")
    if is_streamed:
        assert str(await runner.stream_step(task).result()) == "done"
    else:
        assert str(await runner.run_step(task)) == "done"
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


@pytest.mark.parametrize("place", [all_of("input"), "output", all_of("memo")])
async def test_rate_limits_of_a_model_that_a_guardrail_or_a_memo_asks_use_up_no_attempts(
    rig: Rig, place: str
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
    agent = rig.agent(model_settings=model_settings, **kinds[place])
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
