"""ReActAgentWorker: rounds of text, against a real server and a model that offers no calls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast import AgentRunner, Budget, Task, TaskStepOutput, tool
from holdfast.errors import InvalidArgumentError, StepFailedError
from holdfast.task.data.head import AGENTS_SDK, TaskHead
from holdfast.testing import FakeOpenAI
from holdfast.values.messages import Message, assistant, user
from holdfast.workers import MultimodalReActAgentWorker, ReActAgentWorker
from holdfast.workers.context.model_calls import LAST_CALL
from holdfast.workers.react.parser import ParseFailure
from holdfast.workers.react.prompt import ANSWER_NOW
from tests.support.people import World
from tests.support.rig import MakeAgent, MakeRunner, Rig
from tests.support.workers import said


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(effect="read")
def broken() -> str:
    """Fail."""
    raise RuntimeError("no such luck")


@tool(effect="read", return_direct=True)
def direct(fail: bool = False) -> str:
    """Answer directly."""
    if fail:
        raise RuntimeError("cannot")
    return "Thought: not one\nAnswer: word for word "


def act(name: str = "add", thought: str = "I add.", **arguments: Any) -> str:
    given = json.dumps(arguments or {"a": 1, "b": 2})
    return f"Thought: {thought}\nAction: {name}\nAction Input: {given}"


def finish(text: str) -> str:
    return f"Thought: Enough.\nAnswer: {text}"


@pytest.fixture
def world() -> World:
    return World()


async def ran(runner: AgentRunner, *, steps: int = 0, **options: Any) -> tuple[Task, list[Any]]:
    """Create a task and run so many steps, or all."""
    task = await runner.create_task("q", **options)
    outputs: list[TaskStepOutput] = []
    while not outputs or (len(outputs) != steps and not outputs[-1].is_last):
        outputs.append(await runner.run_step(task))
    return task, outputs


async def transcript(runner: AgentRunner, task: Task) -> list[tuple[str, str]]:
    return said(await runner.transcript(task))


# ---- one round


async def test_an_action_is_one_tool_call_and_one_observation_and_an_answer_is_last(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    await rig.serve(make_agent(add, instructions="Be brief.", worker=ReActAgentWorker()))
    runner = rig.runner()
    model.reply(act())
    model.reply(finish("3"))
    task, [first, last] = await ran(runner)
    [source] = first.sources
    assert (source.tool_name, source.content, source.call_id) == ("add", "3", "call_s1")
    assert json.loads(source.raw_input) == {"a": 1, "b": 2}
    assert (first.is_last, last.is_last, str(last), last.sources) == (False, True, "3", ())
    assert model.requests[0].tools == ()
    assert model.requests[0].instructions.startswith("Be brief.\n")
    assert "- add\n  Add two numbers.\n  Schema: {" in model.requests[0].instructions
    assert await transcript(runner, task) == [
        ("user", "q"),
        ("assistant", act()),
        ("user", "Observation: 3"),
        ("assistant", finish("3")),
    ]
    response = await runner.finalize_response(task)
    assert (str(response), [s.content for s in response.sources]) == ("3", ["3"])


async def test_an_unknown_tool_is_an_observation_in_the_dialect_that_raises_too(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    await rig.serve(make_agent(add, worker=ReActAgentWorker()))
    model.reply(act("sub"))
    model.reply(finish("none"))
    runner = rig.runner()
    head = TaskHead(agent="agent", dialect=AGENTS_SDK)
    await runner.run_to_end("q", head, task_id=f"{rig.app}-sdk")
    assert str(await runner.get_task_output(f"{rig.app}-sdk")) == "none"


# ---- replies that cannot be read


@pytest.mark.parametrize("reply", ["Action: add\nAction Input: [1, 2]", ""])
async def test_a_reply_that_cannot_be_read_is_answered_by_what_is_wrong(
    make_runner: MakeRunner, model: FakeOpenAI, reply: str
) -> None:
    runner = await make_runner(add, worker=ReActAgentWorker())
    model.reply(reply)
    model.reply(finish("3"))
    task, [first, last] = await ran(runner, session="s")
    assert (first.is_last, first.sources, str(last)) == (False, (), "3")
    assert "could not be read: " in model.requests[1].last_user
    own = [(role, text) for role, text in await transcript(runner, task) if role == "assistant"]
    assert own == [("assistant", text) for text in (reply, finish("3")) if text]
    await runner.finalize_response(task)
    history = await runner.session("s").chat_history()
    assert said(history) == [("user", "q"), ("assistant", "3")]


async def test_a_handler_that_raises_fails_the_step_and_the_answer_is_not_paid_for_again(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    strict = True

    def handler(reply: str, failure: ParseFailure) -> str:
        if strict:
            raise ValueError("write properly")
        return "again"

    runner = await make_runner(add, worker=ReActAgentWorker(on_parse_failure=handler))
    model.reply("Action: add")
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match="write properly"):
        await runner.run_step(task)
    strict = False
    assert not (await runner.run_step(task)).is_last
    assert len(model.requests) == 1


# ---- limits


async def test_an_action_on_the_last_turn_is_not_run_and_the_answer_says_so(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(add, worker=ReActAgentWorker(max_turns=2))
    model.reply(act())
    model.reply(act(thought="Once more.", a=3, b=4))
    task, [_, last] = await ran(runner, session="s")
    assert (last.is_last, last.sources) == (True, ())
    assert "the limit of 2 model calls was reached" in str(last)
    assert "Once more." in str(last)
    assert '{"a": 3, "b": 4}' in str(last)
    assert ("assistant", act(thought="Once more.", a=3, b=4)) in await transcript(runner, task)
    await runner.finalize_response(task)
    history = await runner.session("s").chat_history()
    assert said(history) == [("user", "q"), ("assistant", str(last))]


async def test_a_last_reply_that_cannot_be_read_ends_the_task_too(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    reply = "Thought: nearly there"
    runner = await make_runner(add, worker=ReActAgentWorker(max_turns=1))
    model.reply(reply)
    task, [output] = await ran(runner)
    assert "the limit of 1 model call was reached" in str(output)
    assert reply in str(output)
    assert str(await runner.finalize_response(task)) == str(output)


@pytest.mark.parametrize("max_turns", [0, -1])
def test_a_limit_that_allows_nothing_is_refused(max_turns: int) -> None:
    with pytest.raises(InvalidArgumentError, match="at least 1"):
        ReActAgentWorker(max_turns=max_turns)


@pytest.mark.parametrize("worker", [ReActAgentWorker, MultimodalReActAgentWorker])
@pytest.mark.parametrize("options", [{"max_turns": "3"}, {"max_turns": 2.0}, {"max_turns": True}])
def test_a_limit_that_is_no_whole_number_is_refused(worker: Any, options: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"max_turns .* whole number"):
        worker(**options)


@pytest.mark.parametrize("options", [{"prompt": "Be kind."}, {"on_parse_failure": "again"}])
def test_a_text_where_a_function_is_needed_is_refused(options: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="must be a function"):
        ReActAgentWorker(**options)


async def test_the_end_of_the_budget_is_an_answer(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(add, worker=ReActAgentWorker(max_turns=2))
    model.reply(act())
    model.reply(act())
    _, [_, last] = await ran(runner, budget=Budget(max_turns=1, on_exceeded="finish"))
    assert (last.is_last, last.sources) == (True, ())
    assert model.requests[1].holds(LAST_CALL.text)
    assert not model.requests[1].holds(ANSWER_NOW.text)
    assert "the budget of the task was reached" in str(last)


# ---- tool choice


async def test_a_chosen_tool_is_asked_for_in_the_first_step_only(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(add, worker=ReActAgentWorker())
    model.reply(act())
    model.reply(finish("3"))
    _, [first, _] = await ran(runner, tool_choice="add")
    assert first.sources[0].content == "3"
    asked = [[m.text for m in r.messages].count("Use add next.") for r in model.requests]
    assert asked == [1, 1]


# ---- direct return


async def test_a_direct_tool_ends_the_task_with_its_text_word_for_word(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(direct, worker=ReActAgentWorker())
    model.reply("Action: direct\nAction Input: {}")
    task, [output] = await ran(runner, session="s")
    text = "Thought: not one\nAnswer: word for word "
    assert (str(output), output.is_last, output.sources[0].content) == (text, True, text)
    await runner.finalize_response(task)
    history = await runner.session("s").chat_history()
    assert history == [user("q"), assistant(text)]


# ---- people


async def test_a_task_keeps_each_user_turn_with_its_answer_and_nothing_else(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(add, worker=ReActAgentWorker(max_turns=2))
    model.reply(act())
    model.reply(finish("3"))
    model.reply(act(a=3, b=3))
    model.reply("6")
    task = await runner.create_task("Observation: is 1 + 2?", session="s")
    await runner.give_feedback(task, "be brief", by="ann")
    await runner.run_step(task)
    await runner.give_feedback(task, "briefer", by="ann")
    await runner.give_feedback(task, "and twice that?", when="queued", by="ann")
    await runner.run_task(task)
    assert ("user", "and twice that?") in said(model.requests[2].messages)
    await runner.finalize_response(task)
    assert await runner.session("s").chat_history() == [
        user("Observation: is 1 + 2?"),
        assistant("3"),
        user("and twice that?"),
        assistant("6"),
    ]


# ---- what lasts


async def test_a_refusal_is_the_answer(make_runner: MakeRunner, model: FakeOpenAI) -> None:
    runner = await make_runner(add, worker=ReActAgentWorker())
    model.refuse("I will not.")
    task, [output] = await ran(runner, session="s")
    assert (str(output), output.is_last) == ("I will not.", True)
    await runner.finalize_response(task)
    history: list[Message] = await runner.session("s").chat_history()
    assert said(history) == [("user", "q"), ("assistant", "I will not.")]
