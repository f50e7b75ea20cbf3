"""The same call over and over: the model is told, then a person is asked."""

from typing import Any

import pytest

from holdfast import Agent, AgentRunner, RunConfig, Runner, tool
from holdfast.errors import InvalidArgumentError, MaxTurnsExceeded, UnfitAnswerError
from holdfast.models.base import ModelRequest
from holdfast.testing import ScriptedModel
from holdfast.values.messages import Message, ToolCall, assistant, system, user
from holdfast.workers import FunctionCallingAgentWorker
from holdfast.workers.function_calling import REPEATS, repeats
from tests.support.rig import Rig

TOLD = "You have made the same call"


@tool(effect="read")
def status(job: str) -> str:
    """Return the state of a job."""
    return f"{job}: pending"


def again(request: ModelRequest) -> str | ToolCall:
    """Ask for the status for ever, unless a person says stop."""
    if "stop" in [message.text for message in request.messages]:
        return "stopped"
    return ToolCall(id="", name="status", arguments='{"job": "a"}')


async def serving(rig: Rig, **options: Any) -> tuple[AgentRunner, ScriptedModel]:
    model = ScriptedModel(again)
    worker = FunctionCallingAgentWorker(**options)
    agent = Agent(name="agent", model=model, tools=[status], worker=worker)
    return await rig.serving(agent), model


def told(model: ScriptedModel) -> list[int]:
    """Return at which requests the model reads of its repetitions as the last thing."""
    return [n for n, each in enumerate(model.requests) if TOLD in each.messages[-1].text]


async def test_the_model_is_told_once_and_then_the_step_waits_for_a_person(rig: Rig) -> None:
    runner, model = await serving(rig)
    task = await runner.create_task("Wait for a.")
    with pytest.raises(UnfitAnswerError, match=r"10 times in a row.*status\({\"job\": \"a\"}\)"):
        await runner.run_task(task)
    assert (await runner.get_task(task)).status == "needs_attention"
    assert (model.calls, told(model)) == (10, [5])
    # Who runs it without a word lets it go on for as long again.
    with pytest.raises(UnfitAnswerError, match="15 times in a row"):
        await runner.run_task(task)
    assert (model.calls, told(model)) == (15, [5])
    await runner.give_feedback(task, "stop")
    assert str(await runner.run_task(task)) == "stopped"
    assert (model.calls, told(model)) == (16, [5])


@pytest.mark.parametrize("limit", [None, {"status": None}], ids=["off", "of a tool"])
async def test_the_limit_is_off_by_a_setting(rig: Rig, limit: Any) -> None:
    runner, model = await serving(rig, max_repeats=limit)
    task = await runner.create_task("Wait for a.")
    for _ in range(12):
        await runner.run_step(task)
    assert told(model) == []


async def test_a_run_with_the_outcomes_of_the_sdk_has_no_limit_but_that_of_turns(rig: Rig) -> None:
    model = ScriptedModel(again)
    agent = Agent(name="agent", model=model, tools=[status])
    runner = await rig.serving(agent)
    config = RunConfig(max_output_attempts=None)
    with pytest.raises(MaxTurnsExceeded):
        await Runner.run(agent, "Wait for a.", max_turns=12, run_config=config, runner=runner)
    assert (model.calls, told(model)) == (12, [])


def turns(*results: str) -> list[Message]:
    made: list[Message] = []
    for n, result in enumerate(results):
        call = ToolCall(id=f"c{n}", name="status", arguments='{"job":"a"}')
        made += [
            assistant("", calls=(call,)),
            Message(role="tool", call_id=call.id, content=result),
        ]
    return made


@pytest.mark.parametrize(
    ("messages", "count"),
    [
        ([], 0),
        ([user("q"), *turns("x")], 1),
        ([user("q"), *turns("x", "x", "x")], 3),
        ([user("q"), *turns("y", "x", "x")], 2),
        ([*turns("x", "x"), user("go on"), *turns("x")], 1),
        ([*turns("x", "x"), system("told"), *turns("x")], 1),
        ([*turns("x", "x"), Message(role="system", call_id=REPEATS), *turns("x")], 3),
        ([*turns("x"), assistant("hm"), *turns("x")], 1),
    ],
)
def test_a_row_is_of_equal_calls_with_equal_results(messages: list[Message], count: int) -> None:
    assert repeats(messages)[1] == count


@pytest.mark.parametrize("limit", [0, True, "5", {"status": -1}])
def test_a_limit_that_cannot_be_used_is_refused(limit: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"max_repeats|status"):
        FunctionCallingAgentWorker(max_repeats=limit)
