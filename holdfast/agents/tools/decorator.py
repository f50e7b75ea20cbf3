"""`@tool`, which makes a tool of a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast, overload

from typing_extensions import Unpack

from holdfast.agents.tools.arguments import ToolArgumentsError
from holdfast.agents.tools.foreign.frameworks import adapted
from holdfast.agents.tools.options import ToolOptions
from holdfast.agents.tools.tool import FunctionTool, Tool
from holdfast.errors import DeclarationError
from holdfast.values.text.shown import shown
from holdfast.values.tool_result import ToolResultError, render_result

__all__ = [
    "FunctionTool",
    "Tool",
    "ToolArgumentsError",
    "ToolOptions",
    "ToolResultError",
    "function_tool",
    "render_result",
    "to_tool",
    "tool",
]

P = ParamSpec("P")
R = TypeVar("R")


@overload
def tool(function: Callable[P, R], /, **options: Unpack[ToolOptions]) -> Tool[P, R]: ...


@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function: `@tool`, `@tool(...)` or `tool(function, ...)`.

    The schema comes from the signature, the texts from the docstring. A first parameter of type
    ToolContext or RunContextWrapper gets the ToolContext of the call and is not shown to the model.
    `help(holdfast.FunctionTool)` describes the options, which are its attributes: effect,
    needs_approval, undo, probe, retries, timeouts and others. `name_override`,
    `description_override` and `timeout` are other names of `name`, `description` and
    `timeout_seconds`. `strict=True` makes the schema follow all of OpenAI's strict rules,
    `strict_mode=True` as far as they can express it; see also `function_tool`.

    Raises:
        DeclarationError: The function's signature cannot be described to a model, or options
            contradict each other; the text says what to write instead.
        UserError: It takes a context of another library.
    """

    def decorate(function: Callable[..., Any]) -> Tool:
        if "completes" in options:
            from holdfast.agents.tools.waiting import later_tool

            return later_tool(function, options)
        return Tool.from_function(function, **options)

    return decorate if function is None else decorate(function)


@overload
def function_tool(func: Callable[P, R], /, **options: Unpack[ToolOptions]) -> Tool[P, R]: ...


@overload
def function_tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def function_tool(
    func: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function as the Agents SDK does: `tool` with `strict_mode=True`.

    Raises:
        DeclarationError: As for `tool`; an argument is a dict of free keys as well: use
            `strict_mode=False`.
        UserError: It takes a context of another library.
    """
    if "strict" not in options:
        options.setdefault("strict_mode", True)
    return tool(**options) if func is None else tool(func, **options)


def to_tool(thing: Tool | Callable[..., Any]) -> Tool:
    """Return a tool unchanged; make one of a function, or of another framework's tool or agent.

    Raises:
        DeclarationError: It is neither, or its signature cannot be described to a model.
    """
    if isinstance(thing, Tool):
        return cast("Tool", thing)
    if (made := adapted(thing)) is not None:
        return made
    if not callable(cast("Any", thing)):
        msg = f"{shown(thing)} is neither a tool nor a function. Pass a function or use @tool."
        raise DeclarationError(msg)
    return Tool.from_function(thing)
