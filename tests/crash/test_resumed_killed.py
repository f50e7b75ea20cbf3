"""Processes are killed after a run was resumed with settings, and before these are used."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Agent, RunConfig, Runner, RunState
from tests.crash import rewording
from tests.crash.lab import Lab
from tests.crash.programs import AGENT

AGENT_HERE = Agent(name=AGENT)


async def waiting(lab: Lab, **options: Any) -> RunState:
    """Begin a run that waits for a person; a worker of the first kind serves it."""
    context = {"home": str(lab.home)}
    options = {"context": context, "runner": lab.runner, **options}
    result = await Runner.run(AGENT_HERE, lab.say("look:a"), **options)
    assert len(result.interruptions) == 1
    return result.to_state()


async def given(lab: Lab, task_id: str) -> list[tuple[str, Any]]:
    """Return who has given the task which settings."""
    events = await lab.runner.audit(task_id)
    found = [event for event in events if event.verb == "configure"]
    return [(each.actor, each.body["arguments"]["names"]) for each in found]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("point", "asked"), [("begin:rejected", 1), ("end:rejected", 2)])
async def test_the_worker_is_killed_around_the_formatter_that_a_state_was_given_with(
    lab: Lab, point: str, asked: int
) -> None:
    worker = lab.start(make=rewording.make_agent, die=((point, 1),))
    state = await waiting(lab)
    state.reject(state.get_interruptions()[0])
    config = RunConfig(tool_error_formatter=rewording.words)
    run = Runner.run(AGENT_HERE, state, runner=lab.runner, run_config=config, by="kim")
    going = asyncio.create_task(run)
    await lab.until_dead(worker)
    assert len(lab.events("words")) == asked - 1
    lab.start(make=rewording.make_agent)
    assert (await going).final_output == "final not look"
    assert (len(lab.events("words")), dict(lab.starts)) == (asked, {})
    assert await given(lab, state.task_id) == [("kim", ["tool_error_formatter"])]


async def test_the_caller_is_killed_between_the_settings_and_the_decisions(lab: Lab) -> None:
    lab.start(make=rewording.make_agent)
    state = await waiting(lab)
    await lab.until_dead(
        lab.start(rewording.resume, task_id=state.task_id, die=(("decisions", 1),))
    )
    assert await given(lab, state.task_id) == [("kim", ["tool_error_formatter"])]
    assert (await lab.runner.get_task(state.task_id)).status == "waiting"
    await lab.until_dead(lab.start(rewording.resume, task_id=state.task_id))
    assert [each["text"] for each in lab.events("answered")] == ["final not look"]
    assert len(await given(lab, state.task_id)) == 1
