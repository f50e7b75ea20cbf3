"""Guardrails of input, output and tools."""

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast.testing import call, reply
from tests.differential.lib import Lib
from tests.differential.script import Group

GUARDRAILS = Group("guardrails")
TOOL_GUARDRAILS = Group("tool_guardrails")


Answer = Callable[[Any], Any]


def on_input(lib: Lib, *, name: str = "in", parallel: bool = True) -> Any:
    """Make an input guardrail that writes down what it was asked."""

    def check(ctx: Any, agent: Any, given: Any) -> Any:
        text = given if isinstance(given, str) else [item.get("content") for item in given]
        lib.note(name, agent.name, text)
        return lib.GuardrailFunctionOutput(
            output_info={"of": 1, "by": name}, tripwire_triggered=False
        )

    return lib.InputGuardrail(guardrail_function=check, name=name, run_in_parallel=parallel)


def on_output(lib: Lib, name: str = "out") -> Any:
    """Make an output guardrail that writes down what it was asked."""

    async def check(ctx: Any, agent: Any, output: Any) -> Any:
        lib.note(name, agent.name, repr(output))
        return lib.GuardrailFunctionOutput(output_info=name, tripwire_triggered=False)

    return lib.OutputGuardrail(guardrail_function=check, name=name)


@GUARDRAILS.script(
    call("look"), reply("never"), raises="InputGuardrailTripwireTriggered", left=1, streams=False
)
async def a_trip_after_the_model_has_answered(lib: Lib) -> Any:
    answered = asyncio.Event()

    class Told(lib.AgentHooks):  # type: ignore[name-defined,misc]  # either library's
        async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
            answered.set()

    async def check(ctx: Any, agent: Any, given: Any) -> Any:
        await answered.wait()
        return lib.GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    async def look() -> str:
        """Look: the Agents SDK may have begun with it, Holdfast has not."""
        await asyncio.Event().wait()
        return "never"

    guard = lib.InputGuardrail(guardrail_function=check, name="late")
    tool = lib.function_tool(look)
    agent = lib.agent(input_guardrails=[guard], tools=[tool], hooks=Told())
    return await lib.run(agent, "q")


@GUARDRAILS.script(reply("done"))
async def guardrails_of_agent_and_run(lib: Lib) -> Any:
    config = lib.RunConfig(
        input_guardrails=[on_input(lib, name="run in", parallel=False)],
        output_guardrails=[on_output(lib, name="run out")],
    )
    agent = lib.agent(
        input_guardrails=[on_input(lib, name="agent in", parallel=False)],
        output_guardrails=[on_output(lib, name="agent out")],
    )
    result = await lib.run(agent, "q", run_config=config)
    lib.notes.sort(key=repr)  # those of one kind run side by side
    return result


@GUARDRAILS.script(call("transfer_to_second"), reply("done"))
async def guardrails_of_the_first_and_of_the_last_agent(lib: Lib) -> Any:
    def guards(name: str) -> dict[str, Any]:
        return {
            "input_guardrails": [on_input(lib, name=f"{name} in", parallel=False)],
            "output_guardrails": [on_output(lib, name=f"{name} out")],
        }

    second = lib.agent("second", **guards("second"))
    return await lib.run(lib.agent(handoffs=[second], **guards("first")), "q")


@GUARDRAILS.script(call("look"), call("look"), reply("done"))
async def guardrails_run_once(lib: Lib) -> Any:
    agent = lib.agent(
        input_guardrails=[on_input(lib)],
        output_guardrails=[on_output(lib)],
        tools=[lib.tool()],
    )
    return await lib.run(agent, "q")


@GUARDRAILS.script(reply("never"), raises="ValueError", left=1)
async def a_guardrail_that_raises(lib: Lib) -> Any:
    def check(ctx: Any, agent: Any, given: Any) -> Any:
        raise ValueError("broken")

    guard = lib.InputGuardrail(guardrail_function=check, name="broken", run_in_parallel=False)
    return await lib.run(lib.agent(input_guardrails=[guard]), "q")


# Tools


def guarded(lib: Lib, *, before: Answer | None = None, after: Answer | None = None) -> Any:
    """Make a tool whose input or output is checked: each check is given the output's class."""
    options: dict[str, Any] = {}
    kind = lib.ToolGuardrailFunctionOutput

    def check_input(data: Any) -> Any:
        lib.note("in", data.context.tool_name, data.context.tool_arguments, data.agent.name)
        return None if before is None else before(kind)

    def check_output(data: Any) -> Any:
        lib.note("out", data.output)
        return None if after is None else after(kind)

    if before is not None:
        options["tool_input_guardrails"] = [lib.tool_input_guardrail(check_input)]
    if after is not None:
        options["tool_output_guardrails"] = [lib.tool_output_guardrail(check_output)]
    return lib.tool(**options)


LOOK = call("look", {"where": "a"})


@TOOL_GUARDRAILS.script(LOOK, reply("done"))
async def a_call_that_is_rejected(lib: Lib) -> Any:
    tool = guarded(lib, before=lambda kind: kind.reject_content("not there", {"why": 1}))
    return await lib.run(lib.agent(tools=[tool]), "q")


@TOOL_GUARDRAILS.script(LOOK, reply("done"))
async def an_output_that_is_replaced(lib: Lib) -> Any:
    tool = guarded(lib, after=lambda kind: kind.reject_content("(hidden)"))
    return await lib.run(lib.agent(tools=[tool]), "q")


@TOOL_GUARDRAILS.script(LOOK, raises="ToolOutputGuardrailTripwireTriggered")
async def an_output_that_ends_the_run(lib: Lib) -> Any:
    tool = guarded(lib, after=lambda kind: kind.raise_exception())
    return await lib.run(lib.agent(tools=[tool]), "q")


@TOOL_GUARDRAILS.script(LOOK)
async def a_rejection_may_be_the_final_output(lib: Lib) -> Any:
    tool = guarded(lib, before=lambda kind: kind.reject_content("not there"))
    return await lib.run(lib.agent(tools=[tool], tool_use_behavior="stop_on_first_tool"), "q")
