"""A session of the caller's own has the turn of a run once, wherever its process dies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Agent, Runner, RunState, SQLiteSession
from holdfast.client.caller_sessions import turns
from holdfast.client.caller_sessions.tail import TAIL
from tests.crash import talkers
from tests.crash.lab import Lab
from tests.crash.programs import AGENT, Job
from tests.crash.talkers import Mortal

KINDS = ["user", "user", "function_call", "function_call_output", "assistant"]


def kinds(items: list[Any]) -> list[str]:
    return [item.get("role") or item["type"] for item in items]


OLD = {"role": "user", "content": "before"}


@pytest.mark.parametrize(
    ("program", "old", "reads"),
    [
        (talkers.talk, 0, [None]),
        (talkers.talk, 1, [None]),
        (talkers.talk, 150, [None]),
        (talkers.talk_and_see_little, 3, [2, TAIL + 1]),
    ],
)
@pytest.mark.parametrize(("dies", "left"), [("before", 0), ("in", 1), ("after", 4)])
async def test_killed_while_it_writes_the_turn(
    lab: Lab,
    *,
    dies: str,
    left: int,
    program: Callable[[Job], None],
    old: int,
    reads: list[int | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "GRACE_SECONDS", 0.1)
    session = Mortal(lab.home)
    if old:
        said = [{"role": "user", "content": f"before {k}"} for k in range(old)]
        await SQLiteSession.add_items(session, said)
    given: dict[str, Any] = {"task_id": f"{lab.job.app}-talk", "input": lab.say("look:a")}
    lab.start()
    await lab.until_dead(lab.start(program, die=((dies, 1),), **given))
    assert [each["limit"] for each in lab.events("read")] == reads
    assert len(await session.get_items()) == old + left
    state = RunState.of(given["task_id"])
    for _ in range(2):  # the second time, it has been written
        result = await Runner.run(Agent(name=AGENT), state, session=session, runner=lab.runner)
        assert result.final_output == "final look(a)"
        assert kinds(await session.get_items()) == ["user"] * old + KINDS[1:]
    assert lab.asked == [0, 1]
    session.close()


@pytest.mark.parametrize(("dies", "left"), [("before", 0), ("in", 1), ("after", 4)])
async def test_killed_while_a_session_of_the_sdk_encrypts_the_turn(
    lab: Lab, dies: str, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "GRACE_SECONDS", 0.1)
    inner = Mortal(lab.home)
    session = talkers.encrypted(inner)
    await session.add_items([OLD])
    given: dict[str, Any] = {"task_id": f"{lab.job.app}-talk", "input": lab.say("look:a")}
    lab.start()
    await lab.until_dead(lab.start(talkers.talk_in_secret, die=((dies, 1),), **given))
    assert len(await inner.get_items()) == 1 + left
    state = RunState.of(given["task_id"])
    for _ in range(2):  # the second time, it has been written
        result = await Runner.run(Agent(name=AGENT), state, session=session, runner=lab.runner)
        assert result.final_output == "final look(a)"
        assert kinds(await session.get_items()) == KINDS
    assert all(item["__enc__"] for item in await inner.get_items())
    assert lab.asked == [0, 1]
    inner.close()


@pytest.mark.parametrize(("dies", "left"), [("before", 0), ("in", 1), ("after", 4)])
async def test_killed_while_it_writes_the_turn_after_another_has_written(
    lab: Lab, dies: str, left: int
) -> None:
    session = Mortal(lab.home)
    await session.add_items([OLD])
    given: dict[str, Any] = {"task_id": f"{lab.job.app}-talk", "input": lab.say("look:a")}
    lab.hold("look")
    lab.start()
    client = lab.start(talkers.talk, die=((dies, 1),), **given)
    await lab.until_event("start", thing="a")
    await session.add_items([{"role": "user", "content": "of another"}])
    lab.let_go("look")
    await lab.until_dead(client)
    assert len(await session.get_items()) == 2 + left
    # Whether the turn was added is seen where it is whole; nothing is ever added twice.
    await lab.until_dead(lab.start(talkers.talk, **given))
    assert bool(lab.events("answered")) == (dies == "after")
    assert len(await session.get_items()) == 2 + left
    session.close()


@pytest.mark.parametrize("dies", ["before", "in", "after"])
async def test_one_of_two_processes_of_one_run_is_killed_while_it_writes_the_turn(
    lab: Lab, dies: str
) -> None:
    session = Mortal(lab.home)
    await session.add_items([OLD])
    given: dict[str, Any] = {"task_id": f"{lab.job.app}-talk", "input": lab.say("look:a")}
    lab.hold("look")
    lab.start()
    mortal = lab.start(talkers.talk, die=((dies, 1),), **given)
    await lab.until_event("read")
    other = lab.start(talkers.talk, **given)  # attached to the task, or the one that has begun it
    await lab.until_event("start", thing="a")
    lab.let_go("look")
    await lab.until_dead(mortal)
    await lab.until_dead(other)
    assert lab.events("answered", pid=other.pid)
    assert kinds(await session.get_items()) == KINDS
    assert lab.asked == [0, 1]
    session.close()


async def test_killed_while_the_run_is_on_and_started_again(lab: Lab) -> None:
    session = Mortal(lab.home)
    await session.add_items([{"role": "user", "content": "before"}])
    given: dict[str, Any] = {"task_id": f"{lab.job.app}-talk", "input": lab.say("look:a")}
    lab.hold("look")
    lab.start()
    client = lab.start(talkers.talk, **given)
    await lab.until_event("start", thing="a")
    await lab.kill(client)
    await session.add_items([{"role": "user", "content": "meanwhile"}])
    lab.let_go("look")
    await lab.until_dead(lab.start(talkers.talk, **given))
    assert lab.events("answered", text="final look(a)")
    items = await session.get_items()
    assert kinds(items) == ["user", *KINDS]
    assert lab.asked == [0, 1]
    assert "meanwhile" not in str(lab.requests[-1].messages)  # the session is read once
    session.close()
