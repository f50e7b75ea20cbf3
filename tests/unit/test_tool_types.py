"""A program for the type checkers: what `@tool` makes keeps the types of the function.

Running it proves little; mypy and pyright in strict mode prove it, as part of the type check.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, assert_type

from holdfast.agents.tools.context import Effect, ToolContext
from holdfast.agents.tools.decorator import Tool, function_tool, tool


class Trip(TypedDict):
    city: str


@tool
def bare(x: int, *, loud: bool = False) -> str:
    return f"{x}{loud}"


def cancel(ctx: ToolContext, effect: Effect) -> None:
    assert_type(ctx.state, dict[str, Any])
    assert_type(effect.arguments, dict[str, Any])


@tool(name="book", effect="reversible", undo=cancel, needs_approval=lambda ctx, args: True)
async def with_options(ctx: ToolContext[Any, Trip], nights: int) -> float:
    assert_type(ctx.state, Trip)
    return nights / 2


@function_tool(name_override="other")
def sdk_names() -> None: ...


class Agent:
    tools: Sequence[Tool | Callable[..., Any]] = (bare, with_options, len)


async def test_calls_keep_parameters_and_results() -> None:
    assert_type(bare(1), str)
    assert_type(bare(x=1, loud=True), str)
    ctx = ToolContext(state=Trip(city="Oslo"))
    assert_type(ctx, ToolContext[Any, Trip])
    assert_type(await with_options(ctx, 3), float)
    assert_type(tool(len, effect="read")([1]), int)
    assert_type(Tool.from_function(math.sqrt)(4), float)


def test_wrong_calls_are_type_errors() -> None:
    """Each ignored line is an error for both checkers, else they report the ignore itself."""

    def wrong() -> None:
        bare("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        bare()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        tool(effect="write")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
        tool(colour="red")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]

    assert callable(wrong)
