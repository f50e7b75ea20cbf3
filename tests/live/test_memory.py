"""What a session keeps, finalize, chat."""

import asyncio
from typing import Any

import pytest

from holdfast.errors import TaskClosedError
from holdfast.task.data.state import SessionState
from holdfast.testing import call
from holdfast.values.messages import assistant, user
from tests.support.rig import Rig, step_a_task
from tests.support.runs import look
from tests.support.workers import said


async def test_a_finalized_task_adds_its_turn_once_and_in_order(rig: Rig) -> None:
    runner = await rig.make(look)
    session = runner.session("s")
    rig.model.calls([("look", {"where": "left"}), ("look", {"where": "right"})])
    rig.model.add(call("look", {"where": "up"}), "done")
    task = await runner.create_task("q", session="s")
    for _ in range(2):
        with pytest.raises(ValueError, match="can only be called on the last step output"):
            await runner.finalize_response(task)
        await runner.run_step(task)
    assert (await runner.run_step(task)).is_last
    assert await session.chat_history() == []  # a task that is open leaves nothing in it
    answers = await asyncio.gather(*(runner.finalize_response(task) for _ in range(4)))
    assert [answer == answers[0] for answer in answers] == [True] * 4
    handle = runner.client.get_workflow_handle(session.id)
    state: SessionState = await handle.query("state", result_type=SessionState)
    await handle.signal("commit", state.commits[0])  # it arrives twice
    history = await session.chat_history()
    assert said(history) == [
        ("user", "q"),
        ("assistant", ""),
        ("tool", "seen left"),
        ("tool", "seen right"),
        ("assistant", ""),
        ("tool", "seen up"),
        ("assistant", "done"),
    ]
    assert [each.id for each in history[1].calls] == [m.call_id for m in history[2:4]]
    assert [str(source) for source in answers[0].sources] == ["seen left", "seen right", "seen up"]
    steps = await runner.get_completed_steps(task)
    assert [len(step.sources) for step in steps] == [2, 1, 0]
    assert answers[0].usage.requests == 3
    with pytest.raises(TaskClosedError, match="closed"):
        await runner.run_step(task)


async def test_a_tool_choice_holds_for_one_step_and_a_default_one_for_the_first(rig: Rig) -> None:
    runner = await rig.make(look, default_tool_choice="required")
    forms: list[Any] = [
        None,
        "look",
        {"type": "function", "name": "look"},
        {"type": "function", "function": {"name": "look"}},
    ]
    for form in forms:
        rig.model.add(call("look"), "done")
        await runner.chat("q", **({} if form is None else {"tool_choice": form}))
        first, second = [request.body.get("tool_choice") for request in rig.model.requests[-2:]]
        assert first == ("required" if form is None else {"type": "function", "name": "look"})
        assert second in (None, "auto")
    rig.model.add(call("look"), call("look"))
    await runner.run_step(await step_a_task(runner), tool_choice="required")
    assert rig.model.requests[-1].body.get("tool_choice") == "required"


async def test_a_task_keeps_the_history_it_began_with(rig: Rig) -> None:
    runner = await rig.serving(rig.agent(look))
    await runner.session("s").append([user("fact"), assistant("noted")])
    rig.model.add(call("look"), "from b", "from a")
    a = await step_a_task(runner, "a", session="s")
    await runner.chat("b", session="s")
    assert said(rig.model.requests[1].messages)[:2] == [("user", "fact"), ("assistant", "noted")]
    await runner.session("s").reset()
    assert await runner.session("s").chat_history() == []
    await rig.serve(rig.agent(look))  # a worker that remembers nothing
    await runner.run_step(a)
    assert rig.model.requests[2].holds("fact")
    assert not rig.model.requests[2].holds("from b")
    await runner.finalize_response(a)
    texts = [m.text for m in await runner.session("s").chat_history()]
    assert texts == ["a", "", "seen here", "from a"]
