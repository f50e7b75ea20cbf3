"""Tools: what they are given, what the model is told, and what follows them."""

import asyncio
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from pydantic import BaseModel

from holdfast.testing import call, calls, reply
from tests.differential.lib import Lib
from tests.differential.script import Group, answer, called

TOOLS = Group("tools")
FAILURES = Group("tool_failures")
USE = Group("tool_use")


class City(BaseModel):
    """A city."""

    name: str
    people: int = 0


THREE = calls([("look", {"where": "a"}), ("look", {"where": "b"}), ("look", {"where": "c"})])


@TOOLS.script(THREE, reply("done"))
async def outputs_come_in_call_order(lib: Lib) -> Any:
    others = asyncio.Event()

    async def look(where: str) -> str:
        """Look."""
        if where == "a":
            await others.wait()
        if where == "c":
            others.set()
        return f"seen {where}"

    return await lib.run(lib.agent(tools=[lib.function_tool(look)]), "q")


@TOOLS.script(THREE, reply("done"))
async def one_call_at_a_time(lib: Lib) -> Any:
    async def look(where: str) -> str:
        """Look."""
        lib.note("begin", where)
        await asyncio.sleep(0)
        lib.note("end", where)
        return f"seen {where}"

    limit = lib.ToolExecutionConfig(max_function_tool_concurrency=1)
    agent = lib.agent(tools=[lib.function_tool(look)])
    return await lib.run(agent, "q", run_config=lib.RunConfig(tool_execution=limit))


@TOOLS.script(call("find", {"name": "Rome"}), reply("done"))
async def a_dict(lib: Lib) -> Any:
    def find(name: str) -> dict[str, Any]:
        """Find."""
        return {"name": name, "people": 3, "tags": ["old", None, True]}

    return await lib.run(lib.agent(tools=[lib.function_tool(find)]), "q")


@TOOLS.script(call("count", {"by": 2}), call("count", {"by": 3}), reply("done"))
async def the_wrapper_of_the_run(lib: Lib) -> Any:
    def count(ctx: Any, by: int) -> str:
        """Count."""
        ctx.context["n"] += by
        lib.note(isinstance(ctx, lib.RunContextWrapper), ctx.usage.requests)
        return str(ctx.context["n"])

    count.__annotations__["ctx"] = lib.RunContextWrapper[dict[str, int]]
    context = {"n": 0}
    result = await lib.run(lib.agent(tools=[lib.function_tool(count)]), "q", context=context)
    lib.note(context["n"])
    return result


@TOOLS.script(reply("done"))
async def the_wrapper_wherever_code_is_asked(lib: Lib) -> Any:
    seen: set[str] = set()  # how often, and in which order, is nobody's promise

    def asked(what: str, ctx: Any) -> None:
        seen.add(f"{what} {isinstance(ctx, lib.RunContextWrapper)} {ctx.context}")

    def instructions(ctx: Any, _agent: Any) -> str:
        asked("instructions", ctx)
        return "do"

    def is_enabled(ctx: Any, _agent: Any) -> bool:
        asked("is_enabled", ctx)
        return True

    def check(ctx: Any, _agent: Any, _checked: Any) -> Any:
        asked("guardrail", ctx)
        return lib.GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)

    agent = lib.agent(
        instructions=instructions,
        tools=[lib.tool(is_enabled=is_enabled)],
        input_guardrails=[lib.InputGuardrail(check, run_in_parallel=False)],
        output_guardrails=[lib.OutputGuardrail(check)],
    )
    result = await lib.run(agent, "q", context={"who": "ann"})
    lib.note(*sorted(seen))
    return result


@TOOLS.script(call("look", {"where": "a"}), call("go"), reply("done"))
async def the_wrapper_where_calls_are_judged(lib: Lib) -> Any:
    def needs(ctx: Any, _arguments: dict[str, Any], _call_id: str) -> bool:
        lib.note("needs_approval", isinstance(ctx, lib.RunContextWrapper), ctx.context)
        return False

    def handed(ctx: Any) -> None:
        lib.note("on_handoff", isinstance(ctx, lib.RunContextWrapper), ctx.context)

    other = lib.agent("second")
    go = lib.handoff(other, tool_name_override="go", on_handoff=handed)
    agent = lib.agent(tools=[lib.tool(needs_approval=needs)], handoffs=[go])
    return await lib.run(agent, "q", context={"who": "ann"})


@TOOLS.script(call("hidden"), raises="ModelBehaviorError")
async def a_disabled_tool_is_called(lib: Lib) -> Any:
    tools = [lib.tool(), lib.tool(name="hidden", is_enabled=False)]
    return await lib.run(lib.agent(tools=tools), "q")


@TOOLS.script(call("nowhere"), reply("done"))
async def an_unknown_tool_is_told_in_words_of_the_run(lib: Lib) -> Any:
    def words(args: Any) -> str:
        lib.note(args.kind, args.tool_name, args.default_message)
        return "no such tool, sorry"

    config = lib.RunConfig(
        tool_not_found_behavior="return_error_to_model", tool_error_formatter=words
    )
    return await lib.run(lib.agent(tools=[lib.tool()]), "q", run_config=config)


TWICE = called("look", '{"where": "a"}', "call_a")


@TOOLS.script(answer(TWICE, called("look", '{ "where":"a" }', "call_a")), reply("done"))
async def a_call_that_is_said_twice_with_other_spaces(lib: Lib) -> Any:
    return await lib.run(lib.agent(tools=[lib.tool()]), "q")


@TOOLS.script(
    answer(TWICE, called("look", '{"where": "b"}', "call_a")),
    reply("never"),
    raises="ModelBehaviorError",
    left=1,
)
async def two_calls_of_one_id(lib: Lib) -> Any:
    return await lib.run(lib.agent(tools=[lib.tool()]), "q")


# Failures


def broken(lib: Lib, **options: Any) -> Any:
    """Make a tool that fails."""

    def look(where: str = "here") -> str:
        """Look."""
        raise ValueError(f"no light at {where}")

    return lib.function_tool(look, **options)


@FAILURES.script(call("look"), reply("done"))
async def a_tool_raises(lib: Lib) -> Any:
    return await lib.run(lib.agent(tools=[broken(lib)]), "q")


@FAILURES.script(call("look"), reply("done"))
async def a_tool_raises_and_words_it(lib: Lib) -> Any:
    def words(ctx: Any, error: Exception) -> str:
        return f"sorry: {error}"

    tool = broken(lib, failure_error_function=words)
    return await lib.run(lib.agent(tools=[tool]), "q")


@FAILURES.script(call("look"), raises="UserError")
async def a_tool_raises_and_its_words_raise_too(lib: Lib) -> Any:
    def words(ctx: Any, error: Exception) -> str:
        raise error

    return await lib.run(lib.agent(tools=[broken(lib, failure_error_function=words)]), "q")


@FAILURES.script(call("look"), raises="ModelBehaviorError")
async def a_tool_raises_an_error_of_the_library(lib: Lib) -> Any:
    def look() -> str:
        """Look."""
        raise lib.ModelBehaviorError("odd")

    tool = lib.function_tool(look, failure_error_function=None)
    return await lib.run(lib.agent(tools=[tool]), "q")


@FAILURES.script(call("look"), raises="UserError")
async def a_tool_raises_and_nobody_words_it(lib: Lib) -> Any:
    tool = broken(lib, failure_error_function=None)
    return await lib.run(lib.agent(tools=[tool]), "q")


async def in_turn(lib: Lib) -> Any:
    """Run two tools, one of which fails the run, one after the other."""
    tools = [broken(lib, failure_error_function=None), lib.tool("fine", name="ok")]
    limit = lib.ToolExecutionConfig(max_function_tool_concurrency=1)
    return await lib.run(lib.agent(tools=tools), "q", run_config={"tool_execution": limit})


@FAILURES.script(calls([("ok", {"where": "a"}), ("look", {"where": "b"})]), raises="UserError")
async def the_second_of_two_calls_fails_the_run(lib: Lib) -> Any:
    return await in_turn(lib)


@FAILURES.script(call("look", "{not json"), reply("done"))
async def arguments_that_are_no_json(lib: Lib) -> Any:
    return await lib.run(lib.agent(tools=[lib.tool()]), "q")


@FAILURES.script(call("look", ""), reply("done"))
async def arguments_that_are_empty(lib: Lib) -> Any:
    return await lib.run(lib.agent(tools=[lib.tool()]), "q")


@FAILURES.script(call("add", {}), reply("done"))
async def an_argument_that_is_missing(lib: Lib) -> Any:
    def add(a: int) -> int:
        """Add."""
        return a

    return await lib.run(lib.agent(tools=[lib.function_tool(add)]), "q")


@FAILURES.script(call("look", {"where": "a", "more": 1}), reply("done"))
async def an_argument_too_many(lib: Lib) -> Any:
    return await lib.run(lib.agent(tools=[lib.tool()]), "q")


def endless(lib: Lib, **options: Any) -> Any:
    """Make a tool that does not end by itself."""

    async def look() -> str:
        """Look."""
        await asyncio.Event().wait()
        return "never"

    return lib.function_tool(look, timeout=0.05, **options)


@FAILURES.script(call("look"), reply("done"))
async def a_tool_that_takes_too_long(lib: Lib) -> Any:
    return await lib.run(lib.agent(tools=[endless(lib)]), "q")


@FAILURES.script(call("look"), raises="ToolTimeoutError")
async def a_tool_that_takes_too_long_ends_the_run(lib: Lib) -> Any:
    tool = endless(lib, timeout_behavior="raise_exception")
    return await lib.run(lib.agent(tools=[tool]), "q")


# What follows


@USE.script(calls([("look", {"where": "a"}), ("ask", {"where": "b"})]))
async def stop_on_the_first_tool(lib: Lib) -> Any:
    tools = [lib.tool(), lib.tool("asked", name="ask")]
    return await lib.run(lib.agent(tools=tools, tool_use_behavior="stop_on_first_tool"), "q")


@dataclass
class Trip:
    """A trip."""

    to: City
    day: date
    left: Decimal = Decimal("1.50")


def gives(lib: Lib, value: Any, kind: Any = None, *, name: str = "look") -> Any:
    """Make a tool that returns a value, annotated by a type or not at all."""

    def give() -> Any:
        """Look."""
        return value

    give.__annotations__ = {} if kind is None else {"return": kind}
    return lib.function_tool(give, name_override=name)


FINAL = Group("final_tools")
OBJECTS: dict[str, tuple[Any, Any]] = {
    "a_model": (City(name="Rome", people=3), City),
    "a_model_without_annotation": (City(name="Rome", people=3), None),
    "a_dataclass": (Trip(City(name="Rome"), date(2026, 1, 31)), Trip),
    "models_without_annotation": ([City(name="Rome"), City(name="Oslo")], None),
    "a_dict": ({"a": [1, None, True], "b": "c"}, dict[str, Any]),
    "a_tuple_without_annotation": ((1, "a"), None),
    "a_day": (date(2026, 1, 31), date),
    "nothing": (None, type(None)),
    "a_text_of_json": ('{"a": 1}', dict[str, Any]),
}


@FINAL.script(*[call("look", id=f"c{k}") for k in range(len(OBJECTS))])
async def what_a_tool_returned_ends_the_run_as_text(lib: Lib) -> Any:
    for name, (value, kind) in OBJECTS.items():
        tools = [gives(lib, value, kind)]
        agent = lib.agent(tools=tools, tool_use_behavior="stop_on_first_tool")
        result = await lib.result(agent, "q")
        lib.note(name, type(result.final_output).__name__, result.final_output)


@FINAL.script(*[call("look", id=f"c{k}") for k in range(len(OBJECTS))])
async def what_a_tool_returned_is_given_to_a_function(lib: Lib) -> Any:
    def decide(ctx: Any, results: list[Any]) -> Any:
        [output] = (result.output for result in results)
        lib.note(type(output).__name__, str(output))
        return lib.ToolsToFinalOutputResult(is_final_output=True, final_output=output)

    for name, (value, kind) in OBJECTS.items():
        agent = lib.agent(tools=[gives(lib, value, kind)], tool_use_behavior=decide)
        result = await lib.result(agent, "q")
        lib.note(name, type(result.final_output).__name__, result.final_output)


@FINAL.script(call("look"))
async def what_a_guardrail_says_in_the_place_of_a_model(lib: Lib) -> Any:
    def check(data: Any) -> Any:
        lib.note(type(data.output).__name__)
        return lib.ToolGuardrailFunctionOutput.reject_content(message="kept back")

    tool = gives(lib, City(name="Rome"), City)
    tool.tool_output_guardrails = [lib.ToolOutputGuardrail(guardrail_function=check, name="check")]
    agent = lib.agent(tools=[tool], tool_use_behavior="stop_on_first_tool")
    lib.note((await lib.result(agent, "q")).final_output)


TYPED: dict[str, Any] = {
    "its_type": City(name="Rome", people=3),
    "its_data": {"name": "Rome", "people": 3},
    "other_data": {"a": [1, None]},
    "another_type": Trip(City(name="Rome"), date(2026, 1, 31)),
    "its_text": '{"name": "Rome", "people": 3}',
}


@FINAL.script(*[call("look", id=f"c{k}") for k in range(len(TYPED))])
async def what_a_tool_returned_ends_the_run_of_a_typed_agent(lib: Lib) -> Any:
    for name, value in TYPED.items():
        tools = [gives(lib, value)]
        agent = lib.agent(
            tools=tools, output_type=City, tool_use_behavior={"stop_at_tool_names": ["look"]}
        )
        result = await lib.result(agent, "q")
        lib.note(name, type(result.final_output).__name__, result.final_output)


@USE.script(calls([("look", {"where": "a"}), ("ask", {"where": "b"})]))
async def stop_at_a_named_tool_that_is_called_second(lib: Lib) -> Any:
    tools = [lib.tool(), lib.tool("asked", name="ask")]
    behavior = {"stop_at_tool_names": ["ask"]}
    return await lib.run(lib.agent(tools=tools, tool_use_behavior=behavior), "q")


@USE.script(call("look", {"where": "a"}), call("look", {"where": "b"}))
async def a_function_decides(lib: Lib) -> Any:
    def decide(ctx: Any, results: list[Any]) -> Any:
        outputs = [result.output for result in results]
        lib.note(outputs, [result.tool.name for result in results])
        return lib.ToolsToFinalOutputResult(
            is_final_output="seen b" in outputs, final_output="enough"
        )

    return await lib.run(lib.agent(tools=[lib.tool()], tool_use_behavior=decide), "q")


NOWHERE = calls([("look", {"where": "a"}), ("nowhere", {})])
TOLD = {"tool_not_found_behavior": "return_error_to_model"}


@USE.script(call("nowhere"), NOWHERE, reply("done"))
async def a_function_is_not_asked_of_unknown_tools(lib: Lib) -> Any:
    def decide(ctx: Any, results: list[Any]) -> Any:
        lib.note([result.tool.name for result in results])
        return lib.ToolsToFinalOutputResult(is_final_output=False, final_output=None)

    agent = lib.agent(tools=[lib.tool()], tool_use_behavior=decide)
    return await lib.run(agent, "q", run_config=lib.RunConfig(**TOLD))
