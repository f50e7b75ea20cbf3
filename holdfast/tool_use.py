"""What follows tool calls: another model call, or the end of the run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from holdfast.run_context import RunContextWrapper
from holdfast.steps import ToolOutput


class StopAtTools(TypedDict):
    """Ends the run when one of these tools was called; its result is the final output."""

    stop_at_tool_names: Sequence[str]


@dataclass(frozen=True)
class ToolsToFinalOutputResult:
    """What a function says of a turn's tool results.

    Attributes:
        is_final_output: Whether the run ends.
        final_output: Its final output then.
    """

    is_final_output: bool
    final_output: Any = None


ToolsToFinalOutputFunction = Callable[
    [RunContextWrapper[Any], list[ToolOutput]],
    ToolsToFinalOutputResult | Awaitable[ToolsToFinalOutputResult],
]

ToolUseBehavior = (
    Literal["run_llm_again", "stop_on_first_tool"] | StopAtTools | ToolsToFinalOutputFunction
)
