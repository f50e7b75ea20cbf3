"""The agent loop: final outputs, instructions, tools on offer, and what follows tool calls."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import Agent, Runner, StepFailedError, tool
from holdfast.testing import FakeOpenAI
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.workers.tool_use import FunctionToolResult, ToolsToFinalOutputResult
from tests.support.rig import MakeAgent, Rig
from tests.support.runs import Served, look


class City(BaseModel):
    name: str
    people: int


@tool(effect="read")
def count() -> int:
    """Count."""
    return 7


class Run(Served):
    """Runs an agent of tools, on the test's own worker."""

    async def __call__(self, given: Any, *tools: Any, of: Any = None, **options: Any) -> Any:
        agent = await self.serve(*tools, **(of or {}))
        return await Runner.run(agent, given, runner=self.runner, **options)


@pytest.fixture
def run(rig: Rig, make_agent: MakeAgent) -> Run:
    return Run(rig, make_agent)


# ---- final output


def message(*texts: str) -> list[dict[str, Any]]:
    return [
        {
            "type": "message",
            "id": f"msg_{i}",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        }
        for i, text in enumerate(texts)
    ]


def body(*output: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "model": "gpt-5-mini",
        "output": list(output),
    }


async def test_steps_give_structured_output_as_json_data(run: Run, model: FakeOpenAI) -> None:
    model.reply('{"name": "Rome", "people": 3}')
    await run.serve(output_type=City)
    runner = run.runner
    task = await runner.create_task("q")
    output = await runner.run_step(task)
    assert (output.is_last, output.output) == (True, {"name": "Rome", "people": 3})


# ---- instructions


@dataclasses.dataclass
class Trip:
    city: str = "Rome"
    seen: int = 0


async def speak(ctx: RunContextWrapper[Trip], agent: Agent) -> str:
    return f"{agent.name} in {ctx.context.city}, seen {ctx.context.seen}, {ctx.usage.requests}"


async def test_a_step_keeps_the_instructions_that_it_began_with(
    run: Run, model: FakeOpenAI
) -> None:
    """A step is run twice here: its tool's result is its end."""
    made: list[str] = []

    def changing(_ctx: object, _agent: object) -> str:
        made.append(f"{len(made)}".rjust(3000, "."))
        return made[-1]

    model.call("look")
    result = await run(
        "q", look, of={"instructions": changing, "tool_use_behavior": "stop_on_first_tool"}
    )
    assert result.final_output == "seen here"
    assert len(made) == 1
    assert model.requests[0].instructions == made[0]


async def test_an_error_of_the_instructions_leaves_the_step_to_be_run_again(
    run: Run, model: FakeOpenAI
) -> None:
    broken = [True]

    def fragile(_ctx: object, _agent: object) -> str:
        if broken:
            raise ZeroDivisionError("mend me")
        return "now"

    with pytest.raises(StepFailedError, match="mend me"):
        await run("q", of={"instructions": fragile}, task_id="loop-instructions")
    broken.clear()
    model.reply("done")
    assert str(await run.runner.run_task("loop-instructions")) == "done"
    assert model.requests[0].instructions == "now"


# ---- tools on offer


def only_with_key(ctx: RunContextWrapper[Any], _agent: Agent) -> bool:
    return "key" in ctx.context


@tool(effect="read", is_enabled=only_with_key)
def open_door() -> str:
    """Open the door."""
    return "open"


@tool(effect="read", is_enabled=False)
def never() -> str:
    """Never on offer."""
    return "never"


async def test_steps_tell_the_model_of_a_tool_that_is_not_on_offer(
    run: Run, model: FakeOpenAI
) -> None:
    model.call("open_door")
    model.reply("done")
    await run.serve(look, open_door)
    runner = run.runner
    assert str(await runner.run_task(await runner.create_task("q", extra_state={"context": {}})))
    assert "not on offer" in model.requests[1].results["call_1"]


# ---- what follows tool calls


class Weather(BaseModel):
    city: str
    degrees: int = 0


@dataclasses.dataclass
class Tide:
    metres: float


@tool
def weather(city: str) -> Weather:
    return Weather(city=city, degrees=20)


@tool
def tide() -> Tide:
    return Tide(1.5)


@tool
def storm() -> Weather:
    raise ValueError("no data")


async def test_a_function_that_decides_gets_objects_as_the_tools_return_them(
    run: Run, model: FakeOpenAI
) -> None:
    def decide(_ctx: object, results: list[FunctionToolResult]) -> ToolsToFinalOutputResult:
        told = [result.output for result in results]
        assert isinstance(told[2], str)  # a failure stays a text
        return ToolsToFinalOutputResult(True, f"{told[0].city} {told[0].degrees} {told[1].metres}")

    model.calls([("weather", {"city": "Rome"}), ("tide", {}), ("storm", {})])
    result = await run("q", weather, tide, storm, of={"tool_use_behavior": decide})
    assert result.final_output == "Rome 20 1.5"
