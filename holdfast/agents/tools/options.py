"""The options of `@tool(...)`, and the check of a tool's name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, TypedDict, cast

from holdfast.agents.tools.functions.docstrings import DocstringStyle
from holdfast.agents.tools.guardrails import ToolInputGuardrail, ToolOutputGuardrail
from holdfast.agents.tools.hooks import (
    ApprovalPredicate,
    EffectHook,
    EnabledPredicate,
    FailureFormatter,
)
from holdfast.errors import DeclarationError
from holdfast.task.data.agent_snapshot import TimeoutBehavior, ToolEffect
from holdfast.values.runs.approval_rules import ApprovalRule
from holdfast.values.text.shown import shown

ToolCaller = Literal["direct", "programmatic"]
"""Who may call a tool: the model, or programs that the provider runs for it."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class ToolOptions(TypedDict, total=False):
    """The options of `@tool(...)`; they are described at the attributes of Tool."""

    name: str | None
    name_override: str | None
    description: str | None
    description_override: str | None
    effect: ToolEffect
    idempotent: bool
    undo: EffectHook | None
    probe: EffectHook | None
    needs_approval: bool | ApprovalPredicate | ApprovalRule
    timeout_seconds: float | None
    timeout: float | None
    timeout_behavior: TimeoutBehavior
    timeout_error_function: FailureFormatter | None
    docstring_style: DocstringStyle | None
    use_docstring_info: bool
    defer_loading: bool
    allowed_callers: list[ToolCaller] | None
    custom_data_extractor: None
    output_type: None
    output_json_schema: None
    max_attempts: int
    retry_on: tuple[type[Exception], ...]
    return_direct: bool
    failure_error_function: FailureFormatter | Literal["default"] | None
    is_enabled: bool | EnabledPredicate
    strict: bool
    strict_mode: bool
    max_output_bytes: int
    inline: bool
    inline_seconds: float
    approval_seconds: float | None
    undo_needs_approval: bool
    undo_idempotent: bool
    tool_input_guardrails: Sequence[ToolInputGuardrail]
    tool_output_guardrails: Sequence[ToolOutputGuardrail]


def check_name(name: str) -> None:
    """Refuse a name that models cannot use.

    Raises:
        DeclarationError: It is not 1 to 64 characters of letters, digits, `_` and `-`.
    """
    if not isinstance(cast("object", name), str) or not _NAME.fullmatch(name):
        msg = (
            f"{shown(name)} cannot be a tool's name: models want 1 to 64 characters of a-z, A-Z,"
            " 0-9, '_' and '-'. Pass name_override= or name= to @tool."
        )
        raise DeclarationError(msg)
