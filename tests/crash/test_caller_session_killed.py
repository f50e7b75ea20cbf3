"""A session of the caller's own has the turn of a run once, wherever its process dies."""

from typing import Any

import pytest

from holdfast import Agent, Runner, RunState
from holdfast.client.caller_sessions import turns
from tests.crash import talkers
from tests.crash.lab import Lab
from tests.crash.programs import AGENT
from tests.crash.talkers import Mortal
from tests.support.scale import all_of

OLD = {"role": "user", "content": "before"}
KINDS = ["user", "user", "function_call", "function_call_output", "assistant"]


def kinds(items: list[Any]) -> list[str]:
    return [item.get("role") or item["type"] for item in items]


@pytest.mark.parametrize(("dies", "left"), [all_of("before", 0), ("in", 1), all_of("after", 4)])
async def test_killed_while_it_writes_the_turn(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, dies: str, left: int
) -> None:
    monkeypatch.setattr(turns, "GRACE_SECONDS", 0.1)
    session = Mortal(lab.home)
    await session.add_items([OLD])
    given: dict[str, Any] = {"task_id": f"{lab.job.app}-talk", "input": lab.say("look:a")}
    lab.start()
    await lab.until_dead(lab.start(talkers.talk, die=((dies, 1),), **given))
    assert len(await session.get_items()) == 1 + left
    state = RunState.of(given["task_id"])
    for _ in range(2):  # the second time, it has been written
        result = await Runner.run(Agent(name=AGENT), state, session=session, runner=lab.runner)
        assert result.final_output == "final look(a)"
        assert kinds(await session.get_items()) == KINDS
    assert lab.asked == [0, 1]
    session.close()


async def test_killed_while_the_run_is_on_and_started_again(lab: Lab) -> None:
    session = Mortal(lab.home)
    await session.add_items([OLD])
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
