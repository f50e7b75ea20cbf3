"""Tool calls of a task: order, errors, limits, state, effects."""

import re
from typing import Any

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from holdfast import AgentRunner, ToolContext, tool
from holdfast.testing import call, calls
from holdfast.workflows.agent_task import AgentTask
from tests.support.rig import Rig, histories
from tests.support.runs import look


async def results(runner: AgentRunner, task: Any) -> list[tuple[str, bool]]:
    outputs = await runner.get_completed_steps(task)
    return [(source.content, source.is_error) for o in outputs for source in o.sources]


async def test_what_is_wrong_with_a_call_is_told_to_the_model_and_the_task_goes_on(
    rig: Rig,
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

    @tool
    def act(ctx: ToolContext, where: str) -> str:
        """Act."""
        ran.append(where)
        ctx.state["half"] = True
        raise SystemExit(3)

    @tool
    async def leave() -> str:
        """Call sys.exit."""
        raise SystemExit(4)

    class PanicError(BaseException):
        """As Rust extensions raise it."""

    @tool(effect="read")
    def panic() -> str:
        """Break."""
        raise PanicError("index out of bounds")

    @tool(effect="read")
    async def close() -> str:
        """Close."""
        raise GeneratorExit

    runner = await rig.make(look, sync, asynchronous, act, leave, panic, close)
    told = {
        ("nope", ""): "nope not found.*look",
        ("sync", ""): "^Encountered error: ValueError: sync trouble$",
        ("asynchronous", ""): "^Encountered error: ValueError: async trouble$",
        ("act", '{"where": '): "JSON",
        ("act", '{"wrong": 1}'): "where",
        ("act", '{"where": "there"}'): "SystemExit",
        ("leave", ""): "SystemExit",
        ("panic", ""): "PanicError: index out of bounds",
        ("close", ""): "GeneratorExit",
    }
    rig.model.add(calls([(name, arguments or {}) for name, arguments in told]), "sorry")
    task = await runner.create_task("q")
    assert str(await runner.run_task(task)) == "sorry"
    found = await results(runner, task)
    for (text, is_error), pattern in zip(found, told.values(), strict=True):
        assert (is_error, bool(re.search(pattern, text))) == (True, True), text
    assert list(rig.model.requests[1].results.values()) == [text for text, _ in found]
    assert sorted(ran) == ["async", "sync", "there"]
    assert (await runner.get_task(task)).extra_state == {}


async def test_a_history_that_the_code_would_not_write_is_noticed(rig: Rig) -> None:
    """Every live test ends with a replay: here it is seen to fail."""

    @tool
    def act() -> str:
        """Act."""
        return "did it"

    runner = await rig.make(act)
    rig.model.add(call("act"), "done")
    task = (await runner.chat("q")).task_id
    [history] = await histories(runner.client, task)
    replayer = Replayer(workflows=[AgentTask], data_converter=runner.client.data_converter)
    for name, other in (('"tool"', '"tooth"'), ('"step"', '"stop"')):
        assert name in history.to_json()
        changed = WorkflowHistory.from_json(task, history.to_json().replace(name, other))
        with pytest.raises(Exception, match=r"(?i)nondeterminism|does not match"):
            await replayer.replay_workflow(changed)
