"""What a session keeps, finalize, chat."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Budget, Message, Task, TaskStep, TaskStepOutput, tool
from holdfast.errors import InvalidArgumentError, TaskClosedError
from holdfast.task.data.state import SessionState
from holdfast.testing import FakeOpenAI, ScriptedModel
from holdfast.values.messages import assistant, user
from holdfast.workers import StepContext
from tests.support.rig import MakeAgent, MakeRunner, Rig, roles, until_status
from tests.support.workers import Counting, Doing, ends, said


@tool(effect="read")
def look(where: str = "here") -> str:
    """Look somewhere."""
    return f"seen {where}"


async def test_a_running_task_leaves_no_message_in_the_session(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.call("look")
    model.reply("done")
    task = await runner.create_task("q", session="s")
    await runner.run_step(task)
    await runner.run_step(task)
    assert await runner.session("s").chat_history() == []


async def test_an_abandoned_task_leaves_no_trace_in_a_later_prompt(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.call("look", {"where": "secretly"})
    task = await runner.create_task("the abandoned question", session="s")
    await runner.run_step(task)
    await runner.abandon(task, reason="enough", by="ann")
    model.reply("hello")
    await runner.chat("hi", session="s")
    assert not model.requests[1].holds("abandoned")
    assert not model.requests[1].holds("secretly")
    assert said(await runner.session("s").chat_history()) == [
        ("user", "hi"),
        ("assistant", "hello"),
    ]


async def test_a_finalized_task_adds_its_turn_in_order(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.calls([("look", {"where": "left"}), ("look", {"where": "right"})])
    model.reply("done")
    await runner.chat("q", session="s")
    history = await runner.session("s").chat_history()
    assert said(history) == [
        ("user", "q"),
        ("assistant", ""),
        ("tool", "seen left"),
        ("tool", "seen right"),
        ("assistant", "done"),
    ]
    assert [call.id for call in history[1].calls] == [m.call_id for m in history[2:4]]


async def test_finalize_twice_commits_once_and_gives_the_same_answer(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    model.reply("done")
    task = await runner.create_task("q", session="s")
    await runner.run_task(task)
    assert await runner.finalize_response(task) == await runner.finalize_response(task)
    assert roles(await runner.session("s").chat_history()) == ["user", "assistant"]


async def test_finalize_twice_at_once_commits_once(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    model.reply("done")
    task = await runner.create_task("q", session="s")
    await runner.run_task(task)
    answers = await asyncio.gather(*(runner.finalize_response(task) for _ in range(4)))
    assert [str(answer) for answer in answers] == ["done"] * 4
    assert roles(await runner.session("s").chat_history()) == ["user", "assistant"]


async def test_a_commit_that_arrives_twice_is_kept_once(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting(1))
    await runner.chat("q", session="s", task_id="memory-commit-twice")
    handle = runner.client.get_workflow_handle(runner.session("s").id)
    state: SessionState = await handle.query("state", result_type=SessionState)
    await handle.signal("commit", state.commits[0])
    assert roles(await runner.session("s").chat_history()) == ["user", "assistant"]


async def test_two_finalizes_at_once_keep_both_turns_contiguous(
    rig: Rig, make_agent: MakeAgent
) -> None:
    class Echo(Counting):
        async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
            ctx.add(user(step.input or ""))
            ctx.add(assistant(f"re {step.input}"))
            return ends(step, f"re {step.input}")

    await rig.serve(make_agent(worker=Echo()))
    runner = rig.runner()
    names = [f"q{k}" for k in range(5)]
    await asyncio.gather(*(runner.chat(name, session="s") for name in names))
    history = said(await runner.session("s").chat_history())
    turns = [history[k : k + 2] for k in range(0, len(history), 2)]
    assert sorted(turns) == [[("user", name), ("assistant", f"re {name}")] for name in names]


async def test_a_chat_replaces_the_history_when_it_is_given_one(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    model.reply("one")
    model.reply("two")
    await runner.chat("first", session="s")
    await runner.chat("second", session="s", chat_history=[user("given"), assistant("yes")])
    assert said(model.requests[1].messages) == [
        ("user", "given"),
        ("assistant", "yes"),
        ("user", "second"),
    ]
    assert said(await runner.session("s").chat_history()) == [
        ("user", "given"),
        ("assistant", "yes"),
        ("user", "second"),
        ("assistant", "two"),
    ]


async def test_a_history_without_a_session_is_refused(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting(1))
    with pytest.raises(InvalidArgumentError, match="session"):
        await runner.chat("q", chat_history=[user("given")])


async def test_the_next_task_sees_what_was_committed(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    model.reply("one")
    model.reply("two")
    await runner.chat("first", session="s")
    await runner.chat("second", session="s")
    assert said(model.requests[1].messages) == [
        ("user", "first"),
        ("assistant", "one"),
        ("user", "second"),
    ]


async def test_a_session_can_be_reset(make_runner: MakeRunner, model: FakeOpenAI) -> None:
    runner = await make_runner()
    model.reply("one")
    model.reply("two")
    await runner.chat("first", session="s")
    await runner.session("s").reset()
    assert await runner.session("s").chat_history() == []
    await runner.chat("second", session="s")
    assert said(model.requests[1].messages) == [("user", "second")]


async def test_messages_can_be_appended_to_a_session_by_hand(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    await runner.session("s").append([user("fact"), assistant("noted")])
    model.reply("done")
    await runner.chat("q", session="s")
    assert said(model.requests[0].messages)[:2] == [("user", "fact"), ("assistant", "noted")]


async def test_a_task_keeps_the_history_it_began_with(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    await rig.serve(make_agent(look))
    runner = rig.runner()
    await runner.session("s").append([user("fact"), assistant("noted")])
    model.call("look")
    model.reply("from b")
    model.reply("from a")
    a = await runner.create_task("a", session="s")
    await runner.run_step(a)
    await runner.chat("b", session="s")
    await rig.serve(make_agent(look))  # a worker that remembers nothing
    await runner.run_step(a)
    assert not model.requests[2].holds("from b")
    await runner.finalize_response(a)
    texts = [m.text for m in await runner.session("s").chat_history()]
    assert texts == ["fact", "noted", "b", "from b", "a", "", "seen here", "from a"]


async def test_a_task_keeps_its_history_when_the_session_is_reset_meanwhile(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.reply("one")
    await runner.chat("first", session="s")
    model.call("look")
    model.reply("two")
    task = await runner.create_task("second", session="s")
    await runner.run_step(task)
    await runner.session("s").reset()
    await runner.run_step(task)
    assert model.requests[2].holds("first")


async def test_sessions_of_one_name_are_apart_between_apps(
    engine: Any, rig: Rig, make_agent: MakeAgent
) -> None:
    other = Rig(engine)
    await rig.runner().session("s").append([user("mine")])
    await rig.serve(make_agent(worker=Counting()))
    await other.serve(make_agent(worker=Counting()))
    assert said(await rig.runner().session("s").chat_history()) == [("user", "mine")]
    assert await other.runner().session("s").chat_history() == []
    await other.stop()


async def test_a_task_that_ends_at_its_limit_leaves_no_call_without_a_result(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.call("look")
    model.reply("as far as I know")
    task = await runner.create_task(
        "q", session="s", budget=Budget(max_turns=1, on_exceeded="finish")
    )
    await runner.run_task(task)
    await runner.finalize_response(task)
    history = await runner.session("s").chat_history()
    answered = {m.call_id for m in history if m.role == "tool"}
    assert {call.id for m in history for call in m.calls} == answered
    assert said(history)[-1] == ("assistant", "as far as I know")


async def test_a_return_direct_tool_ends_the_turn_with_its_text(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    @tool(return_direct=True)
    def answer() -> str:
        """Answer."""
        return "forty-two"

    runner = await make_runner(answer)
    model.call("answer")
    response = await runner.chat("q", session="s")
    assert str(response) == "forty-two"
    assert said(await runner.session("s").chat_history()) == [
        ("user", "q"),
        ("assistant", ""),
        ("tool", "forty-two"),
        ("assistant", "forty-two"),
    ]


async def test_finalize_before_the_last_step_is_refused(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting(2))
    task = await runner.create_task("q")
    with pytest.raises(ValueError, match="can only be called on the last step output"):
        await runner.finalize_response(task)
    await runner.run_step(task)
    with pytest.raises(ValueError, match="can only be called on the last step output"):
        await runner.finalize_response(task)


async def test_finalize_of_an_abandoned_task_is_refused(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting(1))
    task = await runner.create_task("q")
    await runner.abandon(task, reason="enough")
    await until_status(runner, task, "abandoned")
    with pytest.raises(TaskClosedError):
        await runner.finalize_response(task)


async def test_a_step_after_finalize_is_refused(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting(1))
    task = await runner.create_task("q")
    await runner.run_task(task)
    await runner.finalize_response(task)
    with pytest.raises(TaskClosedError, match="closed"):
        await runner.run_step(task)


async def test_sources_of_all_steps_are_in_call_order_and_each_step_has_its_own(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.calls([("look", {"where": "a"}), ("look", {"where": "b"})])
    model.call("look", {"where": "c"})
    model.reply("done")
    response = await runner.chat("q")
    assert [str(source) for source in response.sources] == ["seen a", "seen b", "seen c"]
    steps = await runner.get_completed_steps(response.task_id)
    assert [[str(s) for s in step.sources] for step in steps] == [
        ["seen a", "seen b"],
        ["seen c"],
        [],
    ]
    assert response.usage.requests == 3


@pytest.mark.parametrize(
    "choice",
    [
        "look",
        {"type": "function", "name": "look"},
        {"type": "function", "function": {"name": "look"}},
    ],
)
async def test_tool_choice_reaches_the_first_step_only(
    make_runner: MakeRunner, model: FakeOpenAI, choice: Any
) -> None:
    runner = await make_runner(look)
    model.call("look")
    model.reply("done")
    await runner.chat("q", tool_choice=choice)
    choices = [request.body.get("tool_choice") for request in model.requests]
    assert choices[0] == {"type": "function", "name": "look"}
    assert choices[1] in (None, "auto")


async def test_the_default_tool_choice_is_used_when_chat_has_none(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look, default_tool_choice="required")
    model.call("look")
    model.reply("done")
    await runner.chat("q")
    choices = [request.body.get("tool_choice") for request in model.requests]
    assert choices[0] == "required"
    assert choices[1] in (None, "auto")


async def test_a_tool_choice_for_one_step_holds_for_that_step(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.call("look")
    model.call("look")
    task = await runner.create_task("q")
    await runner.run_step(task)
    await runner.run_step(task, tool_choice="required")
    assert [r.body.get("tool_choice") for r in model.requests][1] == "required"


async def test_the_agent_worker_chooses_what_the_session_keeps(
    rig: Rig, make_agent: MakeAgent
) -> None:
    class OnlyAnswer(Counting):
        def finalize_task(self, task: Task, transcript: Any) -> list[Message]:
            return [user(task.input), transcript.pop()]

    await rig.serve(make_agent(worker=OnlyAnswer(3)))
    runner = rig.runner()
    await runner.chat("q", session="s")
    assert said(await runner.session("s").chat_history()) == [
        ("user", "q"),
        ("assistant", "counted to 3"),
    ]


async def test_a_finalize_task_that_raises_parks_the_task_and_loses_nothing(
    rig: Rig, make_agent: MakeAgent
) -> None:
    class Broken(Counting):
        def finalize_task(self, task: Task, transcript: Any) -> list[Message]:
            raise RuntimeError("cannot choose")

    await rig.serve(make_agent(worker=Broken(1)))
    runner = rig.runner()
    task = await runner.create_task("q", session="s")
    await runner.run_task(task)
    with pytest.raises(Exception, match="cannot choose"):
        await runner.finalize_response(task)
    assert (await runner.get_task(task)).status == "needs_attention"
    assert await runner.session("s").chat_history() == []
    await rig.serve(make_agent(worker=Counting(1)))
    await runner.finalize_response(task)
    assert roles(await runner.session("s").chat_history()) == ["user", "assistant"]


async def test_a_failed_task_leaves_the_session_untouched(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.call("look")
    task = await runner.create_task(
        "q", session="s", budget=Budget(max_turns=1, on_exceeded="fail")
    )
    with pytest.raises(Exception, match="Max turns"):
        await runner.run_task(task)
    assert (await until_status(runner, task, "failed")).error
    assert await runner.session("s").chat_history() == []


async def test_a_long_session_reads_the_same_after_many_turns(rig: Rig) -> None:
    from holdfast import Agent

    await rig.serve(Agent(name="agent", model=ScriptedModel(lambda _: "ok"), worker=Counting(1)))
    runner = rig.runner()
    session = runner.session("long")
    for start in range(0, 1040, 20):
        await asyncio.gather(*(session.append([user(f"m{start + k}")]) for k in range(20)))
    texts = {message.text for message in await session.chat_history()}
    assert texts == {f"m{k}" for k in range(1040)}


async def test_an_empty_answer_is_a_final_answer(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    model.reply("")
    assert str(await runner.chat("q")) == ""


async def test_chat_gives_the_answer_of_a_worker_that_returns_data(
    make_runner: MakeRunner,
) -> None:
    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        return ends(step, {"answer": 42})

    runner = await make_runner(worker=Doing(body))
    response = await runner.chat("q")
    assert response.output == {"answer": 42}


async def test_a_chat_history_is_given_as_messages_or_as_items(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.reply("done")
    history: list[Any] = [
        {"role": "user", "content": "one"},
        assistant("two"),
        {"role": "user", "content": "3"},
    ]
    await runner.chat("q", session="dicts", chat_history=history)
    told = said(await runner.session("dicts").chat_history())
    assert told[:3] == [("user", "one"), ("assistant", "two"), ("user", "3")]


@pytest.mark.parametrize(
    "given",
    [
        {"chat_history": [{"role": "user", "content": "one"}, {"role": "nobody"}]},
        {"chat_history": "one"},
        {"tool_choice": {"type": "tool"}},
        {"tool_choice": 5},
    ],
)
async def test_what_cannot_be_read_is_refused_and_the_session_is_kept(
    make_runner: MakeRunner, given: dict[str, Any]
) -> None:
    runner = await make_runner(look)
    await runner.session("kept").append([user("kept")])
    history: dict[str, Any] = {"chat_history": [user("new")]} if "chat_history" not in given else {}
    with pytest.raises(InvalidArgumentError):
        await runner.chat("q", session="kept", **history, **given)
    assert said(await runner.session("kept").chat_history()) == [("user", "kept")]
