"""The agent loop: final outputs, instructions, tools on offer, and what follows tool calls."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import (
    Agent,
    ModelBehaviorError,
    ModelSettings,
    RunConfig,
    Runner,
    StepFailedError,
    ToolContext,
    UserError,
    tool,
)
from holdfast.agents.tools.error_texts import ToolErrorFormatterArgs
from holdfast.errors import ModelRefusalError
from holdfast.testing import FakeOpenAI
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.values.steps import ToolOutput
from holdfast.workers.tool_use import FunctionToolResult, ToolsToFinalOutputResult
from tests.support.rig import MakeAgent, Rig, activities_of
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


async def test_of_two_messages_the_last_is_final_and_both_are_items(
    run: Run, model: FakeOpenAI
) -> None:
    model.raw(body(*message("one", "two")))
    result = await run("q")
    assert result.final_output == "two"
    assert [i.raw_item.content[0].text for i in result.new_items] == ["one", "two"]


async def test_an_output_type_is_sent_validated_and_given_back_typed(
    run: Run, model: FakeOpenAI
) -> None:
    model.reply('{"name": "Rome", "people": 3}')
    result = await run("q", of={"output_type": City})
    sent = model.requests[0].body["text"]["format"]
    assert (sent["type"], sent["strict"]) == ("json_schema", True)
    assert sent["schema"]["required"] == ["name", "people"]
    assert result.final_output == City(name="Rome", people=3)


async def test_what_is_no_object_travels_in_a_wrapper(run: Run, model: FakeOpenAI) -> None:
    model.reply('{"response": [1, 2]}')
    result = await run("q", of={"output_type": list[int]})
    assert model.requests[0].body["text"]["format"]["schema"]["required"] == ["response"]
    assert result.final_output == [1, 2]


async def test_steps_give_structured_output_as_json_data(run: Run, model: FakeOpenAI) -> None:
    model.reply('{"name": "Rome", "people": 3}')
    await run.serve(output_type=City)
    runner = run.runner
    task = await runner.create_task("q")
    output = await runner.run_step(task)
    assert (output.is_last, output.output) == (True, {"name": "Rome", "people": 3})


@pytest.mark.parametrize("text", ["no JSON", '{"name": "Rome"}', '{"name": "R", "people": "3"}'])
async def test_an_answer_that_does_not_fit_ends_the_run_without_another_call(
    run: Run, model: FakeOpenAI, text: str
) -> None:
    model.reply(text)
    with pytest.raises(ModelBehaviorError, match="Invalid JSON"):
        await run("q", of={"output_type": City})
    assert len(model.requests) == 1


async def test_no_output_where_a_type_wants_one_takes_another_turn(
    run: Run, model: FakeOpenAI
) -> None:
    model.reply("")
    model.reply('{"name": "Rome", "people": 3}')
    await run("q", of={"output_type": City}, task_id="loop-again")
    assert len(model.requests) == 2
    assert len(await run.runner.get_completed_steps("loop-again")) == 2


async def test_a_refusal_ends_the_run_with_its_words(run: Run, model: FakeOpenAI) -> None:
    model.refuse("I will not")
    with pytest.raises(ModelRefusalError, match=r"^Model refused to produce output: I will not$"):
        await run("q")


async def test_a_refusal_is_the_answer_of_steps(run: Run, model: FakeOpenAI) -> None:
    model.refuse("I will not")
    await run.serve(output_type=City)
    runner = run.runner
    output = await runner.run_step(await runner.create_task("q"))
    assert (output.is_last, output.output) == (True, "I will not")


# ---- instructions


@dataclasses.dataclass
class Trip:
    city: str = "Rome"
    seen: int = 0


async def speak(ctx: RunContextWrapper[Trip], agent: Agent) -> str:
    return f"{agent.name} in {ctx.context.city}, seen {ctx.context.seen}, {ctx.usage.requests}"


@tool(effect="read")
def visit(ctx: ToolContext) -> str:
    """Go somewhere."""
    ctx.context.seen += 1
    return "been there"


async def test_instructions_are_made_for_every_turn_with_the_live_context(
    run: Run, model: FakeOpenAI
) -> None:
    model.call("visit")
    model.reply("done")
    await run("q", visit, of={"instructions": speak}, context=Trip())
    assert [request.instructions for request in model.requests] == [
        "agent in Rome, seen 0, 0",
        "agent in Rome, seen 1, 1",
    ]


@pytest.mark.parametrize("size", [20, 3000])
async def test_a_step_keeps_the_instructions_that_it_began_with(
    run: Run, model: FakeOpenAI, size: int
) -> None:
    """A step is run twice here: its tool's result is its end."""
    made: list[str] = []

    def changing(_ctx: object, _agent: object) -> str:
        made.append(f"{len(made)}".rjust(size, "."))
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


@tool(effect="read")
def find_key(ctx: ToolContext) -> str:
    """Find the key."""
    ctx.context["key"] = 1
    return "found"


async def test_a_predicate_decides_for_each_turn_what_is_offered(
    run: Run, model: FakeOpenAI
) -> None:
    model.call("find_key")
    model.call("open_door")
    model.reply("done")
    await run("q", find_key, open_door, never, context={})
    assert [[t.name for t in r.tools] for r in model.requests] == [
        ["find_key"],
        ["find_key", "open_door"],
        ["find_key", "open_door"],
    ]


@pytest.mark.parametrize("name", ["open_door", "never", "nope"])
async def test_a_call_of_what_is_not_offered_ends_the_run_before_any_tool_runs(
    run: Run, model: FakeOpenAI, name: str
) -> None:
    model.calls([("look", {}), (name, {})])
    with pytest.raises(ModelBehaviorError, match=f"Tool {name} not found in agent agent"):
        await run("q", look, open_door, never, context={}, task_id=f"loop-{name}")
    assert await activities_of(run.runner.client, f"loop-{name}") == ["describe", "step"]


async def test_the_model_may_be_told_instead_in_words_of_the_run(
    run: Run, model: FakeOpenAI
) -> None:
    model.calls([("look", {}), ("open_door", {}), ("nope", {})])
    model.reply("done")

    def words(args: ToolErrorFormatterArgs) -> str | None:
        return None if args.tool_name == "nope" else f"no {args.kind}"

    config = RunConfig(tool_not_found_behavior="return_error_to_model", tool_error_formatter=words)
    await run("q", look, open_door, context={}, run_config=config)
    assert model.requests[1].results == {
        "call_1": "seen here",
        "call_2": "no tool_not_found",
        "call_3": "Tool 'nope' not found.",
    }


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


async def test_the_first_result_may_be_the_end(run: Run, model: FakeOpenAI) -> None:
    model.calls([("count", {}), ("look", {})])
    result = await run("q", look, count, of={"tool_use_behavior": "stop_on_first_tool"})
    assert result.final_output == "7"
    assert [item.type for item in result.new_items] == [
        *["tool_call_item"] * 2,
        *["tool_call_output_item"] * 2,
    ]


async def test_only_a_named_tool_is_the_end(run: Run, model: FakeOpenAI) -> None:
    model.call("look")
    model.calls([("look", {}), ("count", {})])
    behavior = {"stop_at_tool_names": ["count"]}
    result = await run("q", look, count, of={"tool_use_behavior": behavior})
    assert (result.final_output, len(model.requests)) == ("7", 2)


async def test_a_result_that_ends_a_run_is_read_as_the_output_type_has_it(
    run: Run, model: FakeOpenAI
) -> None:
    model.call("count")
    of = {"tool_use_behavior": "stop_on_first_tool", "output_type": int}
    assert (await run("q", count, of=of)).final_output == 7


async def test_a_function_may_decide_with_the_context_and_all_results(
    run: Run, model: FakeOpenAI
) -> None:
    async def decide(
        ctx: RunContextWrapper[Any], results: list[ToolOutput]
    ) -> ToolsToFinalOutputResult:
        done = "key" in ctx.context
        return ToolsToFinalOutputResult(done, [r.content for r in results] if done else None)

    model.call("look")
    model.calls([("find_key", {}), ("look", {})])
    result = await run("q", look, find_key, of={"tool_use_behavior": decide}, context={})
    assert result.final_output == "['found', 'seen here']"


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


async def test_a_function_that_returns_something_else_is_an_error_of_the_user(
    run: Run, model: FakeOpenAI
) -> None:
    def decide(_ctx: object, _results: object) -> bool:
        return True

    model.call("look")
    with pytest.raises(UserError, match="ToolsToFinalOutputResult"):
        await run("q", look, of={"tool_use_behavior": decide})


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        ({}, ["required", "required", None]),
        ({"reset_tool_choice": False}, ["required", "required", "required"]),
    ],
)
async def test_a_tool_choice_stands_until_a_tool_was_used(
    run: Run, model: FakeOpenAI, of: dict[str, Any], expected: list[Any]
) -> None:
    """The answer in between is empty, which takes another turn."""
    model.reply("")
    model.call("look")
    model.reply('{"response": 1}')
    settings = ModelSettings(tool_choice="required")
    await run("q", look, of={"output_type": int, "model_settings": settings, **of})
    assert [request.body.get("tool_choice") for request in model.requests] == expected
