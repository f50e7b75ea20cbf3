"""A worker is killed at every place of every kind of task: nothing is lost, nothing is done twice.

Each kind of task is a row, each place at which its worker kills itself a cell. `make test` takes
the cells that are marked with a star, `make test-all` takes all.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from holdfast import Always, Task
from holdfast.task.data.calls import Approval
from tests.crash.lab import Lab, Labs
from tests.support.rig import assert_replays

HANDED = '{"assistant": "helper"}'
NESTED = "final final look(a) charge(b)"


@dataclass(frozen=True)
class Row:
    """One kind of task.

    Attributes:
        turns: What its model asks for.
        answer: Its answer.
        points: Places at which its worker kills itself, and how often it passes each before.
        agent: Which agent runs it.
        session: The session that gets its turn.
        doubled: What else than calls is told twice, by the point of the kill.
        most: How many model calls and calls of tools a kill may cut off.
    """

    turns: str
    answer: str
    points: str
    agent: str = "plain"
    session: str | None = None
    doubled: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    most: int = 1


ROWS = {
    "steps": Row(
        turns="look:a,book:b charge:c",
        answer="final look(a) book(b) charge(c)",
        points="begin:describe.1 begin:step.1 end:step.1 schedule:tool.1 begin:tool.1 end:tool.1"
        " schedule:tool.2 begin:tool.2 *end:tool.2 schedule:step.2 begin:step.2 end:step.2"
        " begin:close_here.1 end:close_here.1",
    ),
    "one step of several calls": Row(
        turns="look:a,book:b",
        answer="final look(a) book(b)",
        agent="ask-act-ask",
        points="begin:step.1 schedule:tool.1 begin:tool.1 *end:tool.1 schedule:step.2 begin:step.2",
    ),
    "session": Row(
        turns="charge:a",
        answer="final charge(a)",
        session="alice",
        points="schedule:close.1 begin:close.1 end:close.1 *signal:commit.1 signalled:commit.1",
    ),
    "approved": Row(
        turns="book:a,charge:b",
        answer="final book(a) charge(b)",
        agent="asking",
        points="schedule:find_tools.1 *begin:find_tools.1 end:find_tools.1 schedule:tool.1"
        " begin:tool.1 end:tool.2",
    ),
    "rule of a session": Row(
        turns="look:a look:b",
        answer="final look(a) look(b)",
        agent="asking",
        session="rules",
        points="schedule:keep_rule.1 begin:keep_rule.1 *end:keep_rule.1",
    ),
    "child": Row(
        turns="helper:look-a+charge-b",
        answer=NESTED,
        agent="guarded-nested",
        points="schedule:nest.1 begin:nest.1 end:nest.1 begin:step.2 *end:step.3 end:tool.2",
        doubled={"end:nest": ("before", "start helper"), "end:tool": ("after", "end helper")},
        most=2,
    ),
    "handoff": Row(
        turns="look:a transfer_to_helper:b charge:c",
        answer=f"final look(a) {HANDED} charge(c)",
        agent="team",
        points="schedule:step.2 *begin:step.2",
    ),
    "filtered handoff": Row(
        turns="look:a transfer_to_helper:b charge:c",
        answer=f"final look(a) {HANDED} charge(c)",
        agent="filtering-team",
        points="schedule:step.2 begin:step.2",
    ),
    "told handoff": Row(
        turns="look:a tell_helper:b charge:c",
        answer=f"final look(a) {HANDED} charge(c)",
        agent="team",
        points="schedule:tool.1 begin:tool.1 end:tool.1",
    ),
    "guarded": Row(
        turns="charge:a",
        answer="final charge(a)",
        agent="guarded",
        points="begin:guard.1 begin:guard.2 *end:guard.2 begin:guard.3 end:guard.3",
        doubled={"end:guard": ("blocking", "parallel", "final")},
    ),
    "branches": Row(
        turns="charge:a look:b book:c",
        answer="charge(a) look(b) book(c)",
        agent="fan",
        points="begin:step.2 *begin:tool.2 end:tool.1 schedule:tool.2",
        most=4,
    ),
}


def cells(*, exhaustive: bool) -> Iterator[tuple[str, str]]:
    """List names of rows with points; without `exhaustive`, those with a star."""
    for name, row in ROWS.items():
        for point in row.points.split():
            if exhaustive or point.startswith("*"):
                yield name, point.removeprefix("*")


@pytest.mark.timeout(300)
async def test_a_kill_in_each_kind_of_task_loses_and_doubles_nothing(labs: Labs) -> None:
    await kill_at_once(labs, exhaustive=False)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
async def test_a_kill_at_each_place_of_each_kind_of_task_loses_and_doubles_nothing(
    labs: Labs,
) -> None:
    await kill_at_once(labs, exhaustive=True)


async def kill_at_once(labs: Labs, *, exhaustive: bool) -> None:
    free = asyncio.Semaphore(3)
    async with asyncio.TaskGroup() as group:
        for name, point in cells(exhaustive=exhaustive):
            group.create_task(kill(labs, free, name, point))


async def kill(labs: Labs, free: asyncio.Semaphore, name: str, point: str) -> None:
    row, (place, _, times) = ROWS[name], point.rpartition(".")
    async with free, labs.named(f"{name}, killed at {point}") as lab:
        worker = lab.start(agent=row.agent, die=((place, int(times)),))
        task = await lab.create(row.turns, session=row.session)
        ending = asyncio.create_task(end(lab, task, row))
        await lab.until(lambda: worker.exitcode is not None or ending.done(), f"{point}")
        assert worker.exitcode is not None, lab.story()
        lab.start(agent=row.agent)
        assert await ending == row.answer, lab.story()
        await check(lab, task, row, place)


async def end(lab: Lab, task: Task, row: Row) -> str:
    """Bring a task to its end as a person would, who looks what has happened."""
    output = await lab.runner.run_task(task)
    while output.status == "waiting":
        for approval in await lab.runner.pending_approvals(task):
            await decide(lab, approval, row)
        output = await lab.runner.run_task(task)
    return str(await lab.runner.finalize_response(task))


async def decide(lab: Lab, approval: Approval, row: Row) -> None:
    thing = approval.arguments.split('"')[3]
    if approval.kind == "unknown" and lab.ends[thing]:
        told = HANDED if approval.tool == "tell_helper" else f"{approval.tool}({thing})"
        await lab.runner.respond(approval, "ann", told)
    else:
        always = Always(scope="session") if row.session else False
        await lab.runner.approve(approval, "ann", always=always)


async def check(lab: Lab, task: Task, row: Row, place: str) -> None:
    """Check the world, what the model was asked, what else was told, and the record."""
    acts = [each for each in lab.events("start") if each["tool"] != "look"]
    done = [each for each in lab.events("end") if each["tool"] in ("charge", "tell_helper")]
    assert set(Counter(each["thing"] for each in done).values()) <= {1}, lab.story()
    assert len(acts) <= len({each["thing"] for each in acts}) + row.most, lab.story()
    keys = {(each["thing"], each["key"]) for each in lab.events("start")}
    assert len(keys) == len({thing for thing, _ in keys}), lab.story()
    asked = [str(request.body["input"]) for request in lab.requests]
    repeated = len(asked) - len(set(asked)) + sum(lab.starts.values()) - len(lab.starts)
    assert repeated <= row.most, lab.story()
    told = Counter(each["name"] for each in [*lab.events("guard"), *lab.events("hook")])
    assert {name for name in told if told[name] > 1} <= set(row.doubled.get(place, ()))
    assert max(told.values(), default=1) <= 2
    assert await lab.runner.verify(task) == []
    await assert_replays(lab.runner, task)
    if row.session:
        history = await lab.runner.session(row.session).chat_history()
        assert [each.role for each in history].count("user") == 1
        assert history[-1].text == row.answer
    if row.agent == "guarded-nested":
        assert sorted(told) == ["after", "before", "end helper", "start helper"]
        child = await lab.runner.get_task_output(f"{task.task_id}~0.1.0.0")
        assert str(child) == "final look(a) charge(b)"
