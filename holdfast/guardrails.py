"""Guardrails: checks of what goes into a run and what comes out of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from holdfast.run_context import RunContextWrapper


@dataclass(frozen=True)
class GuardrailFunctionOutput:
    """What a guardrail's function found.

    Attributes:
        output_info: Anything that JSON can say: why, for whoever reads the run afterwards.
        tripwire_triggered: Whether the run must not go on.
    """

    output_info: Any
    tripwire_triggered: bool


Found = GuardrailFunctionOutput | Awaitable[GuardrailFunctionOutput]


@dataclass(frozen=True)
class InputGuardrail:
    """A check of a run's input.

    Attributes:
        guardrail_function: Called with (context, agent, input); sync or async.
        name: Its name in results; the function's by default.
        run_in_parallel: Whether the first turn runs meanwhile, or waits for it.
    """

    guardrail_function: Callable[[RunContextWrapper[Any], Any, Any], Found]
    name: str | None = None
    run_in_parallel: bool = True


@dataclass(frozen=True)
class OutputGuardrail:
    """A check of a run's final output.

    Attributes:
        guardrail_function: Called with (context, agent, output); sync or async.
        name: Its name in results; the function's by default.
    """

    guardrail_function: Callable[[RunContextWrapper[Any], Any, Any], Found]
    name: str | None = None
