"""Following a task: each event once, in order, from any process, while it runs and afterwards."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import AgentRunner, tool
from holdfast.errors import TaskClosedError, TaskNotFoundError
from holdfast.reading.step_events import (
    ChatEnd,
    ChatStart,
    StepEnd,
    StepEvent,
    StepStart,
    StepUndone,
    ToolCalled,
    ToolDone,
)
from tests.support.rig import Rig, histories, until
from tests.support.runs import look
from tests.support.workers import Counting


@tool(needs_approval=True)
def pay(euros: int) -> str:
    """Pay money."""
    return f"paid {euros}"


def told(events: Sequence[StepEvent]) -> list[tuple[str, ...]]:
    """Return each event in few words."""
    return [_told(event) for event in events]


def _told(event: StepEvent) -> tuple[str, ...]:
    match event:
        case ChatStart():
            return ("chat", event.input)
        case StepStart():
            return ("start", event.step_id)
        case ToolCalled():
            return ("call", event.step_id, event.call.name)
        case ToolDone():
            return ("done", event.step_id, event.output.content)
        case StepEnd():
            return ("end", event.step_id, str(event.output))
        case StepUndone():
            return ("undone", *event.steps)
        case ChatEnd():
            return ("closed", event.status)
        case _:
            return (event.kind,)


async def read(runner: AgentRunner, task: Any, **options: Any) -> list[StepEvent]:
    """Follow a task to its end."""
    async with asyncio.timeout(60):
        return [event async for event in runner.step_events(task, **options)]


STORY = [
    ("chat", "q"),
    ("start", "s1"),
    ("call", "s1", "look"),
    ("call", "s1", "look"),
    ("done", "s1", "seen a"),
    ("done", "s1", "seen b"),
    ("end", "s1", ""),
    ("start", "s2"),
    ("end", "s2", "done"),
    ("closed", "finished"),
]


def in_call_order(events: Sequence[StepEvent]) -> list[tuple[str, ...]]:
    """Return events in few words; two calls that ran side by side are done in any order."""
    words = told(events)
    words[4:6] = sorted(words[4:6])
    return words


async def test_followers_handlers_and_later_readers_get_one_story_and_a_verbose_runner_prints_it(
    rig: Rig, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: list[StepEvent] = []

    async def handler(event: StepEvent) -> None:
        await asyncio.sleep(0)
        heard.append(event)
        raise ValueError("a broken handler")

    await rig.make(look)
    runner, task = rig.runner(verbose=True), f"{rig.app}-story"
    rig.model.calls([("look", {"where": "a"}), ("look", {"where": "b"})])
    rig.model.hang("done")
    with pytest.raises(TaskNotFoundError):
        await read(runner, "nobody")
    chatting = asyncio.create_task(runner.chat("q", task_id=task, on_event=handler))
    await rig.model.until_held()
    following = asyncio.create_task(read(runner, task, poll=0.01))
    rig.model.release()
    response = await chatting
    events = await read(runner, task)
    assert in_call_order(events) == STORY
    assert await following == heard == events
    assert [event.number for event in events] == list(range(10))
    end, done = events[-1], events[4]
    assert isinstance(end, ChatEnd)
    assert end.response == await runner.response(task) == response
    assert isinstance(done, ToolDone)
    assert done.output.tool_name == "look"
    for event in events:
        assert await read(runner, task, after=event.number) == events[event.number + 1 :]
    assert caplog.text.count("failed at event") == len(STORY)
    assert "a broken handler" in caplog.text
    printed = capsys.readouterr().out.splitlines()
    assert [*printed[:4], *sorted(printed[4:6]), *printed[6:]] == [
        f"> Task {task}: q",
        "> Running step s1. Step input: q",
        '  s1 calls look {"where": "a"}',
        '  s1 calls look {"where": "b"}',
        "  s1 look gave seen a",
        "  s1 look gave seen b",
        "> Running step s2. Step input: none",
        "> Step s2 has the answer: done",
        "> Task finished",
    ]


async def test_a_verbose_runner_prints_only_what_happens_from_then_on_also_after_a_rollover(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = await rig.make(worker=Counting(20), roll_events=50)
    task = await runner.create_task("q")
    for _ in range(8):
        await runner.run_step(task)
    await until(lambda: histories(runner.client, task.task_id), lambda found: len(found) > 1)
    assert capsys.readouterr().out == ""  # of one that is not verbose
    loud = rig.runner(verbose=True)
    await loud.run_step(task, request_id="loud")  # a new step: not the one that is given last
    assert capsys.readouterr().out.splitlines() == ["> Running step s9. Step input: none"]
    await runner.client.get_workflow_handle(task.task_id).terminate()
    with pytest.raises(TaskClosedError):
        await loud.run_step(task)
    assert capsys.readouterr().out == ""
    assert told(await read(runner, task))[-1] == ("closed", "abandoned")


# ---- numbers
