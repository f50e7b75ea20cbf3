"""Run hooks: told from the record, in the process that called Runner.run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Agent, RunContextWrapper, Runner, RunState, StepFailedError, tool
from holdfast.agents.hooks import RunHooks
from holdfast.agents.runs.teams import team_of
from holdfast.client.runner.caller_loop import CallerLoop
from holdfast.engine.loop import shared_loop
from holdfast.models.base import ModelAnswer
from holdfast.reading.run_hooks import hook_calls
from holdfast.task.data.calls import Outcome
from holdfast.task.data.records import JournalEntry, Mark, StepRecord
from holdfast.task.ledger.references import SAID_IN_ADDS
from holdfast.task.step_body import body_of
from holdfast.testing import FakeOpenAI
from holdfast.values.messages import Message, ToolCall, assistant
from holdfast.values.steps import TaskStep
from tests.support.rig import MakeAgent, Rig, until_status
from tests.support.runs import Runs, look, pay


@pytest.fixture
def run(rig: Rig, make_agent: MakeAgent) -> Runs:
    return Runs(rig, make_agent)


class Counter(RunHooks):
    """Counts in the caller's context."""

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        del agent, response
        context.context["calls"] += 1


@pytest.mark.parametrize("streams", [False, True])
async def test_what_hooks_change_in_the_context_stays_beside_what_tools_change(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, *, streams: bool
) -> None:
    @tool
    def buy(ctx: RunContextWrapper[dict[str, Any]], euros: int) -> str:
        """Buy."""
        ctx.context["spent"] += euros
        ctx.context["bought"].append(euros)
        return "bought"

    agent = make_agent(buy)
    await rig.serve(agent)
    model.call("buy", {"euros": 3})
    model.reply("done")
    bought: list[int] = []
    context: dict[str, Any] = {"calls": 0, "spent": 0, "bought": bought, "own": {1, 2}}
    more: Any = {"context": context, "hooks": Counter(), "runner": rig.runner()}
    if streams:
        async for _ in Runner.run_streamed(agent, "q", **more).stream_events():
            context["own"].add(3)
    else:
        await Runner.run(agent, "q", **more)
    own = {1, 2, 3} if streams else {1, 2}
    assert context == {"calls": 2, "spent": 3, "bought": [3], "own": own}
    assert context["bought"] is bought


class Recorder(RunHooks):
    """Writes down what it is told, and where."""

    def __init__(self, fails: str = "") -> None:
        self.told: list[Any] = []
        self.loops: set[Any] = set()
        self.fails = fails

    def note(self, *said: Any) -> None:
        self.loops.add(asyncio.get_running_loop())
        self.told.append(said[0] if len(said) == 1 else said)
        if said[0] == self.fails:
            raise ValueError("the hook is broken")

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        self.note("agent_start", agent.name, context.turn_input[-1].get("content"))

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        self.note("agent_end", agent.name, output, context.usage.requests)

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        del context
        self.note("handoff", from_agent.name, to_agent.name)

    async def on_llm_start(
        self, context: Any, agent: Any, system_prompt: Any, input_items: Any
    ) -> None:
        del context, agent
        self.note("llm_start", system_prompt, len(input_items))

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        del agent
        self.note("llm_end", len(response.output), context.usage.requests)

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        del agent
        self.note("tool_start", tool.name, context.context)

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        del context, agent
        self.note("tool_end", tool.name, result)


async def test_hooks_are_told_in_order_and_in_the_caller_s_loop(
    run: Runs, model: FakeOpenAI
) -> None:
    await run.serve(look, instructions="Be brief.")
    model.call("look")
    model.reply("done")
    hooks = Recorder()
    context = {"a": 1}
    result = await run("q", hooks=hooks, context=context)
    assert result.final_output == "done"
    assert hooks.told == [
        ("agent_start", "agent", "q"),
        ("llm_start", "Be brief.", 1),
        ("llm_end", 1, 1),
        ("tool_start", "look", {"a": 1}),
        ("tool_end", "look", "seen here"),
        ("llm_start", "Be brief.", 3),
        ("llm_end", 1, 2),
        ("agent_end", "agent", "done", 2),
    ]
    assert hooks.loops == {asyncio.get_running_loop()}


async def test_hooks_of_an_approved_call_are_told_once_it_runs_and_the_earlier_ones_not_again(
    run: Runs, model: FakeOpenAI
) -> None:
    model.calls([("pay", {}), ("pay", {})])
    before = Recorder()
    state = (await run("q", pay, hooks=before)).to_state()
    assert [said[0] for said in before.told] == ["agent_start", "llm_start", "llm_end"]
    state.approve(state.get_interruptions()[0])
    state.reject(state.get_interruptions()[1])
    model.reply("done")
    after = Recorder()
    await run(state, hooks=after)
    assert [said[0] for said in after.told] == [
        "tool_start",
        "tool_end",
        "llm_start",
        "llm_end",
        "agent_end",
    ]
    again = Recorder()
    await run(state, hooks=again)
    assert again.told == []


async def test_a_hook_that_raises_ends_the_run_and_its_error_is_raised(
    run: Runs, model: FakeOpenAI
) -> None:
    @tool(effect="read")
    async def hold() -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    model.call("hold")
    hooks = Recorder(fails="llm_start")
    with pytest.raises(ValueError, match="the hook is broken"):
        await run("q", hold, hooks=hooks, task_id=f"{run.rig.app}-hook")
    task = await until_status(run.runner, f"{run.rig.app}-hook", "abandoned")
    assert "on_llm_start" in task.error
    assert "the hook is broken" in task.error


async def test_of_a_model_call_that_fails_hooks_are_told_that_it_began_and_once(
    run: Runs, model: FakeOpenAI
) -> None:
    model.fail(401, message="a wrong key")
    hooks = Recorder()
    with pytest.raises(StepFailedError) as caught:
        await run("q", look, hooks=hooks)
    assert [said[0] for said in hooks.told] == ["agent_start", "llm_start"]
    model.reply("done")
    after = Recorder()
    await run(RunState.of(caught.value.task_id), hooks=after)
    assert [said[0] for said in after.told] == ["llm_end", "agent_end"]


async def test_without_hooks_nothing_is_read_for_them(
    run: Runs, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("holdfast.client.runner.one_run.HookNotifier", never)
    model.reply("done")
    assert (await run("q", look)).final_output == "done"


async def test_functions_are_called_in_the_caller_s_loop_from_the_engine_s_own() -> None:
    caller = CallerLoop()

    async def where(number: int) -> tuple[int, Any]:
        return number, asyncio.get_running_loop()

    found = await shared_loop().wrap(caller.call(where, 1))
    assert found == await caller.call(where, 1) == (1, asyncio.get_running_loop())
    assert await shared_loop().wrap(caller.call(lambda: "sync")) == "sync"


def test_a_handoff_is_told_in_place_of_its_call() -> None:
    look_call = ToolCall(id="c", name="look")
    over = ToolCall(id="h", name="transfer_to_b")
    step = StepRecord(
        n=1,
        step=TaskStep(),
        adds=(
            assistant("", calls=(over, look_call)),
            Message(role="tool", call_id="h", content='{"assistant": "b"}'),
            Message(role="tool", call_id="c", content="seen"),
        ),
        calls=(over, look_call),
        outcomes=(Outcome(at=1), Outcome(at=2)),
        journal=(JournalEntry(request="r", answer=ModelAnswer(message=SAID_IN_ADDS)),),
        next=(TaskStep(agent="b"),),
        marks=(
            Mark(2, "call", 0, 0),
            Mark(3, "call", 0, 1),
            Mark(4, "done", 0, 1),
            Mark(5, "done", 0, 0),
        ),
    )
    team = team_of(Agent(name="a", handoffs=[Agent(name="b")]))
    assert [told.hook for told in hook_calls(body_of(step), team, [], None)] == [
        "on_agent_start",
        "on_llm_start",
        "on_llm_end",
        "on_tool_start",
        "on_tool_end",
        "on_handoff",
    ]
