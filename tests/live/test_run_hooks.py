"""Run hooks: told from the record, in the process that called Runner.run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import RunContextWrapper, Runner, tool
from holdfast.agents.hooks import RunHooks
from holdfast.errors import StepFailedError
from holdfast.models import ModelAnswer, ModelRequest
from holdfast.testing import FakeOpenAI, call
from tests.support.rig import MakeAgent, Rig, until_status
from tests.support.runs import Runs, look


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
        ctx.context["of"]["a"] = euros
        return "bought"

    agent = make_agent(buy)
    await rig.serve(agent)
    model.add(call("buy", {"euros": 3}), "done")
    bought: list[int] = []
    context: dict[str, Any] = {"calls": 0, "spent": 0, "bought": bought, "own": {1, 2}}
    context["of"] = {"z": 0}
    more: Any = {"context": context, "hooks": Counter(), "runner": rig.runner()}
    if streams:
        async for _ in Runner.run_streamed(agent, "q", **more).stream_events():
            context["own"].add(3)
    else:
        await Runner.run(agent, "q", **more)
    own = {1, 2, 3} if streams else {1, 2}
    assert str(context.pop("of")) == "{'z': 0, 'a': 3}"  # in the order in which they were made
    assert context == {"calls": 2, "spent": 3, "bought": [3], "own": own}
    assert context["bought"] is bought


class Recorder(RunHooks):
    """Writes down what it is told, and where."""

    def __init__(self, fails: str = "", error: type[Exception] = ValueError) -> None:
        self.error = error
        self.told: list[Any] = []
        self.loops: set[Any] = set()
        self.fails = fails

    def note(self, *said: Any) -> None:
        self.loops.add(asyncio.get_running_loop())
        self.told.append(said[0] if len(said) == 1 else said)
        if said[0] == self.fails:
            raise self.error("the hook is broken")

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
    model.add(call("look"), "done")
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


async def test_a_hook_that_raises_ends_the_run_and_its_error_is_raised(
    run: Runs, model: FakeOpenAI
) -> None:
    @tool(effect="read")
    async def hold() -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    class BrokenError(ValueError):
        """An error that counts as false, as one with the length of an empty list."""

        def __len__(self) -> int:
            return 0

    model.call("hold")
    hooks = Recorder(fails="llm_start", error=BrokenError)
    with pytest.raises(BrokenError, match="the hook is broken"):
        await run("q", hold, hooks=hooks, task_id=f"{run.rig.app}-hook")
    task = await until_status(run.runner, f"{run.rig.app}-hook", "abandoned")
    assert "on_llm_start" in task.error
    assert "the hook is broken" in task.error


class OwnError(Exception):
    """What a program's own model raises."""


class OwnModel:
    """A model of one method, which fails without a word on what kind of failure that is."""

    name = "own"

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        del request
        raise OwnError("broken")


async def test_the_call_of_a_model_that_raises_an_error_of_its_own_has_begun(run: Runs) -> None:
    await run.serve(model=OwnModel())
    hooks = Recorder()
    with pytest.raises(StepFailedError, match="OwnError: broken"):
        await run("q", hooks=hooks)
    assert [told[0] for told in hooks.told] == ["agent_start", "llm_start"]
