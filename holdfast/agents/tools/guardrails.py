"""Guardrails of tools: checks of a call before it is run, and of its result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Literal, NotRequired, TypedDict, overload

from holdfast.agents.guardrails import Check
from holdfast.agents.tools.context import ToolContext
from holdfast.errors import UserError
from holdfast.values.code.user_calls import invoke
from holdfast.values.runs.run_context import ContextT
from holdfast.values.text.shown import shown

Behavior = Literal["allow", "reject_content", "raise_exception"]
BEHAVIORS: frozenset[str] = frozenset({"allow", "reject_content", "raise_exception"})


class GuardrailBehavior(TypedDict):
    """Consequence of a check.

    Attributes:
        type: "allow", "reject_content" or "raise_exception".
        message: The model's text in place of the result, for "reject_content".
    """

    type: Behavior
    message: NotRequired[str]


def _allow() -> GuardrailBehavior:
    return {"type": "allow"}


@dataclass(frozen=True)
class ToolGuardrailFunctionOutput:
    """The finding of a tool guardrail. Made by `allow`, `reject_content` or `raise_exception`.

    Attributes:
        output_info: Any JSON data; kept in the record of the run, such as a reason.
        behavior: The consequence.
    """

    output_info: Any = None
    behavior: GuardrailBehavior = field(default_factory=_allow)

    @classmethod
    def allow(cls, output_info: Any = None) -> ToolGuardrailFunctionOutput:
        """Allow the call, or its result."""
        return cls(output_info)

    @classmethod
    def reject_content(cls, message: str, output_info: Any = None) -> ToolGuardrailFunctionOutput:
        """Go on with a message in place of the result; a call that was not run yet is not run."""
        return cls(output_info, {"type": "reject_content", "message": message})

    @classmethod
    def raise_exception(cls, output_info: Any = None) -> ToolGuardrailFunctionOutput:
        """End the run with the tripwire exception."""
        return cls(output_info, {"type": "raise_exception"})


@dataclass(frozen=True)
class ToolInputGuardrailData:
    """Argument of a guardrail that checks calls.

    Attributes:
        context: The call: tool name, arguments, the run's context.
        agent: The agent that made the call.
    """

    context: ToolContext[Any]
    agent: Any


@dataclass(frozen=True)
class ToolOutputGuardrailData(ToolInputGuardrailData):
    """Argument of a guardrail that checks results.

    Attributes:
        output: The tool's return value, or the text of its failure.
    """

    output: Any


Found = ToolGuardrailFunctionOutput | Awaitable[ToolGuardrailFunctionOutput]
InputFunction = Callable[[ToolInputGuardrailData], Found]
OutputFunction = Callable[[ToolOutputGuardrailData], Found]


@dataclass(frozen=True)
class ToolInputGuardrail(Check, Generic[ContextT]):
    """A check of a tool's call before it is run.

    Attributes:
        guardrail_function: Called with a ToolInputGuardrailData; sync or async.
        name: Its name in results; the function's by default.

    Raises:
        UserError: The function cannot be called.
    """

    guardrail_function: InputFunction
    name: str | None = None

    async def run(self, data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        """Check a call.

        Raises:
            UserError: The function returned something else than a ToolGuardrailFunctionOutput.
            Exception: An error that the function raised.
        """
        return _found(self.get_name(), await invoke(self.guardrail_function, data))


@dataclass(frozen=True)
class ToolOutputGuardrail(Check, Generic[ContextT]):
    """A check of a tool's result.

    Attributes:
        guardrail_function: Called with a ToolOutputGuardrailData; sync or async.
        name: Its name in results; the function's by default.

    Raises:
        UserError: The function cannot be called.
    """

    guardrail_function: OutputFunction
    name: str | None = None

    async def run(self, data: ToolOutputGuardrailData) -> ToolGuardrailFunctionOutput:
        """Check a result.

        Raises:
            UserError: The function returned something else than a ToolGuardrailFunctionOutput.
            Exception: An error that the function raised.
        """
        return _found(self.get_name(), await invoke(self.guardrail_function, data))


@dataclass(frozen=True)
class ToolInputGuardrailResult:
    """Result of a guardrail that checked a call.

    Attributes:
        guardrail: The guardrail.
        output: Its finding.
    """

    guardrail: ToolInputGuardrail
    output: ToolGuardrailFunctionOutput


@dataclass(frozen=True)
class ToolOutputGuardrailResult:
    """Result of a guardrail that checked a result.

    Attributes:
        guardrail: The guardrail.
        output: Its finding.
    """

    guardrail: ToolOutputGuardrail
    output: ToolGuardrailFunctionOutput


@overload
def tool_input_guardrail(func: InputFunction, /) -> ToolInputGuardrail: ...


@overload
def tool_input_guardrail(
    *, name: str | None = None
) -> Callable[[InputFunction], ToolInputGuardrail]: ...


def tool_input_guardrail(
    func: InputFunction | None = None, /, *, name: str | None = None
) -> ToolInputGuardrail | Callable[[InputFunction], ToolInputGuardrail]:
    """Make a guardrail that checks calls, for `@tool(tool_input_guardrails=[...])`.

    Raises:
        UserError: It cannot be called.
    """
    decorate = partial(ToolInputGuardrail, name=name)
    return decorate if func is None else decorate(func)


@overload
def tool_output_guardrail(func: OutputFunction, /) -> ToolOutputGuardrail: ...


@overload
def tool_output_guardrail(
    *, name: str | None = None
) -> Callable[[OutputFunction], ToolOutputGuardrail]: ...


def tool_output_guardrail(
    func: OutputFunction | None = None, /, *, name: str | None = None
) -> ToolOutputGuardrail | Callable[[OutputFunction], ToolOutputGuardrail]:
    """Make a guardrail that checks results, for `@tool(tool_output_guardrails=[...])`.

    Raises:
        UserError: It cannot be called.
    """
    decorate = partial(ToolOutputGuardrail, name=name)
    return decorate if func is None else decorate(func)


def _found(name: str, found: object) -> ToolGuardrailFunctionOutput:
    if isinstance(found, ToolGuardrailFunctionOutput) and found.behavior.get("type") in BEHAVIORS:
        return found
    raise UserError(
        f"Guardrail {name!r} returned {shown(found)}; it must return"
        " ToolGuardrailFunctionOutput.allow(), .reject_content(message) or .raise_exception()."
    )
