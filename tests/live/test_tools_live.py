"""Tool calls of a task: order, errors, limits, state, effects."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, AgentRunner, Budget, ToolContext, tool
from holdfast.errors import StepFailedError, UserError
from holdfast.testing import FakeOpenAI
from holdfast.workers import FunctionCallingAgentWorker
from holdfast.workers.context.model_calls import LAST_CALL
from tests.support.rig import MakeAgent, MakeRunner, Rig, activities_of, until_status
from tests.support.workers import said


@tool(effect="read")
def look(where: str = "here") -> str:
    """Look somewhere."""
    return f"seen {where}"


async def results(runner: AgentRunner, task: Any) -> list[tuple[str, bool]]:
    outputs = await runner.get_completed_steps(task)
    return [(source.content, source.is_error) for o in outputs for source in o.sources]


async def test_an_unknown_tool_is_told_to_the_model_and_the_task_goes_on(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.call("nope")
    model.reply("sorry")
    response = await runner.chat("q")
    assert str(response) == "sorry"
    [source] = response.sources
    assert "nope not found" in source.content
    assert "look" in source.content
    assert source.is_error
    assert model.requests[1].results["call_1"] == source.content


async def test_a_tool_that_raises_is_told_to_the_model_with_its_text(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    ran: list[str] = []

    @tool
    def sync() -> str:
        """Fail."""
        ran.append("sync")
        raise ValueError("sync trouble")

    @tool
    async def asynchronous() -> str:
        """Fail."""
        ran.append("async")
        raise ValueError("async trouble")

    runner = await make_runner(sync, asynchronous)
    model.calls([("sync", {}), ("asynchronous", {})])
    model.reply("sorry")
    response = await runner.chat("q")
    assert [(s.content, s.is_error) for s in response.sources] == [
        ("Encountered error: ValueError: sync trouble", True),
        ("Encountered error: ValueError: async trouble", True),
    ]
    assert sorted(ran) == ["async", "sync"]


async def test_malformed_arguments_are_told_to_the_model_and_the_tool_does_not_run(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    ran: list[str] = []

    @tool
    def act(where: str) -> str:
        """Act."""
        ran.append(where)
        return "done"

    runner = await make_runner(act)
    model.call("act", '{"where": ')
    model.call("act", {"wrong": 1})
    model.reply("sorry")
    response = await runner.chat("q")
    assert [s.is_error for s in response.sources] == [True, True]
    assert "JSON" in response.sources[0].content
    assert "where" in response.sources[1].content
    assert ran == []


async def test_results_are_in_call_order_whatever_ends_first(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    second_done = asyncio.Event()

    @tool(effect="read")
    async def first() -> str:
        """Wait for the second."""
        await second_done.wait()
        return "one"

    @tool(effect="read")
    async def second() -> str:
        """End at once."""
        second_done.set()
        return "two"

    runner = await make_runner(first, second)
    model.calls([("first", {}), ("second", {})])
    model.reply("done")
    response = await runner.chat("q")
    assert [str(s) for s in response.sources] == ["one", "two"]
    assert list(model.requests[1].results.values()) == ["one", "two"]


async def test_a_budget_of_calls_is_never_passed_and_ends_with_a_tool_free_answer(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    ran: list[str] = []

    @tool
    def act(where: str) -> str:
        """Act."""
        ran.append(where)
        return f"done {where}"

    worker = FunctionCallingAgentWorker(max_function_calls=3)
    runner = await make_runner(act, worker=worker)
    model.calls([("act", {"where": "a"}), ("act", {"where": "b"})])
    model.calls([("act", {"where": "c"}), ("act", {"where": "d"}), ("act", {"where": "e"})])
    model.reply("that is all")
    response = await runner.chat("q", session="s")
    assert sorted(ran) == ["a", "b", "c"]
    assert str(response) == "that is all"
    last = model.requests[2]
    assert last.body["tool_choice"] == "none"
    texts = list(last.results.values())
    assert texts[:3] == ["done a", "done b", "done c"]
    assert all("budget" in text for text in texts[3:])
    assert len(texts) == 5


async def test_one_call_at_a_time_runs_the_first_and_refuses_the_others(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    worker = FunctionCallingAgentWorker(allow_parallel_tool_calls=False)
    runner = await make_runner(look, worker=worker)
    model.calls([("look", {"where": "a"}), ("look", {"where": "b"})])
    model.reply("done")
    await runner.chat("q")
    texts = list(model.requests[1].results.values())
    assert texts[0] == "seen a"
    assert "one tool at a time" in texts[1]


async def test_a_return_direct_tool_that_fails_lets_the_task_go_on(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    @tool(return_direct=True)
    def answer() -> str:
        """Answer."""
        raise ValueError("no")

    runner = await make_runner(answer)
    model.call("answer")
    model.reply("by hand")
    assert str(await runner.chat("q")) == "by hand"


async def test_a_return_direct_tool_runs_once(make_runner: MakeRunner, model: FakeOpenAI) -> None:
    ran: list[int] = []

    @tool(return_direct=True)
    def answer() -> str:
        """Answer."""
        ran.append(1)
        return "direct"

    runner = await make_runner(answer)
    model.call("answer")
    response = await runner.chat("q")
    assert (str(response), ran) == ("direct", [1])
    assert [str(s) for s in response.sources] == ["direct"]


async def test_a_tool_knows_its_task_step_call_and_key(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    seen: list[ToolContext] = []

    @tool
    def act(ctx: ToolContext, n: int) -> str:
        """Act."""
        seen.append(ctx)
        return "done"

    runner = await make_runner(act)
    model.calls([("act", {"n": 1}), ("act", {"n": 1}), ("act", {"n": 2})])
    model.reply("done")
    task = await runner.create_task("q")
    await runner.run_task(task)
    by_id = sorted(seen, key=lambda ctx: ctx.call_id)
    assert [ctx.call_id for ctx in by_id] == ["call_1", "call_2", "call_3"]
    assert {(ctx.task_id, ctx.step_id, ctx.agent_name) for ctx in seen} == {
        (task.task_id, "s1", "agent")
    }
    assert len({ctx.idempotency_key for ctx in seen}) == 3
    assert [json.loads(ctx.arguments)["n"] for ctx in by_id] == [1, 1, 2]
    assert {ctx.attempt for ctx in seen} == {1}


async def test_a_tool_changes_the_state_and_later_tools_see_it(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    @tool
    def add(ctx: ToolContext, name: str) -> str:
        """Add."""
        ctx.state.setdefault("names", []).append(name)
        return ",".join(ctx.state["names"])

    runner = await make_runner(add)
    model.call("add", {"name": "a"})
    model.call("add", {"name": "b"})
    model.reply("done")
    task = await runner.create_task("q", extra_state={"kept": 1})
    await runner.run_task(task)
    assert [text for text, _ in await results(runner, task)] == ["a", "a,b"]
    assert (await runner.get_task(task)).extra_state == {"kept": 1, "names": ["a", "b"]}


async def test_parallel_tools_change_the_state_in_call_order(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    @tool
    def put(ctx: ToolContext, key: str, value: int) -> str:
        """Put."""
        ctx.state[key] = value
        return "ok"

    runner = await make_runner(put)
    model.calls(
        [
            ("put", {"key": "a", "value": 1}),
            ("put", {"key": "same", "value": 1}),
            ("put", {"key": "same", "value": 2}),
        ]
    )
    task = await runner.create_task("q")
    await runner.run_step(task)
    assert (await runner.get_task(task)).extra_state == {"a": 1, "same": 2}
    [entry] = [e.step for e in await runner.ledger(task) if e.step is not None]
    assert entry.conflicts == ("same",)


async def test_a_failed_tool_leaves_the_state_as_it_was(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    @tool
    def put(ctx: ToolContext) -> str:
        """Put and fail."""
        ctx.state["half"] = True
        raise ValueError("no")

    runner = await make_runner(put)
    model.call("put")
    task = await runner.create_task("q")
    await runner.run_step(task)
    assert (await runner.get_task(task)).extra_state == {}


async def test_a_state_that_is_not_json_is_told_and_the_tool_runs_once(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    ran: list[int] = []

    @tool
    def put(ctx: ToolContext) -> str:
        """Put something that cannot be stored."""
        ran.append(1)
        ctx.state["bad"] = object()
        return "acted"

    runner = await make_runner(put)
    model.call("put")
    model.reply("sorry")
    task = await runner.create_task("q")
    await runner.run_task(task)
    [(text, is_error)] = await results(runner, task)
    assert "state.bad" in text
    assert is_error
    assert ran == [1]
    assert (await runner.get_task(task)).extra_state == {}


async def test_a_tool_that_is_missing_in_the_worker_parks_the_task_and_then_runs(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    await rig.serve(make_agent(look))
    runner = rig.runner()
    model.call("look")
    task = await runner.create_task("q")
    await runner.pause(task)  # the snapshot is taken with the tool
    await until_status(runner, task, "paused")
    await rig.serve(make_agent())
    await runner.resume(task)
    with pytest.raises(StepFailedError, match=r"Tool look not found.*there is: none") as caught:
        await runner.run_step(task)
    assert caught.value.cause_type == "ToolMissingError"
    assert (await runner.get_task(task)).status == "needs_attention"
    await rig.serve(make_agent(look))
    assert [str(s) for s in (await runner.run_step(task)).sources] == ["seen here"]
    assert len(model.requests) == 1


async def test_a_call_that_is_done_is_not_repeated_because_its_sibling_failed(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    ran: list[str] = []

    @tool
    def act() -> str:
        """Act."""
        ran.append("act")
        return "acted"

    await rig.serve(make_agent(act, look))
    runner = rig.runner()
    model.calls([("act", {}), ("look", {})])
    task = await runner.create_task("q")
    await runner.pause(task)
    await until_status(runner, task, "paused")
    await rig.serve(make_agent(act))
    await runner.resume(task)
    with pytest.raises(StepFailedError, match="Tool look not found"):
        await runner.run_step(task)
    await rig.serve(make_agent(act, look))
    output = await runner.run_step(task)
    assert [str(s) for s in output.sources] == ["acted", "seen here"]
    assert ran == ["act"]
    assert len(model.requests) == 1


async def test_a_tool_repeats_the_errors_that_it_declares_worth_it(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    ran: list[int] = []

    @tool(max_attempts=2, retry_on=(ConnectionError,))
    def act() -> str:
        """Act."""
        ran.append(1)
        if len(ran) == 1:
            raise ConnectionError("cut")
        return "acted"

    runner = await make_runner(act)
    model.call("act")
    model.reply("done")
    response = await runner.chat("q")
    assert (str(response.sources[0]), ran) == ("acted", [1, 1])


async def test_a_tool_without_failure_function_ends_the_task(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    @tool(failure_error_function=None)
    def act() -> str:
        """Fail."""
        raise ValueError("the cause")

    runner = await make_runner(act)
    model.call("act")
    task = await runner.create_task("q")
    with pytest.raises(UserError, match=r"act.*the cause"):
        await runner.run_task(task)
    await until_status(runner, task, "failed")


async def test_a_failure_function_that_raises_does_not_run_the_tool_again(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    ran: list[int] = []

    def formatter(ctx: Any, error: Exception) -> str:
        raise KeyError("a bug in the formatter")

    @tool(failure_error_function=formatter)
    def act() -> str:
        """Fail."""
        ran.append(1)
        raise ValueError("the cause")

    runner = await make_runner(act)
    model.call("act")
    model.reply("sorry")
    task = await runner.create_task("q")
    for _ in range(3):
        try:
            await runner.run_step(task)
        except Exception:  # noqa: BLE001  whatever it says, the tool must not run again
            continue
    assert ran == [1]


async def test_a_sync_tool_does_not_block_the_worker(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    release = threading.Event()

    @tool(effect="read")
    def block() -> str:
        """Block a thread."""
        assert release.wait(100)
        return "one"

    @tool(effect="read")
    async def free() -> str:
        """Let the other go."""
        release.set()
        return "two"

    runner = await make_runner(block, free)
    model.calls([("block", {}), ("free", {})])
    model.reply("done")
    response = await runner.chat("q")
    assert [str(s) for s in response.sources] == ["one", "two"]


async def test_a_tool_that_exits_does_not_end_the_worker(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    @tool
    def leave() -> str:
        """Call sys.exit."""
        raise SystemExit(3)

    @tool
    async def leave_async() -> str:
        """Call sys.exit."""
        raise SystemExit(4)

    runner = await make_runner(leave, leave_async)
    model.call("leave")
    model.call("leave_async")
    model.reply("still here")
    response = await runner.chat("q")
    assert str(response) == "still here"
    assert [s.is_error for s in response.sources] == [True, True]


async def test_a_tool_stopped_with_its_worker_is_unknown_and_not_repeated(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    from datetime import timedelta

    ran: list[int] = []
    begun = asyncio.Event()

    @tool
    async def act() -> str:
        """Act slowly."""
        ran.append(1)
        begun.set()
        await asyncio.sleep(60)
        return "late"

    await rig.serve(make_agent(act), graceful_shutdown_timeout=timedelta(seconds=0))
    runner = rig.runner()
    model.call("act")
    task = await runner.create_task("q")
    waiting = asyncio.create_task(runner.run_step(task))
    await begun.wait()
    await rig.serve(make_agent(act))
    output = await waiting
    assert output.status == "waiting"
    assert "act" in output.waiting_for[0]
    assert "was stopped while the tool ran" in output.waiting_for[0]
    assert (await runner.get_task(task)).status == "waiting"
    assert (await runner.run_step(task)) == output
    assert (await runner.run_task(task)).status == "waiting"
    assert ran == [1]


async def test_a_read_tool_stopped_with_its_worker_is_run_again(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    from datetime import timedelta

    ran: list[int] = []
    begun = asyncio.Event()

    @tool(effect="read")
    async def peek() -> str:
        """Read slowly the first time."""
        ran.append(1)
        begun.set()
        if len(ran) == 1:
            await asyncio.sleep(60)
        return "read"

    await rig.serve(make_agent(peek), graceful_shutdown_timeout=timedelta(seconds=0))
    runner = rig.runner()
    model.call("peek")
    task = await runner.create_task("q")
    waiting = asyncio.create_task(runner.run_step(task))
    await begun.wait()
    await rig.serve(make_agent(peek))
    output = await waiting
    assert [str(s) for s in output.sources] == ["read"]
    assert output.sources[0].attempts == 2
    assert ran == [1, 1]
    assert len(model.requests) == 1


async def test_a_tool_whose_result_cannot_be_archived_is_not_run_again(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.archive.archive import Archive
    from holdfast.errors import ArchiveError

    ran: list[int] = []
    broken = True
    put = Archive.put

    def failing(self: Archive, data: bytes) -> str:
        if broken and len(data) > 50_000:
            raise ArchiveError("the disk is full")
        return put(self, data)

    @tool
    def act() -> str:
        """Act, with much to say."""
        ran.append(1)
        return "x" * 60_000

    monkeypatch.setattr(Archive, "put", failing)
    await rig.serve(make_agent(act))
    runner = rig.runner()
    model.call("act")
    task = await runner.create_task("q")
    waiting = asyncio.create_task(runner.run_step(task))
    await asyncio.sleep(1.5)
    broken = False
    await asyncio.gather(waiting, return_exceptions=True)
    await runner.run_step(task) if waiting.exception() else None
    assert ran == [1]


async def test_a_model_answer_that_cannot_be_archived_is_not_paid_again(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.archive.archive import Archive
    from holdfast.errors import ArchiveError

    broken = True
    put = Archive.put

    def failing(self: Archive, data: bytes) -> str:
        if broken and len(data) > 50_000:
            raise ArchiveError("the disk is full")
        return put(self, data)

    monkeypatch.setattr(Archive, "put", failing)
    await rig.serve(make_agent())
    runner = rig.runner()
    model.reply("x" * 60_000)
    task = await runner.create_task("q")
    waiting = asyncio.create_task(runner.run_step(task))
    await asyncio.sleep(1.5)
    broken = False
    assert str(await waiting) == "x" * 60_000
    assert len(model.requests) == 1


@pytest.mark.parametrize("policy", ["ask", "finish", "fail"])
async def test_a_budget_of_turns_ends_as_its_policy_says(
    make_runner: MakeRunner, model: FakeOpenAI, policy: Any
) -> None:
    from holdfast import MaxTurnsExceeded

    runner = await make_runner(look)
    model.call("look", {"where": "a"})
    model.call("look", {"where": "b"})
    task = await runner.create_task("q", budget=Budget(max_turns=2, on_exceeded=policy))
    if policy == "fail":
        with pytest.raises(MaxTurnsExceeded, match="2"):
            await runner.run_task(task)
        await until_status(runner, task, "failed")
        assert [text for text, _ in await results(runner, task)] == ["seen a", "seen b"]
    elif policy == "finish":
        model.reply("as far as I know")
        assert str(await runner.run_task(task)) == "as far as I know"
        assert model.requests[2].body["tool_choice"] == "none"
    else:
        waiting = await runner.run_task(task)
        assert (waiting.status, len(model.requests)) == ("waiting", 2)
        assert "max_turns=2" in waiting.waiting_for[0]
        [approval] = await runner.pending_approvals(task)
        model.reply("with one more")
        await runner.approve(approval, by="ann")
        assert str(await runner.run_task(task)) == "with one more"


async def test_asked_for_one_more_turn_a_budget_lets_one_pass_and_asks_again(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.call("look")
    task = await runner.create_task("q", budget=Budget(max_turns=0))
    assert (await runner.run_step(task)).status == "waiting"
    assert model.requests == []
    [first] = await runner.pending_approvals(task)
    await runner.approve(first, by="ann")
    assert (await runner.run_step(task)).status == "done"
    assert (await runner.run_step(task)).status == "waiting"
    [second] = await runner.pending_approvals(task)
    assert (second.id != first.id, len(model.requests)) == (True, 1)


async def test_a_finish_budget_ignores_tool_calls_of_the_last_answer(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.call("look", text="the text beside the call")
    task = await runner.create_task("q", budget=Budget(max_turns=0, on_exceeded="finish"))
    output = await runner.run_task(task)
    assert (str(output), output.is_last) == ("the text beside the call", True)
    assert said(await runner.transcript(task)) == [
        ("user", "q"),
        ("system", LAST_CALL.text),
        ("assistant", "the text beside the call"),
    ]


async def test_a_turn_costs_two_activities(make_runner: MakeRunner, model: FakeOpenAI) -> None:
    @tool
    def act() -> str:
        """Act."""
        return "did it"

    runner = await make_runner(act)
    for _ in range(3):
        model.call("act")
    model.reply("done")
    task = await runner.create_task("q")
    await runner.run_task(task)
    assert await activities_of(runner.client, task.task_id) == [
        "describe",
        *(["step", "tool"] * 3),
        "step",
    ]


async def test_plain_functions_are_tools(
    rig: Rig, model: FakeOpenAI, make_agent: MakeAgent, tmp_path: Path
) -> None:
    def write(name: str, text: str) -> int:
        """Write a file."""
        return (tmp_path / name).write_text(text)

    agent: Agent = make_agent(write)
    await rig.serve(agent)
    model.call("write", {"name": "a.txt", "text": "hello"})
    model.reply("done")
    response = await rig.runner().chat("q")
    assert (tmp_path / "a.txt").read_text() == "hello"
    assert str(response.sources[0]) == "5"
