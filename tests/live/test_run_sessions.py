"""Runs and their sessions: what the model sees, and what is kept, also of runs that fail."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import RunState
from holdfast.errors import ModelBehaviorError, StepFailedError
from holdfast.testing import FakeOpenAI
from holdfast.values.messages import assistant, user
from tests.support.rig import MakeAgent, Rig
from tests.support.runs import Runs, look
from tests.support.workers import said


@pytest.fixture
def run(rig: Rig, make_agent: MakeAgent) -> Runs:
    return Runs(rig, make_agent)


async def kept(run: Runs, name: str = "s") -> list[tuple[str, str]]:
    return said(await run.runner.session(name).chat_history())


async def test_a_list_is_committed_with_what_it_led_to(run: Runs, model: FakeOpenAI) -> None:
    session = run.runner.session("s")
    await session.append([user("before"), assistant("yes")])
    model.reply("done")
    given = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    given += [{"role": "user", "content": "three"}]
    result = await run(given, look, session=session)
    seen = [("user", "before"), ("assistant", "yes"), ("user", "one"), ("assistant", "two")]
    assert said(model.requests[0].messages) == [*seen, ("user", "three")]
    assert await kept(run) == [*seen, ("user", "three"), ("assistant", "done")]
    items: list[Any] = result.input
    assert [item["content"] for item in items] == ["before", "yes", "one", "two", "three"]
    model.reply("again")
    await run("more", session="s")
    assert await kept(run) == [
        *seen,
        ("user", "three"),
        ("assistant", "done"),
        ("user", "more"),
        ("assistant", "again"),
    ]


async def test_a_run_that_fails_in_its_first_turn_keeps_the_input_only(
    run: Runs, model: FakeOpenAI
) -> None:
    model.call("nope")
    with pytest.raises(ModelBehaviorError):
        await run("q", look, session="s")
    model.call("nope")
    with pytest.raises(ModelBehaviorError):
        await run([{"role": "user", "content": "list"}], session="t")
    assert await kept(run) == [("user", "q")]
    assert await kept(run, "t") == [("user", "list")]


async def test_a_run_that_waits_to_be_healed_commits_once_when_it_ends(
    run: Runs, model: FakeOpenAI
) -> None:

    model.fail(401)
    with pytest.raises(StepFailedError) as caught:
        await run("q", look, session="s")
    assert await kept(run) == []
    model.reply("done")
    state = RunState.of(caught.value.task_id)
    await run(state)
    await run(state)
    assert await kept(run) == [("user", "q"), ("assistant", "done")]
