"""Following a task: thoughts, questions to people and their answers, failures, later attempts."""

import asyncio
import io
from collections.abc import Sequence
from typing import Any

import pytest
from rich.console import Console

from holdfast import AgentRunner, TaskStep, TaskStepOutput, event_text
from holdfast.cli.following.live import LiveView
from holdfast.errors import CommandRefusedError, StepFailedError
from holdfast.reading.step_events import Attempt, CommandGiven, StepEvent, Thought
from holdfast.testing import FakeOpenAI, call, fail, hang
from holdfast.workers import StepContext
from tests.live.test_step_events import pay, read
from tests.support.rig import Rig, histories, until
from tests.support.runs import look
from tests.support.workers import Doing


def lines(events: Sequence[StepEvent]) -> list[str]:
    """Return the events as they are printed, without the first and the last."""
    return [text.strip() for text in map(event_text, events) if text][1:-1]


def only(events: Sequence[StepEvent], kind: type[Any], **fields: Any) -> Any:
    """Return the one event of a kind that has these fields."""
    found = [event for event in events if isinstance(event, kind)]
    [one] = [e for e in found if all(getattr(e, k) == v for k, v in fields.items())]
    return one


async def finish(runner: AgentRunner, task: Any) -> list[StepEvent]:
    """Run a task to its end; return the events that a later reader gets."""
    await runner.run_task(task)
    await runner.finalize_response(task)
    return await read(runner, task)


async def one_question(runner: AgentRunner, model: FakeOpenAI, task: Any) -> str:
    """Let a task wait for a person; return the id of the approval."""
    model.call("pay", {"euros": 5}, text="I pay first.")
    assert (await runner.run_step(task)).status == "waiting"
    [approval] = await runner.pending_approvals(task)
    return approval.id


async def test_what_a_model_says_and_what_people_are_asked_and_do_is_told_in_order(
    rig: Rig,
) -> None:
    runner = await rig.make(pay)
    task = await runner.create_task("q")
    following = asyncio.create_task(read(runner, task, poll=0.01))
    id = await one_question(runner, rig.model, task)
    await runner.give_feedback(task, "be brief", by="bob")
    with pytest.raises(CommandRefusedError):
        await runner.approve(id, by="ann", arguments={"euros": "many"})
    await runner.approve(id, by="ann", note="once", always=True)
    rig.model.add(call("pay", {"euros": 6}), "done")
    events = await finish(runner, task)
    refused = only(events, CommandGiven, is_refused=True)
    assert (refused.verb, refused.by) == ("approve", "ann")
    events.remove(refused)
    assert lines(events) == [
        "> Running step s1. Step input: q",
        "s1 says I pay first.",
        's1 calls pay {"euros": 5}',
        f's1 waits for approval of pay ({id}): {{"euros": 5}}',
        "> feedback by bob: be brief",
        "s1 pay approved by ann",  # with the arguments that did not fit
        "s1 pay approved by ann: once",
        "s1 pay gave paid 5",
        "> Running step s2. Step input: none",
        's2 calls pay {"euros": 6}',
        f's2 waits for approval of pay ({task.task_id}:2): {{"euros": 6}}',
        "s2 pay approved by ann: once",
        "s2 pay gave paid 6",
        "> Running step s3. Step input: none",
        "> Step s3 has the answer: done",
    ]
    told = [event for event in await following if event != refused]
    assert told == events
    for event in events:
        rest = [each for each in events if each.number > event.number]
        after = await read(runner, task, after=event.number)
        assert [each for each in after if each != refused] == rest


async def test_these_events_survive_that_a_task_continues_as_new(rig: Rig) -> None:
    runner = await rig.make(look, roll_events=50)
    task = await runner.create_task("q")
    following = asyncio.create_task(read(runner, task, poll=0.01))
    for n in range(8):
        await runner.give_feedback(task, f"word {n}", by="ann")
        rig.model.call("look", text=f"thought {n} " + "long words " * (4000 if n == 0 else 0))
        await runner.run_step(task)
    await runner.undo_step(task, residue="keep")
    rig.model.reply("done")
    events = await finish(runner, task)
    await until(lambda: histories(runner.client, task.task_id), lambda found: len(found) > 1)
    assert await following == events
    assert [event.number for event in events] == list(range(len(events)))
    thoughts = [event.text for event in events if isinstance(event, Thought)]
    assert [text[:9] for text in thoughts] == [f"thought {n}" for n in range(8)]
    assert len(thoughts[0]) > 40_000  # the archive has it, and it is told whole
    assert "step_undone" in [event.kind for event in events]
    given = [event.text for event in events if isinstance(event, CommandGiven)]
    assert given == [f"word {n}" for n in range(8)]


async def test_a_live_reader_gets_each_later_attempt_once_and_later_readers_none(rig: Rig) -> None:
    runner = await rig.make()
    task = await runner.create_task("q")
    rig.model.add(fail(503, message="busy"), hang("done"))
    live: list[StepEvent] = []
    seen = asyncio.Event()

    async def follow() -> None:
        async for event in runner.step_events(task, poll=0.01):
            live.append(event)
            if isinstance(event, Attempt):
                seen.set()

    async with asyncio.timeout(60):
        following = asyncio.create_task(follow())
        running = asyncio.create_task(runner.run_task(task))
        await seen.wait()
        await rig.model.until_held()
        rig.model.release()
        await running
        await runner.finalize_response(task)
        await following
    attempt = only(live, Attempt)
    assert (attempt.step_id, attempt.name, attempt.attempt) == ("s1", "model", 2)
    assert "busy" in attempt.why
    assert attempt.number == live[live.index(attempt) - 1].number
    live.remove(attempt)
    assert live == await read(runner, task)


async def test_the_command_lines_live_view_shows_why_a_step_stopped_after_its_answer(
    rig: Rig,
) -> None:
    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        await ctx.call_model()
        raise ValueError("a bug")

    runner = await rig.make(worker=Doing(body))
    task = await runner.create_task("q")
    rig.model.reply("words")
    with pytest.raises(StepFailedError):
        await runner.run_step(task)
    printed = io.StringIO()
    await LiveView(runner, task.task_id, Console(file=printed, width=200)).catch_up()
    assert "  s1 says words\n> Step s1 failed: ValueError: a bug" in printed.getvalue()
