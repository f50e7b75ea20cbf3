"""A message that comes while another task of its session runs: each mode, and who has the floor."""

import asyncio
import itertools
import time
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client

from holdfast import AgentRunner, Runner, RunState, tool
from holdfast.client.agent_runner import turns
from holdfast.client.agent_runner.turns import Turn
from holdfast.client.runner.runner import RunArguments
from holdfast.errors import (
    ConnectError,
    InvalidArgumentError,
    NoWorkerError,
    SessionBusyError,
    TaskAbandonedError,
    UserError,
)
from holdfast.testing import FakeOpenAI, call
from holdfast.testing.fake_api.replies import hang
from holdfast.workflows.children import children
from tests.support.people import ask
from tests.support.rig import Rig, until, until_status
from tests.support.runs import Runs, look, pay
from tests.support.workers import said


@pytest.fixture(autouse=True)
def _called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody look whether a task has ended: its end must be told."""
    for name in ("FIRST_PAUSE", "LONGEST_PAUSE"):
        monkeypatch.setattr(children, name, timedelta(hours=1))


async def line(runner: AgentRunner, name: str = "s") -> tuple[str, ...]:
    return (await runner.reader.session(runner.session(name).id)).line


async def until_in_line(runner: AgentRunner, *tasks: str) -> None:
    """Wait until these tasks of the session are in line, and all but the first say so."""

    async def is_so() -> bool:
        if await line(runner) != tasks:
            return False
        waits = [(await runner.get_task(each)).waits for each in tasks[1:]]
        return all(each.startswith(f"waits for task {tasks[0]!r} of session 's'") for each in waits)

    await until(is_so)


async def texts(runner: AgentRunner, name: str = "s") -> list[str]:
    return [text for _, text in said(await runner.session(name).chat_history())]


async def held_run(run: Runs, model: FakeOpenAI, **options: Any) -> asyncio.Task[Any]:
    """Begin a run in the session whose model does not answer yet."""
    model.add(hang("one"))
    await run.serve(look)
    given = {"session": "s", "task_id": f"{run.rig.app}-a", **options}
    running = asyncio.ensure_future(run("first", **given))
    await model.until_held()
    return running


async def test_runs_at_once_see_one_anothers_turns_in_order(run: Runs, model: FakeOpenAI) -> None:
    model.add("1", "2", "3", "4")
    await run.serve(look)
    results = await asyncio.gather(
        *(run(f"q{k}", session="s", task_id=f"{run.rig.app}-{k}") for k in range(4))
    )
    seen = [[text for _, text in said(each.messages)] for each in model.requests]
    assert [len(each) for each in seen] == [1, 3, 5, 7]
    assert all(after[: len(before)] == before for before, after in itertools.pairwise(seen))
    assert sorted(each.final_output for each in results) == ["1", "2", "3", "4"]
    assert await texts(run.runner) == [*seen[-1], "4"]
    assert await line(run.runner) == ()
    await run.rig.assert_replays()


async def test_a_run_waits_for_its_turn_while_a_server_is_away_and_a_streamed_one_merges_with_none(
    run: Runs, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await held_run(run, model)
    looks, real = [ConnectError("away"), NoWorkerError("away")], Turn._pending
    looked = asyncio.Event()

    async def pending(turn: Turn) -> set[str]:
        if looks:
            raise looks.pop()
        looked.set()
        return await real(turn)

    monkeypatch.setattr(Turn, "_pending", pending)
    second = asyncio.ensure_future(run("second", session="s"))
    has_looked = asyncio.ensure_future(looked.wait())
    await asyncio.wait({second, has_looked}, return_when=asyncio.FIRST_COMPLETED)
    assert not second.done() or second.result()
    assert run.agent is not None
    given: RunArguments = {"session": "s", "on_busy": "merge", "runner": run.runner}
    streamed = Runner.run_streamed(run.agent, "third", **given)
    with pytest.raises(UserError, match="on_busy='merge' makes none"):
        _ = [each async for each in streamed.stream_events()]
    model.add("two")
    model.release()
    assert [(await each).final_output for each in (first, second)] == ["one", "two"]


async def test_a_task_that_waits_says_why_everywhere_and_can_be_abandoned(
    run: Runs, model: FakeOpenAI
) -> None:
    first = await held_run(run, model)
    a, b, c = (f"{run.rig.app}-{x}" for x in "abc")
    waiting = [asyncio.ensure_future(run("second", session="s", task_id=b))]
    await until_in_line(run.runner, a, b)
    waiting.append(asyncio.ensure_future(run("third", session="s", task_id=c)))
    await until_in_line(run.runner, a, b, c)
    plain = await Client.connect(run.runner.client.service_client.config.target_host)
    shown = await plain.get_workflow_handle(b).query("task")
    assert shown["waits"] == f"waits for task {a!r} of session 's'"
    assert shown["status"] == "running"
    assert (await plain.get_workflow_handle(c).query("task"))["waits"].endswith(" and 1 more")
    await run.runner.abandon(b, "no", by="ann")
    with pytest.raises(TaskAbandonedError):
        await waiting[0]
    await until_in_line(run.runner, a, c)
    model.reply("three")
    model.release()
    assert (await first).final_output == "one"
    assert (await waiting[1]).final_output == "three"
    assert await texts(run.runner) == ["first", "one", "third", "three"]
    await run.rig.assert_replays()


async def test_an_answered_chat_that_is_yet_to_be_finalized_does_not_rest(
    run: Runs, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "GROWTH", 60)
    monkeypatch.setattr(turns, "LONGEST_LOOK_SECONDS", 60)
    model.add("one", "two")
    await run.serve(look)
    resting, finalize, is_seen = Turn._resting, AgentRunner.finalize_response, asyncio.Event()

    async def see(turn: Turn) -> tuple[str, str] | None:
        found = await resting(turn)
        if found is not None:
            is_seen.set()
        return found

    async def late(runner: AgentRunner, task: str) -> Any:
        await is_seen.wait()
        return await finalize(runner, task)

    monkeypatch.setattr(Turn, "_resting", see)
    monkeypatch.setattr(AgentRunner, "finalize_response", late)
    begun, a = asyncio.Event(), f"{run.rig.app}-a"
    given: Any = {"session": "s", "task_id": a, "started": begun.set}
    first = asyncio.ensure_future(run.runner.chat("first", **given))
    await begun.wait()
    await until_status(run.runner, await run.runner.get_task(a), "answered")
    second = await run.runner.chat("second", session="s")
    assert ((await first).response, second.response) == ("one", "two")


async def test_an_interrupt_abandons_the_running_task_and_begins(
    run: Runs, model: FakeOpenAI
) -> None:
    first = await held_run(run, model)
    a, b = (f"{run.rig.app}-{x}" for x in "ab")
    model.reply("two")
    result = await run("second", session="s", task_id=b, on_busy="interrupt", by="ann")
    assert result.final_output == "two"
    with pytest.raises(TaskAbandonedError, match=f"ann: interrupted by task '{b}'"):
        await first
    model.release()
    assert await texts(run.runner) == ["second", "two"]
    assert (await run.runner.get_task(a)).status == "abandoned"
    await run.rig.assert_replays()


async def test_a_merged_message_is_read_after_what_it_corrects(
    run: Runs, model: FakeOpenAI
) -> None:
    first = await held_run(run, model)
    merged = asyncio.ensure_future(run("no, second", session="s", on_busy="merge"))
    chat = asyncio.ensure_future(run.runner.chat("and third", session="s", on_busy="merge"))

    async def is_said() -> bool:
        events = await run.runner.audit(f"{run.rig.app}-a")
        return sum(each.kind == "command" for each in events) == 2

    await until(is_said)
    model.reply("two")
    model.release()
    results = [await first, await merged]
    assert [each.final_output for each in results] == ["two", "two"]
    assert (await chat).response == "two"
    last = [text for _, text in said(model.requests[-1].messages)]
    assert last[:2] == ["first", "one"]
    assert sorted("\n".join(last[2:]).split("\n\n")) == ["and third", "no, second"]
    model.reply("later")
    assert (await run("fourth", session="s", on_busy="merge")).final_output == "later"
    with pytest.raises(InvalidArgumentError, match="gives a running task a text"):
        await run([{"role": "user", "content": "x"}], session="s", on_busy="merge")


async def test_a_merged_message_whose_task_has_just_ended_runs_as_a_task_of_its_own(
    run: Runs, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.add("one", "two")
    await run.serve(look)
    first = await run("first", session="s")

    async def just_before(_turn: Turn) -> str:
        return str(first.task_id)

    monkeypatch.setattr(Turn, "_holder", just_before)
    result = await run("second", session="s", on_busy="merge")
    assert (result.final_output, result.task_id != first.task_id) == ("two", True)
    assert await texts(run.runner) == ["first", "one", "second", "two"]


async def test_a_run_that_waits_for_a_task_which_waits_for_a_person_says_so(
    run: Runs, model: FakeOpenAI
) -> None:
    a, b = (f"{run.rig.app}-{x}" for x in "ab")
    model.call("pay")
    await run.serve(look, pay)
    assert (await run("first", session="s", task_id=a)).interruptions
    with pytest.raises(SessionBusyError, match="is 'waiting'") as caught:
        await run("second", session="s", task_id=b)
    assert (caught.value.task_id, caught.value.waiting) == (a, b)
    await until_in_line(run.runner, a, b)
    model.add("paid", "two")
    state = RunState.of(a)
    await run.runner.approve((await ask(run.runner, a)).id, by="ann")
    assert (await run(state)).final_output == "paid"
    assert (await run(RunState.of(b))).final_output == "two"


async def test_a_tool_cannot_run_in_the_session_of_its_task(run: Runs, model: FakeOpenAI) -> None:
    refused: list[str] = []

    @tool(effect="read")
    async def nested() -> str:
        """Run another agent in the same session."""
        for mode in ("queue", "refuse", "interrupt", "merge"):
            try:
                await run.runner.chat("inner", session="s", on_busy=mode)
            except SessionBusyError as error:
                refused.append(str(error))
        return "tried"

    model.add(call("nested"), "done")
    await run.serve(nested)
    result = await run("outer", session="s")
    assert result.final_output == "done"
    assert len(refused) == 4
    assert all(f"Task {result.task_id!r} of session 's' comes first" in each for each in refused)
    assert await line(run.runner) == ()


async def test_the_place_of_a_task_is_kept_until_it_is_created_and_given_back_if_that_fails(
    run: Runs, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.add("one", "two")
    await run.serve(look)
    a, b = (f"{run.rig.app}-{x}" for x in "ab")
    start, may_start = AgentRunner._start, asyncio.Event()

    async def late(runner: AgentRunner, task_id: str, *given: Any, **options: Any) -> Any:
        if task_id == a:
            await may_start.wait()
        if task_id == f"{a}x":
            raise ConnectError("away")
        return await start(runner, task_id, *given, **options)

    monkeypatch.setattr(AgentRunner, "_start", late)
    first = asyncio.ensure_future(run.runner.chat("first", session="s", task_id=a))

    async def has_said_so_again() -> bool:
        return a in (await run.runner.reader.session_so_far(run.runner.session("s").id)).claims

    await until(has_said_so_again)
    second = asyncio.ensure_future(run.runner.chat("second", session="s", task_id=b))
    with pytest.raises(ConnectError):
        await run.runner.create_task("q", session="s", task_id=f"{a}x", on_busy="queue")
    assert await line(run.runner) == (a, b)
    may_start.set()
    assert [(await each).response for each in (first, second)] == ["one", "two"]


async def test_tasks_that_take_no_turns_are_as_before(rig: Rig, model: FakeOpenAI) -> None:
    runner = await rig.make(look)
    model.add("a", "b")
    tasks = [await runner.create_task(f"q{k}", session="s") for k in range(2)]
    for task in tasks:
        await runner.run_task(task)
    assert [len(each.messages) for each in model.requests] == [1, 1]
    for task in tasks:
        await runner.finalize_response(task)
    with pytest.raises(InvalidArgumentError, match="name one with session"):
        await runner.create_task("q", on_busy="queue")
    with pytest.raises(InvalidArgumentError, match="start_at is later"):
        await runner.create_task("q", session="s", on_busy="refuse", start_at=time.time() + 60)
