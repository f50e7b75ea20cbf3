"""A session of the caller's own has the turn of a run once, wherever its process dies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Agent, Runner, RunState
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


DEATHS = (("before", 0), ("in", 1), ("after", 4))
"""Where a process dies, and how much of the turn is then in the session."""
PROGRAMS: dict[str, tuple[Callable[[Job], None], int, list[int | None]]] = {
    "new": (talkers.talk, 0, [None]),
    "old": (talkers.talk, 1, [None]),
    "long": (talkers.talk, 150, [None]),
    "limited": (talkers.talk_and_see_little, 3, [2, TAIL + 1]),
    "encrypted": (talkers.talk_in_secret, 1, [None]),
}
"""Each program, with the items that are there before its run, and how often it reads how many."""
ONE = ("old", "in", 1)


@pytest.mark.parametrize(
    ("name", "dies", "left"),
    [
        pytest.param(name, *death, marks=() if (name, *death) == ONE else pytest.mark.exhaustive)
        for name in PROGRAMS
        for death in DEATHS
    ],
)
async def test_killed_while_it_writes_the_turn(
    lab: Lab, name: str, dies: str, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "GRACE_SECONDS", 0.1)
    program, old, reads = PROGRAMS[name]
    inner = Mortal(lab.home)
    session: Any = talkers.encrypted(inner) if name == "encrypted" else inner
    if old:
        await session.add_items([{"role": "user", "content": f"before {k}"} for k in range(old)])
    given: dict[str, Any] = {"task_id": f"{lab.job.app}-talk", "input": lab.say("look:a")}
    lab.start()
    await lab.until_dead(lab.start(program, die=((dies, 1),), **given))
    if name != "encrypted":
        assert [each["limit"] for each in lab.events("read")] == reads
    assert len(await inner.get_items()) == old + left
    state = RunState.of(given["task_id"])
    for _ in range(2):  # the second time, it has been written
        result = await Runner.run(Agent(name=AGENT), state, session=session, runner=lab.runner)
        assert result.final_output == "final look(a)"
        assert kinds(await session.get_items()) == ["user"] * old + KINDS[1:]
    assert all(item.get("__enc__") for item in await inner.get_items()) is (name == "encrypted")
    assert lab.asked == [0, 1]
    inner.close()


@pytest.mark.exhaustive
@pytest.mark.parametrize(("dies", "left"), DEATHS)
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


@pytest.mark.exhaustive
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
