"""What the author of a tool may say about it, and which of it makes no sense."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, TypedDict, cast, get_args

from holdfast.agents.tools.guardrails import ToolInputGuardrail, ToolOutputGuardrail
from holdfast.agents.tools.hooks import (
    ApprovalPredicate,
    EffectHook,
    EnabledPredicate,
    FailureFormatter,
    check_hook,
)
from holdfast.errors import InvalidArgumentError
from holdfast.task.data.agent_snapshot import TimeoutBehavior, ToolEffect
from holdfast.values.text.shown import shown

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class ToolOptions(TypedDict, total=False):
    """What `@tool(...)` accepts; the meanings are at the attributes of Tool."""

    name: str | None
    name_override: str | None
    description: str | None
    description_override: str | None
    effect: ToolEffect
    idempotent: bool
    undo: EffectHook | None
    probe: EffectHook | None
    needs_approval: bool | ApprovalPredicate
    timeout_seconds: float | None
    timeout: float | None
    timeout_behavior: TimeoutBehavior
    max_attempts: int
    retry_on: tuple[type[Exception], ...]
    return_direct: bool
    failure_error_function: FailureFormatter | Literal["default"] | None
    is_enabled: bool | EnabledPredicate
    strict: bool
    strict_mode: bool
    max_output_bytes: int
    approval_seconds: float | None
    undo_needs_approval: bool
    undo_idempotent: bool
    tool_input_guardrails: Sequence[ToolInputGuardrail]
    tool_output_guardrails: Sequence[ToolOutputGuardrail]


def check_name(name: str) -> None:
    """Refuse a name that models cannot use.

    Raises:
        InvalidArgumentError: It is not 1 to 64 characters of letters, digits, `_` and `-`.
    """
    if not isinstance(cast("object", name), str) or not _NAME.fullmatch(name):
        msg = (
            f"{shown(name)} cannot be a tool's name: models want 1 to 64 characters of a-z, A-Z,"
            " 0-9, '_' and '-'. Give another with @tool(name=...)."
        )
        raise InvalidArgumentError(msg)


def _is_one_of(given: object, known: tuple[str, ...]) -> bool:
    return isinstance(given, str) and given in known


def _is_above(least: int, given: object) -> bool:
    return isinstance(given, int | float) and given > least


def check_options(
    name: str,
    *,
    effect: str,
    undo: EffectHook | None,
    probe: EffectHook | None,
    timeout_seconds: float | None,
    timeout_behavior: str,
    max_attempts: int,
    retry_on: tuple[type[Exception], ...],
    max_output_bytes: int,
) -> None:
    """Refuse options that contradict each other or are out of range.

    Raises:
        InvalidArgumentError: The text names the option and what to write instead.
    """
    problem = ""
    if not _is_one_of(effect, get_args(ToolEffect)):
        problem = f"effect={shown(effect)} is none of {', '.join(map(repr, get_args(ToolEffect)))}"
    elif effect == "reversible" and undo is None:
        problem = "effect='reversible' needs undo=, the function that takes a call back"
    elif effect == "read" and undo is not None:
        problem = "effect='read' changes nothing, so undo= has nothing to do; leave one of them out"
    elif not _is_one_of(timeout_behavior, get_args(TimeoutBehavior)):
        allowed = ", ".join(map(repr, get_args(TimeoutBehavior)))
        problem = f"timeout_behavior={shown(timeout_behavior)} is none of {allowed}"
    elif timeout_seconds is not None and not _is_above(0, timeout_seconds):
        problem = f"timeout_seconds={shown(timeout_seconds)} is not above 0; None is no limit"
    elif not _is_above(0, max_attempts):
        problem = f"max_attempts={shown(max_attempts)} is below 1; 1 is no repetition"
    elif retry_on and max_attempts == 1:
        problem = "retry_on= repeats nothing without max_attempts= of 2 or more"
    elif not _is_above(0, max_output_bytes):
        problem = f"max_output_bytes={shown(max_output_bytes)} is below 1"
    if problem:
        msg = f"Tool {name!r}: {problem}."
        raise InvalidArgumentError(msg)
    for hook, what in ((undo, "undo"), (probe, "probe")):
        if hook is not None:
            check_hook(hook, f"{what}= of tool {name!r}", ("ctx", "effect"))
