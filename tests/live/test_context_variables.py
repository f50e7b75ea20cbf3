"""What tools see of the caller of their run: its context variables, and its event loop."""

import asyncio
import contextvars
from typing import Any

import pytest

from holdfast import Agent, AgentRunner, GuardrailFunctionOutput, Runner, input_guardrail, tool
from holdfast.agents.hooks import AgentHooks
from holdfast.errors import OutcomeUnknownError
from holdfast.testing import FakeOpenAI, call, calls
from holdfast.values.code import user_calls
from tests.support.rig import Rig

pytestmark = pytest.mark.usefixtures("api")

tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="none")


@tool(effect="read")
async def whose() -> str:
    """Say whose run this is."""
    return tenant.get()


@tool(effect="read")
def whose_in_a_thread() -> str:
    """Say whose run this is."""
    return tenant.get()


def agent_with(*tools: Any, name: str = "agent") -> Agent:
    return Agent(name=name, model="gpt-5-mini", tools=tools)


async def run_as(name: str, runner: AgentRunner, agent: Any) -> str:
    tenant.set(name)
    return str((await Runner.run(agent, "whose?", runner=runner)).final_output)


async def test_each_run_and_what_it_calls_see_the_variables_of_its_own_caller_or_creator(
    model: FakeOpenAI,
) -> None:
    ask = agent_with(whose, name="inner").as_tool(tool_name="ask", tool_description="Ask.")
    agent = agent_with(whose, whose_in_a_thread, ask)
    tenant.set("the engine's starter")
    async with AgentRunner.local(agent, data_dir=None) as runner:
        for name in ("a", "b", "c"):
            for called in ("whose", "whose_in_a_thread"):
                model.add(call(called), "done")
                await asyncio.create_task(run_as(name, runner, agent))
                assert list(model.requests[-1].results.values()) == [name]
        model.add(call("ask", {"input": "whose?"}), call("whose"), "inner is done", "done")
        tenant.set("creator")
        task = await runner.create_task("whose?")
        tenant.set("another")
        await runner.run_task(task)
        assert list(model.requests[-2].results.values()) == ["creator"]


Loops = dict[str, asyncio.AbstractEventLoop]


class LoopHooks(AgentHooks[Any]):
    def __init__(self, loops: Loops) -> None:
        self.loops = loops

    async def on_start(self, context: Any, agent: Any) -> None:
        self.loops["hook"] = asyncio.get_running_loop()


def waiting_agent(loops: Loops, answer: asyncio.Future[str]) -> Agent:
    async def instructions(_ctx: Any, _agent: Any) -> str:
        loops["instructions"] = asyncio.get_running_loop()
        return "Ask."

    @input_guardrail
    async def allows(_ctx: Any, _agent: Any, _input: Any) -> GuardrailFunctionOutput:
        loops["guardrail"] = asyncio.get_running_loop()
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)

    @tool(effect="read")
    async def ask() -> str:
        """Wait for an answer of the program."""
        return await answer

    @tool(effect="read")
    def ask_later() -> Any:
        """Return what is to be awaited."""
        return ask.function()

    return Agent(
        name="agent",
        instructions=instructions,
        model="gpt-5-mini",
        tools=[ask, ask_later],
        hooks=LoopHooks(loops),
        input_guardrails=[allows],
    )


async def test_async_tools_hooks_and_guardrails_run_in_the_callers_loop(model: FakeOpenAI) -> None:
    loop, loops = asyncio.get_running_loop(), Loops()
    answer = loop.create_future()
    loop.call_soon(answer.set_result, "of the program")
    agent = waiting_agent(loops, answer)
    for called in ("ask", "ask_later"):
        model.add(call(called), "done")
    async with AgentRunner.local(agent, data_dir=None) as runner:
        await Runner.run(agent, "go", runner=runner)
        assert list(model.requests[-1].results.values()) == ["of the program"]
        task = await runner.create_task("go")
        user_calls.release(task.task_id)  # as when another program had created it
        await runner.run_task(task)
        assert list(model.requests[-1].results.values()) == ["of the program"]
    assert loops == dict.fromkeys(("instructions", "hook", "guardrail"), loop)


async def test_a_call_that_the_end_of_its_loop_cuts_off_is_not_taken_for_a_failed_one() -> None:
    begun = asyncio.Event()
    other = asyncio.new_event_loop()

    async def hang() -> None:
        main.call_soon_threadsafe(begun.set)
        await asyncio.Event().wait()

    main = asyncio.get_running_loop()
    running = asyncio.ensure_future(asyncio.to_thread(run_until_stopped, other))
    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asyncio.sleep(0), other))
    seen = contextvars.copy_context()
    seen.run(user_calls.callers_loop.set, other)
    calling = asyncio.create_task(user_calls.invoke(hang), context=seen)
    await begun.wait()
    other.call_soon_threadsafe(other.stop)
    await running
    with pytest.raises(OutcomeUnknownError, match="The program ended the event loop"):
        await calling


def run_until_stopped(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop, and end it as asyncio.run does."""
    loop.run_forever()
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


async def test_tools_of_a_worker_elsewhere_see_no_variables_and_are_told_of_another_loops_future(
    rig: Rig,
) -> None:
    agent = waiting_agent({}, asyncio.get_running_loop().create_future())
    agent.tools = [*agent.tools, whose]
    await rig.serve(agent, own_loop=True)
    rig.model.add(calls([("whose", {}), ("ask", {})]), "done")
    tenant.set("caller")
    await rig.runner().chat("go")
    name, told = rig.model.requests[-1].results.values()
    assert name == "none"
    assert "attached to a different loop" in told
    assert "Make the object in the function that uses it" in told
