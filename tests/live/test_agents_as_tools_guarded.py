"""Guardrails and hooks of calls of agents as tools: they come before the task that a call is."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from holdfast import Agent, Runner, tool
from holdfast.agents.hooks import AgentHooks
from holdfast.agents.tools.context import ToolContext
from holdfast.agents.tools.guardrails import (
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolOutputGuardrail,
)
from holdfast.testing import call
from tests.support.people import ask
from tests.support.rig import Rig, until_rolled

Check = Callable[[Any], ToolGuardrailFunctionOutput]


class Telling(AgentHooks):
    """Writes down the calls that it is told of, and changes what they see."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self.told.append(f"start {tool.name}")
        context.state["started"] = tool.name
        context.context["seen"].append("start")

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        self.told.append(f"end {tool.name}: {result}")
        assert context.state["started"] == tool.name
        context.context["seen"].append("end")


def allow(data: Any) -> ToolGuardrailFunctionOutput:
    return ToolGuardrailFunctionOutput.allow({"given": data.context.arguments})


def make_parent(rig: Rig, *tools: Any, check: Check = allow, hooks: Any = None) -> Agent:
    """Make an agent whose calls of a helper with these tools are checked, and their results."""
    guarded = replace(
        rig.agent(*tools, name="helper").as_tool(),
        tool_input_guardrails=[ToolInputGuardrail(check, "before")],
        tool_output_guardrails=[ToolOutputGuardrail(allow_result, "after")],
    )
    return rig.agent(guarded, name="agent", hooks=hooks)


def allow_result(data: Any) -> ToolGuardrailFunctionOutput:
    return ToolGuardrailFunctionOutput.allow({"gave": data.output})


def said(results: list[Any]) -> list[tuple[str, Any]]:
    """List what guardrails are called and what they said."""
    return [(each.guardrail.get_name(), each.output.output_info) for each in results]


async def test_a_rejected_call_starts_no_task(rig: Rig) -> None:
    def check(data: Any) -> ToolGuardrailFunctionOutput:
        if "secret" in data.context.arguments:
            return ToolGuardrailFunctionOutput.reject_content("ask for less", "no")
        return ToolGuardrailFunctionOutput.allow("yes")

    hooks = Telling()
    agent = make_parent(rig, check=check, hooks=hooks)
    await rig.serve(agent)
    runner = rig.runner()
    rig.model.add(call("helper", {"input": "the secret"}), call("helper", {"input": "the weather"}))
    rig.model.add("rain", "done")
    result = await Runner.run(agent, "q", runner=runner, context={"seen": []})
    assert result.final_output == "done"
    assert rig.model.requests[1].messages[-1].text == "ask for less"
    assert rig.model.requests[2].last_user == "the weather"
    assert [each.task_id for each in await runner.list_tasks(parent=result.task_id)] == [
        f"{result.task_id}~0.2.0.0"
    ]
    assert hooks.told == ["start helper", "end helper: rain"]
    assert said(result.tool_input_guardrail_results) == [("before", "no"), ("before", "yes")]
    assert said(result.tool_output_guardrail_results) == [("after", {"gave": "rain"})]


async def test_what_guardrails_found_and_hooks_change_is_kept_while_the_nested_run_waits(
    rig: Rig,
) -> None:
    @tool(needs_approval=True)
    def pay(ctx: ToolContext) -> str:
        """Pay."""
        assert "started" not in ctx.state  # the caller's state is not its
        ctx.context["seen"].append("inner")
        return "paid"

    hooks = Telling()
    agent = make_parent(rig, pay, hooks=hooks)
    await rig.serve(agent)
    runner = rig.runner(roll_events=50)
    rig.model.add(call("helper", {"input": "a"}), call("pay"))
    result = await Runner.run(agent, "q", runner=runner, context={"seen": []})
    before = ("before", {"given": '{"input": "a"}'})
    assert said(result.tool_input_guardrail_results) == [before]
    assert hooks.told == ["start helper"]
    [waits_for] = (await runner.run_task(result.task_id)).waiting_for
    assert waits_for.startswith(f"{result.task_id}~0.1.0.0:1")
    for k in range(12):
        await runner.give_feedback(result.task_id, f"go on, {k}")
    await until_rolled(runner.client, result.task_id)
    rig.model.add("it is paid", "done")
    await runner.approve(await ask(runner, result.task_id), by="ann")
    last = await Runner.run(agent, result.to_state(), runner=runner)
    assert said(last.tool_input_guardrail_results) == [before]
    assert said(last.tool_output_guardrail_results) == [("after", {"gave": "it is paid"})]
    assert hooks.told == ["start helper", "end helper: it is paid"]
    state = (await runner.get_task(result.task_id)).extra_state
    assert state == {"started": "helper", "context": {"seen": ["start", "inner", "end"]}}
