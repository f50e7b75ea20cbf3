"""How a run is asked for: what is refused, and that nothing is left of what was refused."""

import asyncio
from typing import Any

import pytest

from holdfast import Runner, UserError, tool
from tests.support.rig import until
from tests.support.runs import Runs, look


@tool(needs_approval=True)
def pay(to: str = "ann") -> str:
    """Pay somebody."""
    return f"paid {to}"


@pytest.mark.parametrize(
    ("agent", "given", "arguments", "text"),
    [
        ("", 5, {}, "input=5"),
        ("", b"q", {}, "is not input"),
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


async def test_a_state_may_be_run_with_the_session_that_it_has(run: Runs) -> None:
    run.model.call("pay")
    result = await run("q", pay, session="s1")
    state = result.to_state()
    state.approve(state.get_interruptions()[0])
    with pytest.raises(UserError, match=r"has session 's1', and keeps it: .* session 's2'"):
        await run(state, session="s2")
    run.model.reply("done")
    assert (await run(state, session="s1")).final_output == "done"
    assert (await run(state, session=run.runner.session("s1"))).final_output == "done"


async def test_a_state_without_a_session_is_given_none(run: Runs) -> None:
    run.model.call("pay")
    state = (await run("q", pay)).to_state()
    with pytest.raises(UserError, match="has no session, and keeps it"):
        await run(state, session="s1")
    with pytest.raises(UserError, match="cannot be run as 'other'"):
        await run(state, task_id="other")


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
async def test_a_list_of_tasks_shows_what_was_asked_last(run: Runs, given: Any) -> None:
    run.model.reply("Rome.")
    result = await Runner.run(await run.serve(), given, runner=run.runner)

    async def shown() -> list[str]:
        listed = await run.runner.list_tasks()
        return [each.input.strip() for each in listed if each.task_id == result.task_id]

    assert await until(shown) == ["Which city?"]
