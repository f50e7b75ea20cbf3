"""Guardrails: checks of a run's input and of its final output."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, cast, overload

from holdfast.errors import DeclarationError, UserError, WrongTypeError
from holdfast.task.data.guard_rules import GuardRule
from holdfast.values.checks.gate import known_as
from holdfast.values.code.user_calls import invoke
from holdfast.values.runs.run_context import ContextT, RunContextWrapper
from holdfast.values.text.shown import shown


@dataclass(frozen=True)
class GuardrailFunctionOutput:
    """The finding of a guardrail's function.

    Attributes:
        output_info: Any JSON data; kept in the record of the run, such as a reason.
        tripwire_triggered: Whether the run must not go on.
    """

    output_info: Any
    tripwire_triggered: bool


Found = GuardrailFunctionOutput | Awaitable[GuardrailFunctionOutput]
GuardrailFunction = Callable[[RunContextWrapper[Any], Any, Any], Found]
"""Called with (context, agent, input or output); sync or async. A sync one runs in a thread."""


class Check:
    """Base of all guardrails: a function, and its name in results.

    A guardrail takes over the module and name of its function. So a guardrail made by a decorator,
    which replaces the function in its module, can be referred to by that name.
    """

    guardrail_function: Any
    name: str | None

    def __post_init__(self) -> None:
        """Check the function.

        Raises:
            UserError: It cannot be called.
        """
        function = self.guardrail_function
        if not callable(function):
            raise UserError(f"A guardrail needs a function; it was given {shown(function)}.")
        for name in ("__module__", "__qualname__", "__doc__"):
            object.__setattr__(self, name, getattr(function, name, None))

    def get_name(self) -> str:
        """Return its name in results."""
        function = self.guardrail_function
        named: str = getattr(function, "__name__", "") or type(function).__name__
        return self.name or named


@dataclass(frozen=True)
class InputGuardrail(Check, Generic[ContextT]):
    """A check of a run's input.

    Attributes:
        guardrail_function: Called with (context, agent, input); sync or async. The input is that of
            the run: a text, or a list of items of the Responses API. With a session it is a list:
            the session's history, then the run's input.
        name: Its name in results; the function's by default.
        run_in_parallel: Whether the first turn runs at the same time, or waits for the check.

    Raises:
        UserError: The function cannot be called.
    """

    guardrail_function: GuardrailFunction
    name: str | None = None
    run_in_parallel: bool = True

    async def run(
        self, agent: Any, input: Any, context: RunContextWrapper[Any]
    ) -> InputGuardrailResult:
        """Check an input.

        Raises:
            UserError: The function returned something else than a GuardrailFunctionOutput.
            Exception: An error that the function raised.
        """
        found = await invoke(self.guardrail_function, context, agent, input)
        return InputGuardrailResult(guardrail=self, output=_found(self.get_name(), found))


@dataclass(frozen=True)
class OutputGuardrail(Check, Generic[ContextT]):
    """A check of a run's final output.

    Attributes:
        guardrail_function: Called with (context, agent, output); sync or async. The output is of
            the agent's `output_type`.
        name: Its name in results; the function's by default.

    Raises:
        UserError: The function cannot be called.
    """

    guardrail_function: GuardrailFunction
    name: str | None = None

    async def run(
        self, context: RunContextWrapper[Any], agent: Any, agent_output: Any
    ) -> OutputGuardrailResult:
        """Check a final output.

        Raises:
            UserError: The function returned something else than a GuardrailFunctionOutput.
            Exception: An error that the function raised.
        """
        found = await invoke(self.guardrail_function, context, agent, agent_output)
        output = _found(self.get_name(), found)
        return OutputGuardrailResult(
            guardrail=self, agent_output=agent_output, agent=agent, output=output
        )


@dataclass(frozen=True)
class InputGuardrailResult:
    """Result of an input guardrail.

    Attributes:
        guardrail: The guardrail.
        output: Its finding.
    """

    guardrail: InputGuardrail
    output: GuardrailFunctionOutput


@dataclass(frozen=True)
class OutputGuardrailResult:
    """Result of an output guardrail.

    Attributes:
        guardrail: The guardrail.
        agent_output: The final output that it checked.
        agent: The agent that made the final output.
        output: The guardrail's finding.
    """

    guardrail: OutputGuardrail
    agent_output: Any
    agent: Any
    output: GuardrailFunctionOutput


@overload
def input_guardrail(func: GuardrailFunction, /) -> InputGuardrail: ...


@overload
def input_guardrail(
    *, name: str | None = None, run_in_parallel: bool = True
) -> Callable[[GuardrailFunction], InputGuardrail]: ...


@known_as("input_guardrail")
def input_guardrail(
    func: GuardrailFunction | None = None,
    /,
    *,
    name: str | None = None,
    run_in_parallel: bool = True,
) -> InputGuardrail | Callable[[GuardrailFunction], InputGuardrail]:
    """Make an input guardrail of a function: `@input_guardrail` or `@input_guardrail(...)`.

    Args:
        func: The function.
        name: Its name in results; the function's by default.
        run_in_parallel: Whether the first turn runs at the same time, or waits for the check.

    Raises:
        UserError: It cannot be called.
    """
    decorate = partial(InputGuardrail, name=name, run_in_parallel=run_in_parallel)
    return decorate if func is None else decorate(func)


@overload
def output_guardrail(func: GuardrailFunction, /) -> OutputGuardrail: ...


@overload
def output_guardrail(
    *, name: str | None = None
) -> Callable[[GuardrailFunction], OutputGuardrail]: ...


@known_as("output_guardrail")
def output_guardrail(
    func: GuardrailFunction | None = None, /, *, name: str | None = None
) -> OutputGuardrail | Callable[[GuardrailFunction], OutputGuardrail]:
    """Make an output guardrail of a function: `@output_guardrail` or `@output_guardrail(...)`.

    Args:
        func: The function.
        name: Its name in results; the function's by default.

    Raises:
        UserError: It cannot be called.
    """
    decorate = partial(OutputGuardrail, name=name)
    return decorate if func is None else decorate(func)


def check_guardrails(owner: str, what: str, given: Any, kind: type[Any]) -> None:
    """Refuse anything but a list of guardrails of one kind.

    Raises:
        WrongTypeError: It is not such a list; the text says what to write instead.
    """
    if not isinstance(given, list | tuple):
        msg = f"{what}={shown(given)} of {owner} is not a list. Pass a list: {what}=[...]."
        raise WrongTypeError(msg)
    for each in given:  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(each, kind):
            raise WrongTypeError(
                f"{what} of {owner} has {shown(each)}, which is no {kind.__name__}."  # pyright: ignore[reportUnknownArgumentType]  anything is shown
                f" Decorate the function with @{what.removesuffix('s')}."
            )


@dataclass(frozen=True, kw_only=True)
class OutputGuardrailBlockedMessageArgs(Generic[ContextT]):
    """Argument of a formatter: whose output a guardrail has blocked. The output is not in it.

    Attributes:
        default_message: The text without a formatter.
        guardrail_name: Name of the guardrail.
        agent: The agent whose output it was.
        run_context: The run's context.
    """

    default_message: str
    guardrail_name: str
    agent: Any
    run_context: RunContextWrapper[ContextT]


OutputGuardrailBlockedMessageFormatter = Callable[
    [OutputGuardrailBlockedMessageArgs[Any]], str | None
]
"""Returns the text instead of a blocked turn's tool results, or None for the usual one."""


def check_blocked_message(given: object) -> None:
    """Refuse what is neither a text, nor a function that is not async, nor None.

    Raises:
        WrongTypeError: It is something else.
        DeclarationError: The text is empty.
    """
    what = "output_guardrail_blocked_message"
    if given == "":
        raise DeclarationError(f"{what} must be non-empty; None stands for the usual text.")
    if inspect.iscoroutinefunction(given):
        raise WrongTypeError(f"The {what} formatter must be synchronous; {shown(given)} is async.")
    if given is not None and not isinstance(given, str) and not callable(given):
        raise WrongTypeError(f"{what} must be a string, a function or None; it was {shown(given)}.")


def _found(name: str, found: object) -> GuardrailFunctionOutput:
    said = type(found).__name__
    if isinstance(found, GuardrailFunctionOutput):
        tripped = cast("object", found.tripwire_triggered)
        if isinstance(tripped, bool):
            return found
        said = f"tripwire_triggered={shown(tripped)}, neither True nor False"
    raise UserError(
        f"Guardrail {name!r} returned {said}; it must return a"
        " GuardrailFunctionOutput(output_info=..., tripwire_triggered=...)."
    )


def guard_rule(guardrail: InputGuardrail | OutputGuardrail, ref: str = "") -> GuardRule:
    """Describe a guardrail as data for a task.

    Args:
        guardrail: The guardrail.
        ref: Reference to it, when it comes from a run's settings.
    """
    if isinstance(guardrail, InputGuardrail):
        blocks = not guardrail.run_in_parallel
        return GuardRule(kind="input", name=guardrail.get_name(), blocks=blocks, ref=ref)
    return GuardRule(kind="output", name=guardrail.get_name(), ref=ref)
