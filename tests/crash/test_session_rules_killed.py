"""A worker process is lost while a decision for a whole session is on its way to that session."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import AgentRunner, Always, Task
from holdfast.task.data.calls import Approval, StandingRule
from tests.crash.lab import Lab
from tests.support.people import ask
from tests.support.rig import until

IN_SESSION = Always(scope="session")


async def asked_once(lab: Lab) -> Task:
    """Let a task of a session ask a person."""
    task = await lab.create("look:a", session="books")
    assert (await lab.runner.run_step(task)).status == "waiting"
    return task


async def on_its_way(lab: Lab) -> tuple[Task, Approval, Path]:
    """Give a rule that is held on its way to the session, until the file that holds it is gone."""
    hold = lab.job.home / "hold.begin.keep_rule"
    hold.touch()
    await lab.serve(agent="asking")
    task = await asked_once(lab)
    asked = await ask(lab.runner, task)
    await lab.runner.approve(asked, "ann", always=IN_SESSION)
    await lab.until_event("held", kind="keep_rule")
    return task, asked, hold


async def rules_of(runner: AgentRunner) -> list[StandingRule]:
    """Wait for the standing rules that are listed."""

    async def condition() -> list[StandingRule]:
        return await runner.standing_rules()

    return await until(condition)


@pytest.mark.exhaustive
async def test_a_rule_on_its_way_is_listed_and_one_that_is_revoked_there_never_stands(
    lab: Lab,
) -> None:
    task, asked, hold = await on_its_way(lab)
    [rule] = await rules_of(lab.runner)
    assert (rule.id, rule.session, rule.by) == (asked.id, "books", "ann")
    session = lab.runner.session("books")
    assert (await session.revoke_rule(asked.id, "ben")).status == "applied"
    assert await lab.runner.standing_rules() == []
    assert await lab.runner.standing_rules(task) == []
    hold.unlink()
    await lab.until_event("left", kind="keep_rule")

    async def ended() -> list[tuple[str, str]]:
        return [(each.id, each.revoked) for each in await session.standing_rules(ended=True)]

    assert await until(ended) == [(asked.id, "ben")]
    assert await session.standing_rules() == []
    later = await lab.create("look:b", session="books")
    assert (await lab.runner.run_step(later)).status == "waiting"
