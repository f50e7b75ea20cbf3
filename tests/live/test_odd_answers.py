"""Answers with which a task could not go on: what is run of them, and what becomes of the task."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from holdfast import Agent, AgentRunner, ModelSettings, Runner, tool
from holdfast.agents_sdk import Tool
from holdfast.client.runner.runner import RunState
from holdfast.errors import InvalidArgumentError, UnfitAnswerError
from holdfast.models import ChatCompletionsModel, ResponsesModel
from holdfast.testing import call, malformed, raw
from holdfast.testing.fake_api.replies import Answer, CallSpec
from holdfast.workers.function_calling import FunctionCallingAgentWorker
from tests.fuzz.answers import fuzz
from tests.support.hostile import (
    Bytes,
    HostileServer,
    chat,
    hostile_server,
    in_turn,
    message,
    responses,
    sent,
)
from tests.support.rig import Rig, until_status
from tests.support.scale import times

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


async def test_different_calls_of_one_id_get_ids_of_their_own_in_the_step_api(
    rig: Rig, look: Tool, ran: list[str]
) -> None:
    runner = await rig.make(look)
    places = ("a", "b", "a", "b", "c")
    rig.model.add(odd(*(("c", "look", {"where": place}) for place in places)), "done")
    assert await finished(runner) == "done"
    assert sorted(ran) == ["a", "b", "c"]
    assert rig.model.requests[1].results == {"c": "seen a", "c_2": "seen b", "c_3": "seen c"}


async def test_calls_of_an_answer_that_is_cut_off_are_not_run_and_the_model_is_told(
    rig: Rig, look: Tool, ran: list[str]
) -> None:
    runner = await rig.make(look)
    rig.model.add(odd(("c", "look", {"where": "a"}), ("d", "look", {}), finish="length"))
    rig.model.call("look", {"where": "b"})
    rig.model.reply("done")
    assert await finished(runner) == "done"
    assert ran == ["b"]
    assert [text.startswith(CUT) for text in rig.model.requests[1].results.values()] == [True, True]


async def test_names_and_arguments_that_mean_one_thing_alone_are_taken_for_it(
    rig: Rig, look: Tool, ran: list[str]
) -> None:
    @tool
    def ping() -> str:
        """Ping."""
        ran.append("ping")
        return "pong"

    runner = await rig.make(look, ping)
    rig.model.calls([("functions.look", {"where": "a"}), (" look ", {"where": "b"})])
    rig.model.calls([("ping", given) for given in ("null", "[]", "", "{}")])
    rig.model.calls([("functions.pay", {}), ("look", "null")])
    rig.model.reply("done")
    assert await finished(runner) == "done"
    assert sorted(ran) == ["a", "b", *["ping"] * 4]
    *_, pay, nothing = rig.model.requests[3].results.values()
    assert ("not found" in pay, "was not run" in nothing.lower()) == (True, True)


@pytest.mark.parametrize("why", ["The model's answer is empty", ".*not JSON.*base_url"])
async def test_an_answer_that_is_none_is_asked_for_three_times_then_waits_and_goes_on(
    rig: Rig, look: Tool, ran: list[str], why: str
) -> None:
    runner = await rig.make(look)
    rig.model.call("look", {"where": "a"})
    said: dict[str, Any] = {"content": None, "reasoning_content": "hm", "tool_calls": []}
    thought = {
        "status": "completed",
        "output": [{"type": "reasoning", "id": "rs_1", "summary": []}],
        "choices": [{"index": 0, "message": said, "finish_reason": "stop"}],
    }
    rig.model.add(*[malformed() if "JSON" in why else raw(thought)] * 3)
    task = await runner.create_task("q")
    with pytest.raises(UnfitAnswerError, match=f"(?s)asked 3 times: {why}"):
        await runner.run_task(task)
    known = await runner.get_task(task)
    assert (known.status, known.usage.requests) == ("needs_attention", 4)
    rig.model.reply("done")
    assert (await runner.run_task(task)).output == "done"
    assert (ran, len(rig.model.requests)) == (["a"], 5)


async def test_a_task_says_how_often_its_model_is_asked_for_one_answer(rig: Rig) -> None:
    runner = await rig.make()
    for _ in range(2):
        rig.model.reply("")
    task = await runner.create_task("q", max_output_attempts=1)
    with pytest.raises(UnfitAnswerError, match="asked 1 times"):
        await runner.run_step(task)
    with pytest.raises(UnfitAnswerError, match="asked 1 times"):
        await runner.chat("q", max_output_attempts=1)
    with pytest.raises(InvalidArgumentError, match="max_output_attempts"):
        await runner.create_task("q", max_output_attempts=0)


@pytest.mark.parametrize("text", ["", "I look again."])
async def test_a_call_beyond_the_most_is_told_to_the_model_and_no_answer(
    rig: Rig, look: Tool, ran: list[str], text: str
) -> None:
    runner = await rig.make(look, worker=FunctionCallingAgentWorker(max_function_calls=1))
    rig.model.call("look", {"where": "a"})
    rig.model.call("look", {"where": "b"}, text=text)
    rig.model.reply("done")
    assert (await runner.run_task(await runner.create_task("q"))).output == "done"
    assert "budget of tool calls for this task is used up" in str(rig.model.requests[-1].body)
    assert ran == ["a"]


class Order(BaseModel):
    """What a model is asked for."""

    id: int


async def test_a_run_goes_on_after_an_unknown_tool_and_an_unfit_output(
    rig: Rig, look: Tool
) -> None:
    agent = rig.agent(look, output_type=Order)
    await rig.serve(agent)
    rig.model.add(call("lok", {}), "none", '```json\n{"id": 7.0}\n```')
    done = await Runner.run(agent, "q", runner=rig.runner())
    assert done.final_output == Order(id=7)
    assert [done.context_wrapper.usage.requests, len(rig.model.requests)] == [3, 3]
    assert "Tool 'lok' not found" in str(rig.model.requests[1].body)
    assert "none" not in str(done.to_input_list())  # the next turn sees the answer of use alone


@pytest.mark.parametrize("kept", [{"auto_previous_response_id": True}, {"conversation_id": "c"}])
async def test_a_conversation_that_the_provider_keeps_goes_on_from_the_output_that_did_not_fit(
    rig: Rig, look: Tool, kept: Any
) -> None:
    agent = rig.agent(look, output_type=Order)
    await rig.serve(agent)
    rig.model.call("look", {})
    for text in ("none", "none", "none", "none", '{"id": 7}'):
        rig.model.reply(text)
    task_id = f"unfit-{len(kept)}-{next(iter(kept))[0]}"
    with pytest.raises(UnfitAnswerError):
        await Runner.run(agent, "q", runner=rig.runner(), task_id=task_id, **kept)
    await rig.runner().give_feedback(task_id, "It is 7.", by="ann")
    done = await Runner.run(agent, RunState.of(task_id), runner=rig.runner())
    assert done.final_output == Order(id=7)
    sent = [each.body["input"] for each in rig.model.requests]
    kinds = [[each.get("type") or each["content"][:8] for each in items] for items in sent]
    again = ["Your ans"]
    told = ["It is 7."] if "conversation_id" in kept else ["function_call_output", "It is 7."]
    assert kinds == [["q"], ["function_call_output"], again, again, told, again]
    from_answer = [each.body.get("previous_response_id") for each in rig.model.requests]
    assert (from_answer[4], len(set(from_answer))) == (
        from_answer[1],
        1 if "c" in kept.values() else 5,
    )


@pytest.mark.parametrize("kept", [{"auto_previous_response_id": True}, {"conversation_id": "c"}])
async def test_each_call_that_the_provider_remembers_is_answered_though_none_was_left(
    rig: Rig, look: Tool, kept: Any
) -> None:
    agent = rig.agent(look, worker=FunctionCallingAgentWorker(max_function_calls=1))
    await rig.serve(agent)
    for k in range(4):
        rig.model.call("look", {}, id=f"c{k}")
    rig.model.reply("done")
    task_id = f"calls-{next(iter(kept))[0]}"
    with pytest.raises(UnfitAnswerError):
        await Runner.run(agent, "q", runner=rig.runner(), task_id=task_id, **kept)
    done = await Runner.run(agent, RunState.of(task_id), runner=rig.runner())
    sent = [[each.get("call_id") for each in asked.body["input"]] for asked in rig.model.requests]
    last = ["c3", None] if "conversation_id" in kept else ["c0"]
    assert (done.final_output, sent) == ("done", [[None], ["c0"], ["c1"], ["c2"], last])


# ---- answers that no honest server gives: the task shows them, asks again, and can be ended

INFINITY, LONE = float("inf"), "\ud800"


def nested(levels: int) -> Any:
    data: Any = 1
    for _ in range(levels):
        data = [data]
    return data


ODD: list[tuple[Any, str, bool]] = [
    (nested(900), "chat", True),
    ([INFINITY], "responses", True),
    ({LONE: 1}, "chat", False),
    (10**4200, "responses", False),
]
"""What no answer may hold; the API that gives it, and whether its answer is streamed."""


@pytest.fixture
async def served(rig: Rig) -> AsyncIterator[Callable[..., Any]]:
    """Serve an agent whose model gives these answers; return the requests that it gets."""
    async with AsyncExitStack() as stack:

        async def make(kind: Any, *answers: Bytes) -> HostileServer:
            server = await stack.enter_async_context(hostile_server(in_turn(*answers)))
            model = kind("m", base_url=server.base_url, api_key="sk-of-the-tests-1")
            stack.push_async_callback(model.close)
            settings = ModelSettings(max_attempts=1)
            await rig.serve(Agent(name="agent", model=model, model_settings=settings))
            stack.push_async_callback(rig.stop)
            return server

        yield make


async def watched(runner: AgentRunner, task: Any) -> None:
    """Run a step and watch its answer being made."""
    _ = [event async for event in runner.stream_step(task)]


def of_responses(odd: Any) -> dict[str, Any]:
    return responses({"type": "reasoning", "id": "r", "summary": [], "odd": odd}, message("odd"))


def of_chat(odd: Any) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "x", "arguments": "{}"}}
    return chat({"content": "odd", "tool_calls": [{**call, "extra_content": odd}]}, "tool_calls")


@pytest.mark.parametrize(("odd", "api", "streamed"), ODD)
async def test_an_answer_that_cannot_be_kept_is_shown_and_asked_again_or_abandoned(
    rig: Rig, served: Callable[..., Any], *, api: str, streamed: bool, odd: Any
) -> None:
    kind, bad, good = {
        "responses": (ResponsesModel, of_responses(odd), responses(message("done"))),
        "chat": (ChatCompletionsModel, of_chat(odd), chat({"content": "done"})),
    }[api]
    asked, made = ("prompt", "completion") if api == "chat" else ("input", "output")
    usage = {"usage": {f"{asked}_tokens": 5, f"{made}_tokens": 2}}
    told = [bad | usage, bad | usage, good | usage, bad]
    runner, server = rig.runner(), await served(kind, *(sent(o, streamed=streamed) for o in told))
    run = watched if streamed else AgentRunner.run_step
    task, other = [await runner.create_task("q", max_output_attempts=2 - n) for n in range(2)]
    with pytest.raises(UnfitAnswerError, match="answer that cannot be"):
        await run(runner, task)
    seen = await runner.get_task(task)
    assert (seen.status, seen.usage.requests, seen.usage.total_tokens) == ("needs_attention", 2, 14)
    assert (await runner.run_step(task)).output == "done"
    assert (len(server.requests), (await runner.get_task(task)).usage.total_tokens) == (3, 21)
    with pytest.raises(UnfitAnswerError, match="answer that cannot be"):
        await run(runner, other)
    await runner.abandon(other, reason="enough")
    await until_status(runner, other, "abandoned")


# ---- mutated answers over the whole path; `make fuzz ANSWERS=20000` gives more of them


async def test_a_person_can_go_on_with_or_end_every_task_whatever_its_model_answers(
    rig: Rig,
) -> None:
    report = await fuzz(rig, times(20, 150), seed=11)
    assert report.failures == []
    assert sum(report.ends.values()) == report.tasks
