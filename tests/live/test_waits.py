"""Calls that wait: for a time, and for whoever has their token."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import Agent, AgentRunner, Runner, Task, ToolContext, sleep_until, tool
from holdfast import agents_sdk as sdk
from holdfast.agents.tools.decorator import Tool
from holdfast.agents.tools.waiting import LaterTool
from holdfast.errors import CommandRefusedError, DeclarationError, InvalidArgumentError
from holdfast.testing import ScriptedModel
from holdfast.values.messages import ToolCall
from tests.support.rig import Rig, until, until_status, until_task

Script = list[ToolCall | str]
LATER = datetime(2990, 1, 1, tzinfo=UTC)


def call(name: str, **arguments: object) -> ToolCall:
    """Return a call as the model makes it."""
    return ToolCall(id="", name=name, arguments=json.dumps(arguments))


async def served(rig: Rig, made: Tool, script: Script) -> AgentRunner:
    """Serve an agent with a tool, whose model follows a script."""
    await rig.serve(Agent(name="agent", model=ScriptedModel(script), tools=[made]))
    return rig.runner()


async def until_waits(runner: AgentRunner, task: Task, said: str) -> str:
    """Wait until a task says what its calls wait for; return that."""
    return (await until_task(runner, task, lambda found: said in found.waits)).waits


async def results(runner: AgentRunner, task: Task) -> list[str]:
    """List what the model has read of its calls."""
    return [str(m.content) for m in await runner.transcript(task) if m.role == "tool"]


async def test_people_see_that_a_call_sleeps_and_wake_it(rig: Rig) -> None:
    turns: Script = [call("sleep_until", when="2900-01-01T00:00:00Z", note="look again"), "done"]
    runner = await served(rig, sleep_until, turns)
    task = await runner.create_task("q", step_mode="automatic")
    waits = await until_waits(runner, task, "sleeps")
    assert waits == "sleeps until 2900-01-01 00:00:00 UTC, look again"
    await runner.wake(task, "anna", until=LATER)
    await until_waits(runner, task, "sleeps until 2990")
    with pytest.raises(CommandRefusedError, match="No such call"):
        await runner.wake(task, "anna", call="other")
    await runner.wake(task, "anna", reason="now")
    await until_status(runner, task, "answered")
    assert (await runner.get_task(task)).waits == ""
    with pytest.raises(CommandRefusedError, match="No such call"):
        await runner.wake(task, "anna")


async def ordering(rig: Rig, **options: Any) -> tuple[AgentRunner, list[str]]:
    """Serve an agent whose tool hands out tokens; return them as they come."""
    tokens: list[str] = []

    @tool(completes="later", **options)
    async def order(ctx: ToolContext, thing: str) -> str:
        """Order something."""
        ctx.state["ordered"] = thing
        tokens.append(ctx.completion_token)
        return f"order of {thing}"

    assert isinstance(order, LaterTool)
    runner = await served(rig, order, [call("order", thing="tea"), "done"])
    return runner, tokens


async def test_whoever_has_the_token_completes_a_call_once(rig: Rig) -> None:
    runner, tokens = await ordering(rig)
    task = await runner.create_task("q", step_mode="automatic")
    assert await until_waits(runner, task, "outcome") == "waits for its outcome, order of tea"
    assert await runner.pending_approvals(task) == []
    assert (await runner.get_task(task)).status == "running"
    [token] = tokens
    await runner.complete(token, until=LATER)
    await until_waits(runner, task, "until 2990")
    with pytest.raises(CommandRefusedError, match="token of no call"):
        await runner.complete(f"{token[:-1]}{'0' if token[-1] != '0' else '1'}", "x")
    await runner.complete(token, {"price": 3}, "shop")
    await until_status(runner, task, "answered")
    assert await results(runner, task) == ['{"price": 3}']
    assert (await runner.get_task(task)).extra_state["ordered"] == "tea"
    with pytest.raises(CommandRefusedError, match="is over"):
        await runner.complete(token, "again")
    assert token not in str(await runner.audit(task))
    with pytest.raises(InvalidArgumentError, match="A token is"):
        await runner.complete("nonsense", "x")


async def test_a_call_fails_in_time(rig: Rig) -> None:
    late, _ = await ordering(rig, completion_seconds=0.2)
    task = await late.create_task("q", step_mode="automatic")
    await until_status(late, task, "answered")
    assert await results(late, task) == ["No outcome of this call has come in 0.2 seconds."]


async def test_a_call_that_waited_says_who_made_it_and_what_its_guardrails_found(rig: Rig) -> None:
    @sdk.tool_input_guardrail
    def fits(_data: sdk.ToolInputGuardrailData) -> sdk.ToolGuardrailFunctionOutput:
        return sdk.ToolGuardrailFunctionOutput.allow("fits")

    tokens: list[str] = []

    @tool(completes="later", tool_input_guardrails=[fits])
    async def order(ctx: ToolContext) -> None:
        tokens.append(ctx.completion_token)

    agent = Agent(name="agent", model=ScriptedModel([call("order"), "done"]), tools=[order])
    await rig.serve(agent)
    runner = rig.runner()
    running = asyncio.create_task(Runner.run(agent, "q", runner=runner))
    [token] = await until(lambda: asyncio.sleep(0, tokens))
    await runner.complete(token, "delivered")
    result = await running
    assert [each.output.output_info for each in result.tool_input_guardrail_results] == ["fits"]
    [made] = [e for e in await runner.audit(result.task_id) if e.kind == "tool_call"]
    assert (made.worker != "", made.attempts, made.answered_by) == (True, 1, "tool")


def test_a_tool_that_completes_later_is_checked_where_it_is_declared() -> None:
    async def order(thing: str) -> str:
        return thing

    odd: Any = "soon"
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"completes": odd}, "is not 'later'"),
        ({"completes": "later", "completion_seconds": 0}, "greater than 0"),
        ({"completes": "later", "return_direct": True}, "never see its result"),
    )
    for options, said in cases:
        with pytest.raises(DeclarationError, match=said):
            tool(**options)(order)
    assert Agent(name="a", tools=[sleep_until]).tools == [sleep_until]
