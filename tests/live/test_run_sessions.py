"""Sessions: what the model sees, what is kept of runs and tasks, also of those that fail."""

import asyncio
from typing import Any

import pytest

from holdfast.client.agent_runner.sessions import Session
from holdfast.errors import TaskClosedError
from holdfast.task.data.state import SessionState
from holdfast.testing import call
from holdfast.values.messages import assistant, user
from tests.support.rig import Rig, step_a_task
from tests.support.runs import Runs, look
from tests.support.workers import said


async def kept(run: Runs, name: str = "s") -> list[tuple[str, str]]:
    return said(await run.runner.session(name).chat_history())


async def test_a_list_is_committed_with_what_it_led_to(run: Runs) -> None:
    session = run.runner.session("s")
    await session.append([user("before"), assistant("yes")])
    run.model.reply("done")
    given = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    given += [{"role": "user", "content": "three"}]
    result = await run(given, look, session=session)
    seen = [("user", "before"), ("assistant", "yes"), ("user", "one"), ("assistant", "two")]
    assert said(run.model.requests[0].messages) == [*seen, ("user", "three")]
    assert await kept(run) == [*seen, ("user", "three"), ("assistant", "done")]
    items: list[Any] = result.input
    assert [item["content"] for item in items] == ["before", "yes", "one", "two", "three"]
    run.model.reply("again")
    await run("more", session="s")
    assert await kept(run) == [
        *seen,
        ("user", "three"),
        ("assistant", "done"),
        ("user", "more"),
        ("assistant", "again"),
    ]


# ---- items that are taken out again


async def contents(session: Session) -> list[Any]:
    return [item.get("content") or item["type"] for item in await session.get_items()]


async def test_the_newest_item_is_taken_one_by_one_through_turns_of_all_kinds(rig: Rig) -> None:
    runner = await rig.make(look)
    session = runner.session("s")
    await session.add_items([{"role": "user", "content": "first"}])
    rig.model.add(call("look"), "done")
    await runner.chat("q", session="s")
    whole = await session.get_items()
    assert [item.get("type", item.get("role")) for item in whole] == [
        "user",
        "user",
        "function_call",
        "function_call_output",
        "message",
    ]
    taken: list[Any] = []
    while (item := await session.pop_item()) is not None:
        taken.append(item)
        assert await session.get_items() == whole[: -len(taken)]
        assert await session.verify() == []
    assert taken == whole[::-1]
    await session.add_items([{"role": "user", "content": "anew"}])
    assert await contents(session) == ["anew"]


async def test_a_turn_that_came_meanwhile_is_not_lost(rig: Rig) -> None:
    runner = await rig.make()
    session = runner.session("s")
    await session.append([user("old")])
    handle = runner.client.get_workflow_handle(session.id)
    state: SessionState = await handle.query("state", result_type=SessionState)
    late = state.commits[0].model_copy(update={"task": "-late", "replaces": 1, "after": 1})
    await session.append([user("new")])
    await handle.signal("commit", late)
    assert await contents(session) == ["old", "new"]


# ---- what a session keeps of tasks: finalize and chat


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
