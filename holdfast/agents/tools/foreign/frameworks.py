"""Tools of LangChain, Pydantic AI and the Agents SDK, and agents of the latter two, as tools.

None of them is imported before an object of theirs is called: classes are known by their names.
What the object's author does not say of effects is not guessed: such a call counts as
irreversible, so that it is never repeated blindly when a worker process dies in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, cast

from pydantic import ValidationError
from typing_extensions import Unpack

from holdfast.agents.tools.arguments import ToolArgumentsError, object_of
from holdfast.agents.tools.foreign.llama_index import (
    ONE_TEXT,
    foreign_tool,
    is_foreign_tool,
    tool_name,
)
from holdfast.agents.tools.guardrails import (
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolOutputGuardrail,
)
from holdfast.agents.tools.options import ToolOptions
from holdfast.agents.tools.tool import Tool
from holdfast.errors import InvalidArgumentError
from holdfast.values.base import Json
from holdfast.values.text.shown import shown

Make = Callable[..., Tool]
_Run = Callable[[Any, str], Coroutine[Any, Any, Any]]
_SDK_OPTIONS = (
    "needs_approval",
    "timeout_seconds",
    "timeout_behavior",
    "timeout_error_function",
    "defer_loading",
)


def langchain_tool(given: Any, /, **options: Unpack[ToolOptions]) -> Tool:
    """Make a tool of a LangChain tool: a BaseTool, or a function with LangChain's `@tool`.

    Args:
        given: The tool. Its async form is called if it has one, else the other one in a thread.
        options: What `@tool(...)` takes, such as `effect`, `undo` and `needs_approval`.

    Raises:
        InvalidArgumentError: It is not one, or options contradict each other.
    """
    _check(given, _LANGCHAIN, "langchain_tool")
    schema: Any = given.tool_call_schema
    is_data = isinstance(schema, Mapping)
    parameters: dict[str, Json] = dict(schema) if is_data else schema.model_json_schema()  # pyright: ignore[reportUnknownArgumentType]  any mapping

    async def run(_: Any, arguments: str) -> Any:
        return _plain(await given.ainvoke(object_of(given.name, arguments)))

    options.setdefault("return_direct", bool(given.return_direct))
    return _tool(run, given.name, given.description, parameters, options)


def pydantic_ai_tool(given: Any, /, **options: Unpack[ToolOptions]) -> Tool:
    """Make a tool of an agent of Pydantic AI, or of one of its tools.

    An agent gets one text, and its run is one call: what it does inside is its own affair, and
    not repeated when the call was answered.

    Args:
        given: The agent, which has a name, or the Tool, which takes no RunContext.
        options: As for `langchain_tool`.

    Raises:
        InvalidArgumentError: It is not one, has no name, or takes a RunContext.
    """
    if _is(given, _PYDANTIC_AI_TOOL):
        schema = given.function_schema
        if schema.takes_ctx or given.prepare or given.args_validator:
            raise InvalidArgumentError(
                f"The tool {given.name!r} of Pydantic AI, its prepare= or its args_validator= takes"
                " a RunContext, which only a run of its agent has. Pass the agent, or a function"
                " without it."
            )

        async def call(_: Any, arguments: str) -> Any:
            return _plain(await schema.call(schema.validator.validate_json(arguments), None))

        own = {"needs_approval": given.requires_approval, "timeout_seconds": given.timeout}
        made = _merged(own, options)
        return _tool(call, given.name, given.description or "", schema.json_schema, made)
    _check(given, _PYDANTIC_AI_AGENT, "pydantic_ai_tool")

    async def run(_: Any, arguments: str) -> Any:
        return _plain((await given.run(_text_in(arguments))).output)

    return _agent(run, given, getattr(given, "description", None), options)


def agents_sdk_tool(given: Any, /, **options: Unpack[ToolOptions]) -> Tool:
    """Make a tool of an agent of the OpenAI Agents SDK, or of one of its function tools.

    An agent gets one text, and its run by the SDK's own Runner is one call. To have its turns
    recorded one by one, make it an agent of Holdfast: the constructor is the same.

    Args:
        given: The agent or the FunctionTool.
        options: As for `langchain_tool`.

    Raises:
        InvalidArgumentError: It is not one.
    """
    if _is(given, _AGENTS_SDK_TOOL):
        return _sdk_function(given, options)
    _check(given, _AGENTS_SDK_AGENT, "agents_sdk_tool")

    async def run(_: Any, arguments: str) -> Any:
        from agents import Runner

        return _plain((await Runner.run(given, _text_in(arguments))).final_output)

    return _agent(run, given, given.handoff_description, options)


def _sdk_function(given: Any, options: ToolOptions) -> Tool:
    def own(context: Any, arguments: str) -> Any:
        from agents.tool_context import ToolContext

        return ToolContext(
            context=context.context,
            tool_name=given.name,
            tool_call_id=context.tool_call_id,
            tool_arguments=arguments,
        )

    def guarded(guardrail: Any) -> Callable[[Any], Any]:
        async def check(data: Any) -> ToolGuardrailFunctionOutput:
            seen = replace(data, context=own(data.context, data.context.tool_arguments))
            found = await guardrail.run(seen)
            return ToolGuardrailFunctionOutput(found.output_info, found.behavior)

        return check

    async def run(context: Any, arguments: str) -> Any:
        return _plain(await given.on_invoke_tool(own(context, arguments), arguments))

    kept: dict[str, Any] = {name: getattr(given, name, None) for name in _SDK_OPTIONS}
    if given.is_enabled is not True:
        options.setdefault("is_enabled", given.is_enabled)
    kinds = {"input": ToolInputGuardrail, "output": ToolOutputGuardrail}
    for what, kind in kinds.items():
        checks = getattr(given, name := f"tool_{what}_guardrails") or ()
        kept[name] = [kind(guarded(each), each.get_name()) for each in checks]
    options = _merged(kept, options)
    return _tool(run, given.name, given.description, given.params_json_schema, options)


def _merged(own: Mapping[str, Any], options: ToolOptions) -> ToolOptions:
    """Return options with what the object's author has said besides."""
    said = {name: value for name, value in own.items() if value}
    return cast("ToolOptions", {**said, **options})


def adapted(given: Any) -> Tool | None:
    """Return a tool for an object of another framework; None for an unknown one.

    Raises:
        InvalidArgumentError: It is one, and cannot be taken.
    """
    if is_foreign_tool(given):
        return foreign_tool(given)
    return next((make(given) for known, make in _KNOWN if _is(given, known)), None)


def _agent(run: _Run, given: Any, description: str | None, options: ToolOptions) -> Tool:
    name = options.get("name") or given.name
    if not name:
        msg = f"An agent of type {type(given).__name__} has no name: pass name= to it."
        raise InvalidArgumentError(msg)
    text = description or f"Ask the agent {name}."
    return _tool(run, name, text, {**ONE_TEXT}, options)


def _tool(
    run: _Run, name: str, description: str, parameters: dict[str, Json], options: ToolOptions
) -> Tool:
    given: dict[str, Any] = {"name": tool_name(name), "description": description, **options}

    async def checked(context: Any, arguments: str) -> Any:
        try:
            return await run(context, arguments)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False, include_context=False)
            wrong = tuple(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in found)
            raise ToolArgumentsError(given["name"], wrong, arguments) from error

    return Tool(
        params_json_schema=parameters, on_invoke_tool=checked, strict_json_schema=False, **given
    )


def _text_in(arguments: str) -> str:
    return str(json.loads(arguments)["input"])


def _plain(output: Any) -> Any:
    """Return an object of pydantic as its data, and anything else as it is."""
    return output.model_dump(mode="json") if hasattr(output, "model_dump") else output


_LANGCHAIN = ("langchain_core.tools", "BaseTool")
_PYDANTIC_AI_TOOL = ("pydantic_ai.tools", "Tool")
_PYDANTIC_AI_AGENT = ("pydantic_ai.agent", "AbstractAgent")
_AGENTS_SDK_TOOL = ("agents.tool", "FunctionTool")
_AGENTS_SDK_AGENT = ("agents.agent", "Agent")
_KNOWN: tuple[tuple[tuple[str, str], Make], ...] = (
    (_LANGCHAIN, langchain_tool),
    (_PYDANTIC_AI_TOOL, pydantic_ai_tool),
    (_PYDANTIC_AI_AGENT, pydantic_ai_tool),
    (_AGENTS_SDK_TOOL, agents_sdk_tool),
    (_AGENTS_SDK_AGENT, agents_sdk_tool),
)


def _is(given: object, known: tuple[str, str]) -> bool:
    """Whether an object is of a class of this name below a module of this name."""
    module, name = known
    return any(
        base.__name__ == name and f"{base.__module__}.".startswith(f"{module}.")
        for base in type(given).__mro__
    )


def _check(given: object, known: tuple[str, str], function: str) -> None:
    if not _is(given, known):
        msg = f"{function} takes a {known[1]} of {known[0]}; it was given {shown(given)}."
        raise InvalidArgumentError(msg)
