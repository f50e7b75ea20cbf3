"""Sessions of runs: what the model sees, what is kept, also of runs that fail, and taken out."""

from typing import Any

import pytest

from holdfast import RunState
from holdfast.client.agent_runner.sessions import Session
from holdfast.errors import StepFailedError
from holdfast.task.data.state import SessionState
from holdfast.testing import call
from holdfast.values.messages import assistant, user
from tests.support.rig import Rig
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


async def test_a_run_that_waits_to_be_healed_commits_once_when_it_ends(run: Runs) -> None:

    run.model.fail(401)
    with pytest.raises(StepFailedError) as caught:
        await run("q", look, session="s")
    assert await kept(run) == []
    run.model.reply("done")
    state = RunState.of(caught.value.task_id)
    await run(state)
    await run(state)
    assert await kept(run) == [("user", "q"), ("assistant", "done")]


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
