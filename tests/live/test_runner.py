"""Runner: end to end, with the semantics of the OpenAI Agents SDK."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import (
    Agent,
    MaxTurnsExceeded,
    ModelBehaviorError,
    ModelSettings,
    RunConfig,
    Runner,
    StepFailedError,
    UserError,
    tool,
)
from holdfast.errors import TaskExistsError
from holdfast.testing import FakeOpenAI
from holdfast.values.messages import assistant, user
from tests.support.rig import MakeAgent, Rig, until_status
from tests.support.runs import Served, look
from tests.support.workers import said


class Run(Served):
    """Runs an agent of tools, on the test's own worker."""

    async def __call__(
        self, given: Any, *tools: Any, agent: Agent | None = None, **options: Any
    ) -> Any:
        agent = agent or self.make_agent(*tools)
        await self.rig.serve(agent)
        return await Runner.run(agent, given, runner=self.runner, **options)


@pytest.fixture
def run(rig: Rig, make_agent: MakeAgent) -> Run:
    return Run(rig, make_agent)


async def test_a_text_answer_is_the_final_output_after_one_call(
    run: Run, model: FakeOpenAI
) -> None:
    model.reply("hello")
    result = await run("hi")
    assert result.final_output == "hello"
    assert [item.type for item in result.new_items] == ["message_output_item"]
    assert result.last_agent.name == "agent"
    assert result.usage.requests == len(model.requests) == 1


async def test_an_empty_answer_is_an_empty_final_output(run: Run, model: FakeOpenAI) -> None:
    model.reply("")
    assert (await run("hi")).final_output == ""


async def test_a_text_beside_a_call_stays_in_the_items(run: Run, model: FakeOpenAI) -> None:
    model.call("look", text="let me see")
    model.reply("done")
    result = await run("q", look)
    assert [item.type for item in result.new_items] == [
        "message_output_item",
        "tool_call_item",
        "tool_call_output_item",
        "message_output_item",
    ]
    assert result.final_output == "done"


async def test_a_list_of_items_is_sent_as_it_is(run: Run, model: FakeOpenAI) -> None:
    model.reply("done")
    given = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"},
    ]
    result = await run(given)
    assert said(model.requests[0].messages) == [
        ("user", "one"),
        ("assistant", "two"),
        ("user", "three"),
    ]
    assert result.input == given
    assert [item.type for item in result.new_items] == ["message_output_item"]


async def test_an_empty_list_asks_the_model_with_its_instructions_alone(
    run: Run, model: FakeOpenAI
) -> None:
    model.reply("hello")
    result = await run([])
    assert said(model.requests[0].messages) == []
    assert (result.input, result.final_output) == ([], "hello")


async def test_the_input_list_of_a_run_continues_the_conversation(
    run: Run, model: FakeOpenAI
) -> None:
    model.call("look")
    model.reply("done")
    first = await run("q", look)
    model.reply("again")
    await run([*first.to_input_list(), {"role": "user", "content": "more"}], look)
    messages = model.requests[2].messages
    assert said(messages) == [
        ("user", "q"),
        ("assistant", ""),
        ("tool", "seen here"),
        ("assistant", "done"),
        ("user", "more"),
    ]
    assert messages[1].calls[0].id == messages[2].call_id == "call_1"


async def test_max_turns_runs_the_tools_of_the_last_turn_and_then_raises(
    run: Run, model: FakeOpenAI
) -> None:
    model.call("look", {"where": "a"})
    model.call("look", {"where": "b"})
    with pytest.raises(MaxTurnsExceeded) as caught:
        await run("q", look, max_turns=2, task_id="runner-max-turns")
    assert "Max turns (2) exceeded" in str(caught.value)
    data = caught.value.run_data
    assert [item.type for item in data.new_items] == [
        "tool_call_item",
        "tool_call_output_item",
    ] * 2
    assert data.usage.requests == len(model.requests) == 2
    assert data.task_id == "runner-max-turns"


async def test_max_turns_of_zero_makes_no_call(run: Run, model: FakeOpenAI) -> None:
    with pytest.raises(MaxTurnsExceeded):
        await run("q", max_turns=0)
    assert model.requests == []


async def test_max_turns_of_none_is_no_limit(run: Run, model: FakeOpenAI) -> None:
    for _ in range(12):
        model.call("look")
    model.reply("done")
    assert (await run("q", look, max_turns=None)).final_output == "done"


async def test_negative_max_turns_are_refused(run: Run) -> None:
    with pytest.raises(UserError, match="-1"):
        await run("q", max_turns=-1)


async def test_the_default_limit_is_ten_turns(run: Run, model: FakeOpenAI) -> None:
    for _ in range(10):
        model.call("look")
    with pytest.raises(MaxTurnsExceeded, match="10"):
        await run("q", look)


async def test_all_calls_of_an_answer_start_before_any_ends(run: Run, model: FakeOpenAI) -> None:
    import asyncio

    barrier = asyncio.Barrier(3)

    @tool(effect="read")
    async def meet(n: int) -> str:
        """Wait for the others."""
        await asyncio.wait_for(barrier.wait(), 100)
        return f"met {n}"

    model.calls([("meet", {"n": 1}), ("meet", {"n": 2}), ("meet", {"n": 3})])
    model.reply("done")
    result = await run("q", meet)
    outputs = [i.raw_item["output"] for i in result.new_items if i.type == "tool_call_output_item"]
    assert outputs == ["met 1", "met 2", "met 3"]


async def test_a_tool_that_raises_gives_a_fixed_text_without_detail(
    run: Run, model: FakeOpenAI
) -> None:
    @tool
    def act() -> str:
        """Fail."""
        raise ValueError("the secret detail")

    model.call("act")
    model.reply("sorry")
    result = await run("q", act)
    assert result.final_output == "sorry"
    assert "An error occurred" in model.requests[1].results["call_1"]
    assert not model.requests[1].holds("secret detail")


async def test_a_failure_function_gives_the_text(run: Run, model: FakeOpenAI) -> None:
    async def formatter(ctx: Any, error: Exception) -> str:
        return f"{ctx.tool_name} says {error}"

    @tool(failure_error_function=formatter)
    def act() -> str:
        """Fail."""
        raise ValueError("no")

    model.call("act")
    model.reply("sorry")
    await run("q", act)
    assert model.requests[1].results["call_1"] == "act says no"


async def test_without_failure_function_the_run_ends_with_a_user_error(
    run: Run, model: FakeOpenAI
) -> None:
    @tool(failure_error_function=None)
    def act() -> str:
        """Fail."""
        raise ValueError("the cause")

    model.call("act")
    with pytest.raises(UserError, match=r"act.*the cause"):
        await run("q", act)


async def test_malformed_arguments_are_told_and_the_body_does_not_run(
    run: Run, model: FakeOpenAI
) -> None:
    ran: list[int] = []

    @tool
    def act(n: int) -> str:
        """Act."""
        ran.append(n)
        return "done"

    model.call("act", '{"n": ')
    model.reply("sorry")
    await run("q", act)
    assert "JSON" in model.requests[1].results["call_1"]
    assert ran == []


async def test_an_unknown_tool_ends_the_run(run: Run, model: FakeOpenAI) -> None:
    model.call("nope")
    with pytest.raises(ModelBehaviorError, match="nope") as caught:
        await run("q", look, task_id="runner-unknown-tool")
    assert caught.value.run_data.usage.requests == 1
    assert (await until_status(run.runner, "runner-unknown-tool", "failed")).error


async def test_results_that_are_no_text_are_sent_as_text(run: Run, model: FakeOpenAI) -> None:
    @tool(effect="read")
    def number() -> int:
        """Give a number."""
        return 5

    @tool(effect="read")
    def nothing() -> None:
        """Give nothing."""

    model.calls([("number", {}), ("nothing", {})])
    model.reply("done")
    await run("q", number, nothing)
    assert list(model.requests[1].results.values()) == ["5", "None"]


async def test_a_run_sees_its_session_and_adds_to_it(run: Run, model: FakeOpenAI) -> None:
    session = run.runner.session("s")
    await session.append([user("before"), assistant("yes")])
    model.call("look")
    model.reply("done")
    await run("q", look, session=session)
    assert said(model.requests[0].messages) == [
        ("user", "before"),
        ("assistant", "yes"),
        ("user", "q"),
    ]
    assert said(await session.chat_history()) == [
        ("user", "before"),
        ("assistant", "yes"),
        ("user", "q"),
        ("assistant", ""),
        ("tool", "seen here"),
        ("assistant", "done"),
    ]


async def test_the_final_output_can_be_asked_for_with_its_type(run: Run, model: FakeOpenAI) -> None:
    model.reply("text")
    result = await run("q")
    assert result.final_output_as(str, raise_if_incorrect_type=True) == "text"
    assert result.final_output_as(int) == "text"
    with pytest.raises(TypeError, match="int"):
        result.final_output_as(int, raise_if_incorrect_type=True)


async def test_run_settings_lie_over_those_of_the_agent_field_by_field(
    run: Run, model: FakeOpenAI, make_agent: MakeAgent
) -> None:
    agent = make_agent(model_settings=ModelSettings(temperature=0.1, max_tokens=50))
    model.reply("done")
    config = RunConfig(model_settings=ModelSettings(temperature=0.9))
    await run("q", agent=agent, run_config=config)
    body = model.requests[0].body
    assert (body["temperature"], body["max_output_tokens"]) == (0.9, 50)


async def test_a_model_that_refuses_the_request_leaves_a_task_that_can_be_healed(
    run: Run, model: FakeOpenAI
) -> None:
    model.fail(401)
    with pytest.raises(StepFailedError, match="401"):
        await run("q", task_id="runner-heal")
    model.reply("healed")
    assert str(await run.runner.run_task("runner-heal")) == "healed"
    assert (await until_status(run.runner, "runner-heal", "finished")).status == "finished"


async def test_a_task_id_is_refused_the_second_time(run: Run, model: FakeOpenAI) -> None:
    model.reply("done")
    await run("q", task_id="runner-twice")
    with pytest.raises(TaskExistsError):
        await run("q", task_id="runner-twice")


async def test_run_sync_is_refused_inside_a_loop(make_agent: MakeAgent) -> None:
    with pytest.raises(RuntimeError, match=r"await Runner\.run"):
        Runner.run_sync(make_agent(), "q")
