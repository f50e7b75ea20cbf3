"""Tool use behaviour: whether tool results lead to another model call, or end the run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, cast

from pydantic import Field, SkipValidation

from holdfast.errors import WrongTypeError
from holdfast.values.run_context import RunContextWrapper
from holdfast.values.steps import ToolOutput
from holdfast.values.text.shown import shown


class StopAtTools(TypedDict):
    """End the run when one of these tools was called; its result is the final output."""

    stop_at_tool_names: Sequence[str]


@dataclass(frozen=True)
class ToolsToFinalOutputResult:
    """Decision of a `tool_use_behavior` function on the results of a turn.

    Attributes:
        is_final_output: Whether the run ends.
        final_output: The final output, if it does.
    """

    is_final_output: bool
    final_output: Any = None


class FunctionToolResult(ToolOutput):
    """A tool's result, as it is passed to a `tool_use_behavior` function.

    Attributes:
        tool: The tool.
    """

    tool: SkipValidation[Any] = Field(default=None, repr=False)

    @property
    def output(self) -> str:
        """The result as the model saw it."""
        return self.content


ToolsToFinalOutputFunction = Callable[
    [RunContextWrapper[Any], list[FunctionToolResult]],
    ToolsToFinalOutputResult | Awaitable[ToolsToFinalOutputResult],
]

ToolUseBehavior = (
    Literal["run_llm_again", "stop_on_first_tool"] | StopAtTools | ToolsToFinalOutputFunction
)


def behavior_code(behavior: Any) -> str:
    """Encode a behaviour as text for `AgentSnapshot.behavior`.

    Raises:
        WrongTypeError: It is not a `ToolUseBehavior`.
    """
    if behavior == "run_llm_again":
        return ""
    if behavior == "stop_on_first_tool":
        return "first"
    if callable(behavior):
        return "ask"
    names: Any = None
    if isinstance(behavior, Mapping):
        names = cast("Mapping[str, Any]", behavior).get("stop_at_tool_names")
    if isinstance(names, Iterable) and not isinstance(names, str):
        return "".join(f"{name}," for name in cast("Iterable[str]", names))
    msg = (
        f"Agent tool_use_behavior must be a ToolUseBehavior, got {shown(behavior)}. Pass"  # pyright: ignore[reportUnknownArgumentType]  anything is shown
        ' "run_llm_again", "stop_on_first_tool", {"stop_at_tool_names": ["name"]}, or a function'
        " (context, results) that returns a ToolsToFinalOutputResult."
    )
    raise WrongTypeError(msg)
