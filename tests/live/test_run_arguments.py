"""How a run is asked for: what is refused, and that nothing is left of what was refused."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from holdfast import RunHooks, Runner, UserError, sync, tool
from holdfast.errors import TaskExistsError
from holdfast.testing import FakeOpenAI
from holdfast.values.code import code_refs
from tests.support.rig import MakeAgent, Rig, until
from tests.support.runs import Runs, look


@pytest.fixture
def run(rig: Rig, make_agent: MakeAgent) -> Runs:
    return Runs(rig, make_agent)


@tool(needs_approval=True)
def pay(to: str = "ann") -> str:
    """Pay somebody."""
    return f"paid {to}"


def named() -> dict[str, int]:
    """Say what code this process has named, and how often."""
    return dict(code_refs._uses)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("agent", "given", "arguments", "text"),
    [
        ("", 5, {}, "input=5"),
        ("", b"q", {}, "is no input"),
        ("nobody", "q", {}, "starting_agent must be an Agent"),
        ("", "q", {"runner": "here"}, "runner must be an AgentRunner"),
        ("", "q", {"max_turns": -1}, "max_turns"),
    ],
)
async def test_a_streamed_run_refuses_what_a_run_refuses(
    run: Runs, agent: Any, given: Any, arguments: dict[str, Any], text: str
) -> None:
    options: dict[str, Any] = {"runner": run.runner, **arguments}
    agent = agent or await run.serve(look)
    with pytest.raises(UserError, match=text):
        Runner.run_streamed(agent, given, **options)
    with pytest.raises(UserError, match=text):
        await Runner.run(agent, given, **options)


async def test_an_argument_that_there_is_not_is_refused_by_each_way_to_run(run: Runs) -> None:
    agent = await run.serve(look)
    options: dict[str, Any] = {"runner": run.runner, "max_turn": 3}
    with pytest.raises(TypeError, match="max_turn"):
        Runner.run_streamed(agent, "q", **options)
    with pytest.raises(TypeError, match="max_turn"):
        await Runner.run(agent, "q", **options)
    with pytest.raises(TypeError, match="max_turn"):
        await asyncio.to_thread(Runner.run_sync, agent, "q", **options)


async def test_a_state_may_be_run_with_the_session_that_it_has(
    run: Runs, model: FakeOpenAI
) -> None:
    model.call("pay")
    result = await run("q", pay, session="s1")
    state = result.to_state()
    state.approve(state.get_interruptions()[0])
    with pytest.raises(UserError, match=r"has session 's1', and keeps it: .* session 's2'"):
        await run(state, session="s2")
    model.reply("done")
    assert (await run(state, session="s1")).final_output == "done"
    assert (await run(state, session=run.runner.session("s1"))).final_output == "done"


async def test_a_state_without_a_session_is_given_none(run: Runs, model: FakeOpenAI) -> None:
    model.call("pay")
    state = (await run("q", pay)).to_state()
    with pytest.raises(UserError, match="has no session, and keeps it"):
        await run(state, session="s1")
    with pytest.raises(UserError, match="cannot be run as 'other'"):
        await run(state, task_id="other")


class Fails(RunHooks):
    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        raise LookupError(str(response))


@pytest.mark.parametrize(
    ("given", "options", "error"),
    [
        (5, {}, UserError),
        ("q", {"max_turns": -1}, UserError),
        ("q", {"runner": 5}, UserError),
        ("q", {"task_id": "twice"}, TaskExistsError),
        ("q", {"hooks": Fails()}, LookupError),
    ],
)
async def test_code_that_was_named_for_a_run_that_is_not_run_is_let_go(
    run: Runs, model: FakeOpenAI, given: Any, options: dict[str, Any], error: type[Exception]
) -> None:
    async def unchanged(data: Any) -> Any:
        return data.model_data

    agent = await run.serve(look)
    if error is not UserError:
        model.reply("done")
    if error is TaskExistsError:
        options = {"task_id": f"{run.rig.app}-twice"}
        await run("q", **options)
    before = named()
    arguments: dict[str, Any] = {
        "runner": run.runner,
        "run_config": {"call_model_input_filter": unchanged},
        **options,
    }
    with pytest.raises(error):
        await Runner.run(agent, given, **arguments)
    assert named() == before


async def test_a_refused_resumption_leaves_the_run_its_code(run: Runs, model: FakeOpenAI) -> None:
    async def unchanged(data: Any) -> Any:
        return data.model_data

    before = named()
    config = {"call_model_input_filter": unchanged}
    model.call("pay")
    state = (await run("q", pay, run_config=config)).to_state()
    began = named()
    with pytest.raises(UserError, match="session"):
        await run(state, session="other", run_config=config)
    assert named() == began
    state.approve(state.get_interruptions()[0])
    model.reply("done")
    assert (await run(state, run_config=config)).final_output == "done"
    assert named() == before
    await run(state)
    assert named() == before


async def test_a_refused_task_id_leaves_nothing_for_the_loop_to_complain_of(
    run: Runs, model: FakeOpenAI
) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, said: complaints.append(said))
    model.call("pay")
    task_id = (await run("q", pay)).task_id
    for _ in range(2):
        with pytest.raises(TaskExistsError):
            await run("q", task_id=task_id)
    gc.collect()
    await asyncio.sleep(0)
    asyncio.get_running_loop().set_exception_handler(None)
    assert complaints == []


async def test_a_handle_of_the_blocking_twin_serves_a_run_too(run: Runs, model: FakeOpenAI) -> None:
    agent = await run.serve(look)
    model.reply("one")
    model.reply("two")
    twin = sync.AgentRunner(run.runner)
    result = await Runner.run(agent, "q", runner=twin, session=twin.session("s"))
    assert result.final_output == "one"
    stream = Runner.run_streamed(agent, "q", runner=twin, session=twin.session("s"))
    assert [event async for event in stream.stream_events()]
    assert stream.final_output == "two"


@pytest.mark.parametrize(
    "given",
    [
        [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Good day"},
            {"role": "user", "content": [{"type": "input_text", "text": "Which city?"}]},
        ],
        "Which city?" + 20_000 * " ",
    ],
    ids=["items", "a large text"],
)
async def test_a_list_of_tasks_shows_what_was_asked_last(
    run: Runs, model: FakeOpenAI, given: Any
) -> None:
    model.reply("Rome.")
    result = await Runner.run(await run.serve(), given, runner=run.runner)

    async def shown() -> list[str]:
        listed = await run.runner.list_tasks()
        return [each.input.strip() for each in listed if each.task_id == result.task_id]

    assert await until(shown) == ["Which city?"]
