"""Answers with which a task could not go on: what is run of them, and what becomes of the task."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from holdfast import AgentRunner, Runner, Tool, tool
from holdfast.errors import StalledTaskError
from holdfast.models import ChatCompletionsModel
from holdfast.testing import FakeOpenAI
from holdfast.testing.fake_api.replies import Answer, CallSpec
from tests.support.rig import MakeAgent, MakeRunner, Rig

CUT = "Not run: the answer was cut off"


def odd(
    *calls: tuple[str, str, dict[str, Any]],
    text: str = "",
    finish: Literal["", "length", "content_filter"] = "",
) -> Answer:
    """Answer with calls: id, tool and arguments of each."""
    specs = tuple(CallSpec(id=id, name=name, arguments=given) for id, name, given in calls)
    return Answer(text=text, calls=specs, finish=finish)


@pytest.fixture
def ran() -> list[str]:
    return []


@pytest.fixture
def look(ran: list[str]) -> Tool:
    @tool
    def look(where: str = "here") -> str:
        """Look somewhere."""
        ran.append(where)
        return f"seen {where}"

    return look


async def finished(runner: AgentRunner) -> Any:
    """Run a task to its answer."""
    task = await runner.create_task("q")
    return (await runner.run_task(task)).output


async def test_a_call_that_is_said_twice_is_run_once(
    make_runner: MakeRunner, model: FakeOpenAI, look: Tool, ran: list[str]
) -> None:
    runner = await make_runner(look)
    model.add(odd(("c", "look", {"where": "a"}), ("c", "look", {"where": "a"})))
    model.reply("done")
    assert await finished(runner) == "done"
    assert ran == ["a"]
    assert model.requests[1].results == {"c": "seen a"}


async def test_different_calls_of_one_id_get_ids_of_their_own_in_the_step_api(
    make_runner: MakeRunner, model: FakeOpenAI, look: Tool, ran: list[str]
) -> None:
    runner = await make_runner(look)
    places = ("a", "b", "a", "b", "c")
    model.add(odd(*(("c", "look", {"where": place}) for place in places)))
    model.reply("done")
    assert await finished(runner) == "done"
    assert sorted(ran) == ["a", "b", "c"]
    assert model.requests[1].results == {"c": "seen a", "c_2": "seen b", "c_3": "seen c"}


async def test_calls_of_an_answer_that_is_cut_off_are_not_run_and_the_model_is_told(
    make_runner: MakeRunner, model: FakeOpenAI, look: Tool, ran: list[str]
) -> None:
    runner = await make_runner(look)
    model.add(odd(("c", "look", {"where": "a"}), ("d", "look", {}), finish="length"))
    model.call("look", {"where": "b"})
    model.reply("done")
    assert await finished(runner) == "done"
    assert ran == ["b"]
    assert [text.startswith(CUT) for text in model.requests[1].results.values()] == [True, True]


async def test_a_step_without_a_word_fails_and_may_be_started_anew(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    model.reply("", finish="length")
    model.reply("done")
    task = await runner.create_task("q")
    for _ in range(2):
        with pytest.raises(StalledTaskError, match=r'incomplete.*restart="step"'):
            await runner.run_step(task)
    assert (await runner.run_step(task, restart="step")).output == "done"


async def test_an_item_that_nobody_answers_fails_its_step_which_may_be_started_anew(
    make_runner: MakeRunner, model: FakeOpenAI, look: Tool, ran: list[str]
) -> None:
    runner = await make_runner(look)
    click: dict[str, Any] = {"type": "computer_call", "id": "cu_1", "call_id": "c", "action": {}}
    call = {"type": "function_call", "call_id": "d", "name": "look", "arguments": "{}"}
    model.raw({"id": "r", "object": "response", "status": "completed", "output": [click, call]})
    model.reply("done")
    task = await runner.create_task("q")
    with pytest.raises(StalledTaskError, match="'computer_call'"):
        await runner.run_step(task)
    assert (await runner.run_step(task, restart="step")).output == "done"
    assert ran == []


class ChatRun:
    """Runs an agent whose model is behind Chat Completions."""

    def __init__(self, rig: Rig, make_agent: MakeAgent, model: FakeOpenAI) -> None:
        self.rig = rig
        self.make_agent = make_agent
        self.base_url = model.base_url

    async def __call__(self, *tools: Any, **options: Any) -> Any:
        model = ChatCompletionsModel("m", base_url=self.base_url, api_key="sk-of-the-tests-1")
        agent = self.make_agent(*tools, **options).clone(model=model)
        await self.rig.serve(agent)
        try:
            return await Runner.run(agent, "q", runner=self.rig.runner())
        finally:
            await model.close()


@pytest.fixture
def chat(rig: Rig, make_agent: MakeAgent, model: FakeOpenAI) -> ChatRun:
    return ChatRun(rig, make_agent, model)


async def test_calls_that_chat_completions_cut_off_are_not_run(
    chat: ChatRun, model: FakeOpenAI, look: Tool, ran: list[str], make_agent: MakeAgent
) -> None:
    transfer: tuple[str, str, dict[str, Any]] = ("d", "transfer_to_other", {})
    model.add(odd(("c", "look", {"where": "a"}), transfer, finish="length"))
    model.reply("done")
    other = make_agent(name="other")
    result = await chat(look, handoffs=[other], tool_use_behavior="stop_on_first_tool")
    assert (result.final_output, result.last_agent.name, ran) == ("done", "agent", [])
