"""Run hooks: told from the record, in the process that called Runner.run."""

import asyncio
from typing import Any

import pytest

from holdfast import RunContextWrapper, Runner, tool
from holdfast.agents.hooks import RunHooks
from holdfast.errors import StepFailedError
from holdfast.models import ModelAnswer, ModelRequest
from holdfast.testing import call
from tests.support.rig import Rig, until_status
from tests.support.runs import Runs


class Counter(RunHooks):
    """Counts in the caller's context."""

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        del agent, response
        context.context["calls"] += 1


@pytest.mark.parametrize("streams", [False, True])
async def test_what_hooks_change_in_the_context_stays_beside_what_tools_change(
    rig: Rig, *, streams: bool
) -> None:
    @tool
    def buy(ctx: RunContextWrapper[dict[str, Any]], euros: int) -> str:
        """Buy."""
        ctx.context["spent"] += euros
        ctx.context["bought"].append(euros)
        ctx.context["of"]["a"] = euros
        return "bought"

    agent = rig.agent(buy)
    await rig.serve(agent)
    rig.model.add(call("buy", {"euros": 3}), "done")
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


async def test_a_hook_that_raises_ends_the_run_and_its_error_is_raised(run: Runs) -> None:
    @tool(effect="read")
    async def hold() -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    class BrokenError(ValueError):
        """An error that counts as false, as one with the length of an empty list."""

        def __len__(self) -> int:
            return 0

    class Broken(RunHooks):
        async def on_llm_start(self, *_: Any, **__: Any) -> None:
            raise BrokenError("the hook is broken")

    run.model.call("hold")
    with pytest.raises(BrokenError, match="the hook is broken"):
        await run("q", hold, hooks=Broken(), task_id=f"{run.rig.app}-hook")
    task = await until_status(run.runner, f"{run.rig.app}-hook", "abandoned")
    assert "on_llm_start" in task.error
    assert "the hook is broken" in task.error


async def test_usage_of_a_nested_agent_counts_from_the_end_of_its_call(rig: Rig) -> None:
    told: list[tuple[str, int]] = []

    class Told(RunHooks):
        async def on_llm_end(self, context: Any, *_: Any) -> None:
            told.append(("llm_end", context.usage.requests))

        async def on_tool_end(self, context: Any, *_: Any) -> None:
            told.append(("tool_end", context.usage.requests))

        async def on_agent_end(self, context: Any, *_: Any) -> None:
            told.append(("agent_end", context.usage.requests))

    helper = rig.agent(name="helper")
    agent = rig.agent(helper.as_tool(), name="agent")
    await rig.serve(agent)
    rig.model.add(call("helper", {"input": "q"}), "of the helper", "done")
    result = await Runner.run(agent, "q", hooks=Told(), runner=rig.runner())
    assert result.context_wrapper.usage.requests == 3
    assert told == [("llm_end", 1), ("tool_end", 2), ("llm_end", 3), ("agent_end", 3)]


class OwnError(Exception):
    """What a program's own model raises."""


class OwnModel:
    """A model of one method, which fails without a word on what kind of failure that is."""

    name = "own"

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        del request
        raise OwnError("broken")


async def test_the_call_of_a_model_that_raises_an_error_of_its_own_has_begun(run: Runs) -> None:
    told: list[str] = []

    class Told(RunHooks):
        async def on_agent_start(self, context: Any, agent: Any) -> None:
            told.append("agent_start")

        async def on_llm_start(self, *_: Any, **__: Any) -> None:
            told.append("llm_start")

    await run.serve(model=OwnModel())
    with pytest.raises(StepFailedError, match="OwnError: broken"):
        await run("q", hooks=Told())
    assert told == ["agent_start", "llm_start"]
