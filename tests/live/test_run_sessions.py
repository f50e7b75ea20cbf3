"""Runs and their sessions: what the model sees, and what is kept, also of runs that fail."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import RunState, UserError
from holdfast.client.runner.input import limited
from holdfast.engine import cluster
from holdfast.errors import ModelBehaviorError, StepFailedError
from holdfast.testing import FakeOpenAI
from holdfast.values.messages import assistant, user
from tests.support.rig import MakeAgent, Rig
from tests.support.runs import Runs, look, pay
from tests.support.workers import said

Items = list[dict[str, Any]]


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


async def test_a_callback_that_gives_no_list_is_refused(run: Runs) -> None:
    def both(history: Items, new: Items) -> str:
        return f"{history}{new}"

    with pytest.raises(UserError, match="must return a list"):
        await run("q", look, session="s", run_config={"session_input_callback": both})


def test_a_limit_of_nothing_shows_nothing_and_a_negative_one_is_refused() -> None:
    items: Items = [{"role": "user", "content": str(k)} for k in range(3)]
    assert limited(items, 0) == []
    assert limited(items, 9) == items
    with pytest.raises(UserError, match="-1"):
        limited(items, -1)


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


async def test_an_abandoned_run_leaves_nothing(run: Runs, model: FakeOpenAI) -> None:
    model.call("pay")
    result = await run("q", pay, session="s")
    await run.runner.abandon(result.task_id, "no", by="ann")
    assert await kept(run) == []


async def test_a_finished_run_has_its_result_also_when_nobody_can_tell_of_its_session(
    run: Runs,
    model: FakeOpenAI,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await run.runner.session("s").append([user("before"), assistant("yes")])
    model.reply("done")
    result = await run("q", look, session="s")
    assert [item["content"] for item in result.input] == ["before", "yes", "q"]
    await run.rig.stop()
    monkeypatch.setattr(cluster, "POLLER_SECONDS", 1)  # how long a worker that is gone counts
    again = await run(RunState.of(result.task_id))
    assert again.final_output == "done"
    assert [item["content"] for item in again.input] == ["q"]
    assert "lacks the history of session 's'" in caplog.text


async def test_a_session_speaks_the_items_of_the_responses_api(
    run: Runs, model: FakeOpenAI
) -> None:
    await run.serve(look)
    session = run.runner.session("s")
    given: Items = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    await session.add_items(given)
    await session.add_items([{"role": "user", "content": "three"}])
    assert [item["content"] for item in await session.get_items()] == ["one", "two", "three"]
    assert [item["content"] for item in await session.get_items(2)] == ["two", "three"]
    assert await session.get_items(0) == []
    await session.clear_session()
    assert await session.get_items() == []
