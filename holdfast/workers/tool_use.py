"""Tool use behaviour: whether tool results lead to another model call, or end the run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, cast

from pydantic import Field, SkipValidation

from holdfast.errors import WrongTypeError
from holdfast.values.runs.run_context import RunContextWrapper
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
        run_item: For objects made by hand, in a test; in a run None.
        interruptions: In a run empty: a turn whose calls wait for decisions has no results yet.
        agent_run_result: For objects made by hand; in a run None: see `child_task`.
    """

    tool: SkipValidation[Any] = Field(default=None, repr=False)
    run_item: SkipValidation[Any] = Field(default=None, repr=False)
    interruptions: SkipValidation[Sequence[Any]] = Field(default=(), repr=False)
    agent_run_result: SkipValidation[Any] = Field(default=None, repr=False)
    _output: Any = None

    def __init__(
        self,
        tool: Any = None,
        output: Any = None,
        run_item: Any = None,
        interruptions: Sequence[Any] = (),
        agent_run_result: Any = None,
        **known: Any,
    ) -> None:
        """Make a result; of the tool's output, `content` is by default the text.

        Args:
            tool: And those after it: see the attributes.
            output: What the tool returned.
            run_item: See above.
            interruptions: See above.
            agent_run_result: See above.
            known: Fields of ToolOutput.
        """
        known.setdefault("tool_name", getattr(tool, "name", ""))
        known.setdefault("content", "" if output is None else str(output))
        known |= {"tool": tool, "run_item": run_item, "interruptions": interruptions}
        known["agent_run_result"] = agent_run_result
        super().__init__(**known)
        self._output = output

    @property
    def output(self) -> Any:
        """What the tool returned, rebuilt from its record.

        Where its class is not known, the data that the model reads as JSON; in a test, what the
        result was made with.
        """
        return self.content if self._output is None else self._output


ToolsToFinalOutputFunction = Callable[
    [RunContextWrapper[Any], list[FunctionToolResult]],
    ToolsToFinalOutputResult | Awaitable[ToolsToFinalOutputResult],
]
"""Decides after tool calls whether their results end the run: `Agent(tool_use_behavior=...)`."""

ASKS, FIRST = "ask", "first"
"""Codes of behaviours: a function, and "stop_on_first_tool"."""

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
        return FIRST
    if callable(behavior):
        return ASKS
    names: Any = None
    if isinstance(behavior, Mapping):
        names = cast("Mapping[str, Any]", behavior).get("stop_at_tool_names")
    if isinstance(names, Iterable) and not isinstance(names, str):
        return "".join(f"{name}," for name in cast("Iterable[str]", names))
    raise WrongTypeError(
        f"Agent tool_use_behavior must be a ToolUseBehavior, got {shown(behavior)}. Pass"  # pyright: ignore[reportUnknownArgumentType]  anything is shown
        ' "run_llm_again", "stop_on_first_tool", {"stop_at_tool_names": ["name"]}, or a function'
        " (context, results) that returns a ToolsToFinalOutputResult."
    )


def may_be_final(tool: str, behavior: str) -> bool:
    """Whether the result of a tool may end the run; arguments are those of `is_named`."""
    return behavior in (FIRST, ASKS) or is_named(tool, behavior)


def is_named(tool: str, behavior: str) -> bool:
    """Whether a behaviour names a tool.

    Args:
        tool: Its name, after that of its namespace if it has one.
        behavior: Code of the behaviour, which may name the tool with the namespace or without.
    """
    names = set(behavior.split(",")) if "," in behavior else set[str]()
    return not names.isdisjoint({tool, tool.rpartition(".")[2]})
