"""Following a task: each event once, in order, from any process, while it runs and afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import AgentRunner, Retrieved, SourceNode, TaskStep, TaskStepOutput, ToolCall, tool
from holdfast import sync as blocking
from holdfast.errors import StepFailedError, TaskClosedError, TaskNotFoundError
from holdfast.reading.step_events import (
    ChatEnd,
    ChatStart,
    StepEnd,
    StepEvent,
    StepStart,
    StepUndone,
    ToolCalled,
    ToolDone,
    event_text,
)
from holdfast.task.data.calls import Outcome
from holdfast.task.data.commands import RunRequest
from holdfast.task.data.head import TaskHead
from holdfast.task.data.records import StepResult
from holdfast.task.data.state import TaskInput
from holdfast.task.data.wire import Advanced
from holdfast.task.ledger.ledger import Ledger
from holdfast.testing import FakeOpenAI
from holdfast.workers import StepContext
from tests.support.rig import MakeRunner, Rig, histories, until_status
from tests.support.workers import Counting, Doing, ends


@tool(effect="read")
def look(where: str = "here") -> str:
    """Look somewhere."""
    return f"seen {where}"


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


async def two_looks(runner: AgentRunner, model: FakeOpenAI, **options: Any) -> str:
    model.calls([("look", {"where": "a"}), ("look", {"where": "b"})])
    model.reply("done")
    return (await runner.chat("q", **options)).task_id


async def test_a_finished_task_tells_its_story(make_runner: MakeRunner, model: FakeOpenAI) -> None:
    runner = await make_runner(look)
    task = await two_looks(runner, model)
    events = await read(runner, task)
    assert in_call_order(events) == STORY
    assert [event.number for event in events] == list(range(10))
    end = events[-1]
    assert isinstance(end, ChatEnd)
    assert end.response == await runner.response(task)
    done = events[4]
    assert isinstance(done, ToolDone)
    assert done.output.tool_name == "look"


async def test_a_follower_of_a_running_task_gets_what_a_later_reader_gets(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    task = await runner.create_task("q")
    following = asyncio.create_task(read(runner, task, poll=0.01))
    model.calls([("look", {"where": "a"}), ("look", {"where": "b"})])
    model.reply("done")
    await runner.run_task(task)
    await runner.finalize_response(task)
    live = await following
    assert in_call_order(live) == STORY
    assert live == await read(runner, task)


async def test_reading_goes_on_after_any_event(make_runner: MakeRunner, model: FakeOpenAI) -> None:
    runner = await make_runner(look)
    task = await two_looks(runner, model)
    events = await read(runner, task)
    for event in events:
        rest = await read(runner, task, after=event.number)
        assert rest == events[event.number + 1 :]


async def test_each_event_is_read_as_soon_as_it_happened(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look, pay)
    task = await runner.create_task("q")
    events = runner.step_events(task, poll=0.01)
    assert _told(await anext(events)) == ("chat", "q")
    model.calls([("look", {}), ("pay", {"euros": 5})])
    assert (await runner.run_step(task)).status == "waiting"
    seen = [_told(await anext(events)) for _ in range(5)]
    assert [*seen[:3], *sorted(seen[3:])] == [
        ("start", "s1"),
        ("call", "s1", "look"),
        ("call", "s1", "pay"),
        ("done", "s1", "seen here"),
        ("waiting",),
    ]
    [approval] = await runner.pending_approvals(task)
    await runner.approve(approval.id, by="ann", arguments={"euros": 3})
    assert _told(await anext(events)) == ("approval_decided",)
    done = await anext(events)
    assert isinstance(done, ToolDone)
    assert (done.output.content, done.output.raw_input) == ("paid 3", '{"euros": 3}')
    assert _told(await anext(events))[:2] == ("end", "s1")
    await events.aclose()  # type: ignore[attr-defined]


async def test_until_answered_ends_before_the_task_is_closed(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(worker=Counting(2))
    task = await runner.create_task("q")
    await runner.run_task(task)
    events = await read(runner, task, until="answered")
    assert [words[0] for words in told(events)] == ["chat", "start", "end", "start", "end"]
    assert await read(runner, task, until="answered", after=events[-1].number) == []


async def test_calls_in_the_middle_of_a_step_are_told_with_their_batches(
    make_runner: MakeRunner,
) -> None:
    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        def call(id: str, where: str) -> ToolCall:
            return ToolCall(id=id, name="look", arguments=f'{{"where": "{where}"}}')

        [one] = await ctx.call_tools([call("1", "a")])
        [two] = await ctx.call_tools([call("2", one.content)])
        ctx.add(two.message)
        return TaskStepOutput(output=two.content, calls=(call("3", "c"),), is_last=True)

    runner = await make_runner(look, worker=Doing(body))
    response = await runner.chat("q")
    assert [words[-1] for words in told(await read(runner, response.task_id))[2:-2]] == [
        *("look", "seen a", "look", "seen seen a", "look", "seen c")
    ]


async def test_an_abandoned_task_ends_with_its_reason(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(pay)
    task = await runner.create_task("q")
    model.call("pay", {"euros": 5})
    await runner.run_step(task)
    await runner.abandon(task, "too dear", by="ann")
    await until_status(runner, task, "abandoned")
    events = await read(runner, task)
    assert told(events)[:3] == [("chat", "q"), ("start", "s1"), ("call", "s1", "pay")]
    end = events[-1]
    assert isinstance(end, ChatEnd)
    assert (end.status, end.response) == ("abandoned", None)
    assert "too dear" in end.error


async def test_a_task_that_was_terminated_from_outside_ends_too(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting(3))
    task = await runner.create_task("q")
    await runner.run_step(task)
    await runner.client.get_workflow_handle(task.task_id).terminate()
    events = await read(runner, task)
    assert [words[0] for words in told(events)] == ["chat", "start", "end", "closed"]


async def test_an_undone_step_keeps_its_events_and_numbers_are_never_given_twice(
    make_runner: MakeRunner,
) -> None:
    runner = await make_runner(worker=Counting(2))
    task = await runner.create_task("q")
    await runner.run_step(task)
    await runner.undo_step(task)
    await runner.run_task(task)
    await runner.finalize_response(task)
    events = await read(runner, task)
    assert [words[:2] for words in told(events)] == [
        ("chat", "q"),
        *[("start", "s1"), ("end", "s1")],
        ("undone", "s1"),
        *[("start", "s1"), ("end", "s1")],
        *[("start", "s2"), ("end", "s2")],
        ("closed", "finished"),
    ]
    assert [event.number for event in events] == list(range(len(events)))


async def test_a_step_that_is_started_anew_tells_its_new_calls_only(
    make_runner: MakeRunner,
) -> None:
    broken = [True]

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        await ctx.call_tools([ToolCall(id="1", name="look")])
        if broken:
            raise ValueError("bug")
        return ends(step)

    runner = await make_runner(look, worker=Doing(body))
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError):
        await runner.run_step(task)
    broken.clear()
    await runner.run_step(task, restart="step")
    events = await read(runner, task, until="answered")
    assert [words[0] for words in told(events)] == [
        *("chat", "start", "step_failed", "call", "done", "end")
    ]
    numbers = [event.number for event in events]
    assert numbers == [0, 1, 4, 5, 6, 7]


async def test_a_fork_begins_with_the_events_that_it_shares(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting(3))
    task = await runner.create_task("q")
    first = await runner.run_step(task)
    await runner.run_step(task)
    fork = await runner.fork(task, at=first)
    await runner.run_step(fork)
    follower = runner.step_events(fork, poll=0.01)
    events = [await anext(follower) for _ in range(5)]
    assert [words[:2] for words in told(events)[1:]] == [
        *(("start", "s1"), ("end", "s1"), ("start", "s2"), ("end", "s2"))
    ]
    assert {event.task_id for event in events} == {fork.task_id}
    assert [event.number for event in events] == [0, 1, 2, 3, 4]


async def test_a_task_that_continues_as_new_is_followed_without_a_gap(
    make_runner: MakeRunner,
) -> None:
    runner = await make_runner(worker=Counting(30), roll_events=60)
    task = await runner.create_task("q")
    following = asyncio.create_task(read(runner, task, poll=0.01))
    await runner.run_task(task)
    await runner.finalize_response(task)
    assert len(await histories(runner.client, task.task_id)) > 1
    events = await following
    assert [event.number for event in events] == list(range(62))
    assert events == await read(runner, task)


async def test_events_of_steps_side_by_side_are_interleaved_and_told_apart(
    make_runner: MakeRunner,
) -> None:
    both = asyncio.Barrier(2)

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        if step.step_id == "s1":
            following = tuple(step.get_next_step(step_id=id) for id in ("a", "b"))
            return TaskStepOutput(output="", task_step=step, next_steps=following)
        async with asyncio.timeout(100):
            await both.wait()
        return TaskStepOutput(output=step.step_id, task_step=step)

    runner = await make_runner(worker=Doing(body))
    task = await runner.create_task("q")
    await runner.run_step(task)
    await runner.run_steps_in_queue(task)
    follower = runner.step_events(task, poll=0.01)
    events = [await anext(follower) for _ in range(7)]
    assert [event.number for event in events] == list(range(7))
    assert told(events)[3:5] == [("start", "a"), ("start", "b")]
    assert sorted(told(events)[5:]) == [("end", "a", "a"), ("end", "b", "b")]


async def test_a_task_that_is_not_there_is_an_error(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting(2))
    with pytest.raises(TaskNotFoundError):
        await read(runner, "nobody")


async def test_sources_come_with_the_result(make_runner: MakeRunner, model: FakeOpenAI) -> None:
    @tool(effect="read")
    def search() -> Retrieved:
        """Search."""
        return Retrieved("found", nodes=[SourceNode(id="n")])

    runner = await make_runner(search)
    model.call("search")
    model.reply("done")
    response = await runner.chat("q")
    done = [e for e in await read(runner, response.task_id) if isinstance(e, ToolDone)]
    assert [node.id for node in done[0].output.nodes] == ["n"]


# ---- handlers


async def test_chat_tells_its_handler_every_event_before_it_returns(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    events: list[StepEvent] = []

    async def asynchronous(event: StepEvent) -> None:
        await asyncio.sleep(0)
        events.append(event)

    runner = await make_runner(look)
    for handler in (events.append, asynchronous):
        events.clear()
        await two_looks(runner, model, on_event=handler)
        assert in_call_order(events) == STORY


async def test_a_raising_handler_is_logged_and_the_task_is_completed(
    make_runner: MakeRunner, model: FakeOpenAI, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[StepEvent] = []

    def handler(event: StepEvent) -> None:
        events.append(event)
        raise ValueError("a broken handler")

    runner = await make_runner(look)
    task = await two_looks(runner, model, on_event=handler)
    assert (await runner.get_task(task)).status == "finished"
    assert in_call_order(events) == STORY
    assert caplog.text.count("failed at event") == len(STORY)
    assert "a broken handler" in caplog.text


async def test_a_chat_that_waits_or_fails_has_told_what_happened(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    events: list[StepEvent] = []
    runner = await make_runner(pay)
    model.call("pay", {"euros": 5})
    response = await runner.chat("q", on_event=events.append)
    assert response.status == "waiting"
    assert told(events) == [("chat", "q"), ("start", "s1"), ("call", "s1", "pay"), ("waiting",)]
    events.clear()
    model.fail(401)
    with pytest.raises(StepFailedError):
        await runner.chat("q", on_event=events.append)
    assert told(events) == [("chat", "q"), ("start", "s1"), ("step_failed",)]


async def test_a_verbose_runner_prints_what_happens(
    make_runner: MakeRunner, model: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = await make_runner(look, verbose=True)
    model.call("look", {"where": "a"})
    model.reply("done")
    response = await runner.chat("q")
    assert capsys.readouterr().out.splitlines() == [
        f"> Task {response.task_id}: q",
        "> Running step s1. Step input: q",
        '  s1 calls look {"where": "a"}',
        "  s1 look gave seen a",
        "> Running step s2. Step input: none",
        "> Step s2 has the answer: done",
        "> Task finished",
    ]


async def test_a_verbose_runner_prints_each_step_once_when_steps_are_run_one_by_one(
    make_runner: MakeRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = await make_runner(worker=Counting(4), verbose=True)
    task = await runner.create_task("q")
    for _ in range(2):
        await runner.run_step(task)
    await runner.run_task(task)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(".")[0] for line in lines[:4]] == [
        f"> Running step s{n}" for n in (1, 2, 3, 4)
    ]
    assert len(lines) == 5


async def test_a_verbose_runner_prints_only_what_happens_from_then_on_also_after_a_rollover(
    make_runner: MakeRunner, rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = await make_runner(worker=Counting(20), roll_events=50)
    task = await runner.create_task("q")
    for _ in range(12):
        await runner.run_step(task)
    assert len(await histories(runner.client, task.task_id)) > 1
    loud = rig.runner(verbose=True)
    await loud.run_step(task, request_id="loud")  # a new step: not the one that is given last
    assert capsys.readouterr().out.splitlines() == ["> Running step s13. Step input: none"]
    await runner.run_task(task)
    await runner.finalize_response(task)
    with pytest.raises(TaskClosedError):
        await loud.run_step(task)
    assert capsys.readouterr().out == ""


async def test_a_quiet_runner_prints_nothing(
    make_runner: MakeRunner, model: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    await two_looks(await make_runner(look), model)
    assert capsys.readouterr().out == ""


def test_long_texts_are_printed_in_one_short_line() -> None:
    text = event_text(ChatStart(number=0, task_id="t", input="a\nb " * 200))
    assert "\n" not in text
    assert text.endswith("...")
    assert len(text) < 250


# ---- numbers


def test_events_of_steps_are_numbered_in_the_order_in_which_they_happened() -> None:
    calls = (ToolCall(id="1", name="look"), ToolCall(id="2", name="look"))
    ledger = Ledger(TaskInput(head=TaskHead(agent="a"), input="q"), task_id="t", now=0.0)
    ledger.begin(RunRequest(), now=1.0)
    ledger.advanced(1, Advanced(result=StepResult(output="x", echo=False, adds=(), calls=calls)))
    ledger.outcome(1, 1, Outcome(content="second"))
    ledger.outcome(1, 0, Outcome(content="first"))
    record = ledger.finish(1, now=2.0)
    assert [(mark.number, mark.kind, mark.i) for mark in record.marks] == [
        (1, "start", 0),
        (2, "call", 0),
        (3, "call", 1),
        (4, "done", 1),
        (5, "done", 0),
        (6, "end", 0),
    ]


# ---- without await


def test_the_blocking_twin_is_an_iterator() -> None:
    from holdfast import Agent

    agent = Agent(name="twin", model="offline", tools=[look])
    with blocking.AgentRunner.local(agent, data_dir=None) as runner:
        response = runner.chat("hello")
        events = list(runner.step_events(response.task_id))
    assert [words[0] for words in told(events)] == ["chat", "start", "end", "closed"]
