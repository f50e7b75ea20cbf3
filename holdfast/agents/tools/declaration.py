"""Checks of what a tool declares."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, cast, get_args

from holdfast.agents.tools.guardrails import (
    ToolInputGuardrail,
    ToolOutputGuardrail,
    check_tool_guardrails,
)
from holdfast.agents.tools.hooks import check_hook
from holdfast.agents.tools.options import check_name, refuse_option
from holdfast.errors import DeclarationError, UserError, WrongTypeError
from holdfast.task.data.agent_snapshot import TimeoutBehavior, ToolEffect, ToolPolicy
from holdfast.values.checks.json_shapes import defaulted
from holdfast.values.runs.approval_rules import ApprovalRule
from holdfast.values.text.shown import shown

MOST_INLINE_SECONDS = 30.0
"""The activity of a step has a minute next to the time of its model call."""

_CALLERS = ("direct", "programmatic")


def refuse_to_offer(tool: Any) -> None:
    """Refuse to offer a model a tool that only a hosted tool of the provider makes usable.

    Raises:
        UserError: It wants to be called by programs.
    """
    if "programmatic" in (tool.allowed_callers or ()):
        msg = (
            f"Tool {tool.name!r} allows calls by programs that the provider runs; Holdfast has no"
            " ProgrammaticToolCallingTool."
        )
        raise UserError(msg, remedy="Leave allowed_callers out: then the model calls the tool.")


def check_tool(tool: Any) -> None:
    """Refuse a tool whose attributes contradict each other, or are out of range.

    Args:
        tool: The Tool; its module is above this one.

    Raises:
        DeclarationError: One of them is; the text says which and why.
        WrongTypeError: One is of a wrong type.
        UserError: The guardrails are not a list of tool guardrails.
    """
    check_name(tool.name)
    owner = f"Tool {tool.name!r}"
    checks, results = tool.tool_input_guardrails, tool.tool_output_guardrails
    check_tool_guardrails(owner, "tool_input_guardrails", checks, ToolInputGuardrail)
    check_tool_guardrails(owner, "tool_output_guardrails", results, ToolOutputGuardrail)
    for option in ("custom_data_extractor", "output_json_schema"):
        refuse_option(tool.name, option, getattr(tool, option))
    _check_types(tool)
    _check_namespace(tool)
    problem = next(filter(None, (_effect_problem(tool), _time_problem(tool), _other(tool))), "")
    if problem:
        msg = f"Tool {tool.name!r}: {problem}."
        raise DeclarationError(msg)
    for hook, what in ((tool.undo, "undo"), (tool.probe, "probe")):
        if hook is not None:
            check_hook(hook, f"{what}= of tool {tool.name!r}", ("ctx", "effect"))


def declared_policy(tool: Any) -> ToolPolicy:
    """Describe as data how a task runs a tool.

    Args:
        tool: The Tool.
    """
    asks = callable(tool.needs_approval)
    expires = tool.rule.expires_seconds if tool.rule is not None else None
    signature = getattr(tool.on_invoke_tool, "signature", None)
    shown = tool.params_json_schema
    if getattr(signature, "makes_defaults", False):
        shown = tool.signature.with_made_defaults()
    return ToolPolicy(
        **{name: getattr(tool, name) for name in _AS_DECLARED},
        needs_approval="ask" if asks else "yes" if tool.needs_approval else "no",
        has_undo=tool.undo is not None,
        has_probe=tool.probe is not None,
        timeout_seconds=tool.timeout_seconds or 0,
        approval_seconds=expires or tool.approval_seconds or 0,
        approval=tool.rule,
        is_conditional=callable(tool.is_enabled),
        guarded=bool(tool.tool_input_guardrails),
        defaults=defaulted(shown),
    )


_AS_DECLARED = (
    "effect",
    "idempotent",
    "timeout_behavior",
    "max_attempts",
    "return_direct",
    "max_output_bytes",
    "undo_needs_approval",
    "undo_idempotent",
)
"""Attributes that ToolPolicy has under the same name, with the same values."""


def _check_namespace(tool: Any) -> None:
    if tool.namespace and not _NAMESPACE.fullmatch(tool.namespace):
        msg = (
            f"{shown(tool.namespace)} cannot be the namespace of tool {tool.name!r}: it must have 1"
            " to 64 characters of a-z, A-Z, 0-9, '_', '-' and '.'."
        )
        raise DeclarationError(msg)
    if tool.namespace == tool.name:
        msg = (
            f"Responses tool-search reserves the synthetic namespace `{tool.name}.{tool.name}` for"
            " deferred tools outside of namespaces. Rename the namespace or the tool."
        )
        raise DeclarationError(msg)


_NAMESPACE = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


def _check_types(tool: Any) -> None:
    fits: tuple[tuple[str, Callable[[object], bool], str], ...] = (
        ("description", _is(str), "a text"),
        ("params_json_schema", _is(dict), "a dict: the JSON Schema of an object"),
        ("on_invoke_tool", callable, "an async function (ctx, arguments: str)"),
        ("strict_json_schema", _is(bool), "True or False"),
        ("is_enabled", _is(bool, call=True), "True, False or a function (ctx, agent)"),
        ("defer_loading", _is(bool), "True or False"),
        ("namespace", _is(str), "a text, empty for none"),
        ("namespace_description", _is(str), "a text"),
        (
            "needs_approval",
            _is(bool, ApprovalRule, call=True),
            "True, False, an ApprovalRule or a function (ctx, arguments, call_id)",
        ),
        (
            "failure_error_function",
            lambda it: it is None or it == "default" or callable(it),
            "None or a function (ctx, error)",
        ),
        (
            "timeout_error_function",
            _is(type(None), call=True),
            "callable (ctx, error), or None",
        ),
        (
            "timeout_seconds",
            lambda it: it is None or (isinstance(it, int | float) and not isinstance(it, bool)),
            "a positive number of seconds, or None for no limit",
        ),
    )
    for name, is_fit, wanted in fits:
        given = getattr(tool, name)
        if not is_fit(given):
            msg = f"Tool {tool.name!r}: {name} must be {wanted}; it is {shown(given)}."
            raise WrongTypeError(msg)


def _is(*types: type[Any], call: bool = False) -> Callable[[object], bool]:
    return lambda it: isinstance(it, types) or (call and callable(it))


def _effect_problem(tool: Any) -> str:
    if not _is_one_of(tool.effect, get_args(ToolEffect)):
        known = ", ".join(map(repr, get_args(ToolEffect)))
        return f"effect={shown(tool.effect)} is not one of {known}"
    if tool.effect == "reversible" and tool.undo is None:
        return "effect='reversible' needs undo=, the function that takes a call back"
    if tool.effect == "read" and tool.undo is not None:
        return "effect='read' changes nothing, so undo= has nothing to do; leave one of them out"
    return ""


def _time_problem(tool: Any) -> str:
    seconds = tool.timeout_seconds
    if not _is_one_of(tool.timeout_behavior, get_args(TimeoutBehavior)):
        known = ", ".join(map(repr, get_args(TimeoutBehavior)))
        return f"timeout_behavior must be one of {known}; it is {shown(tool.timeout_behavior)}"
    if seconds is not None and not (math.isfinite(seconds) and seconds > 0):
        wanted = "greater than 0" if math.isfinite(seconds) else "a finite number"
        return f"timeout_seconds={shown(seconds)} must be {wanted}; None sets no limit"
    if tool.rule and tool.rule.expires_seconds and tool.approval_seconds is not None:
        return "approval_seconds= and expires_seconds= of its rule say the same; give one"
    if not isinstance(cast("object", tool.inline), bool):
        return f"inline={shown(tool.inline)} is neither True nor False"
    if not _is_positive(tool.inline_seconds) or tool.inline_seconds > MOST_INLINE_SECONDS:
        return (
            f"inline_seconds={shown(tool.inline_seconds)} is not above 0 and up to"
            f" {MOST_INLINE_SECONDS:g}; inline=False gives each call an activity of its own"
        )
    return ""


def _other(tool: Any) -> str:
    if not _is_positive(tool.max_attempts):
        return f"max_attempts={shown(tool.max_attempts)} is below 1; 1 means no repetition"
    if tool.retry_on and tool.max_attempts == 1:
        return "retry_on= repeats nothing without max_attempts= of 2 or more"
    if not _is_positive(tool.max_output_bytes):
        return f"max_output_bytes={shown(tool.max_output_bytes)} is below 1"
    callers: object = tool.allowed_callers
    if callers is not None and not _are_callers(callers):
        return f"allowed_callers={shown(callers)} is not a list of 'direct' and 'programmatic'"
    return ""


def _are_callers(given: object) -> bool:
    if not isinstance(given, list) or not given:
        return False
    several = cast("list[object]", given)
    return len(set(map(str, several))) == len(several) and all(each in _CALLERS for each in several)


def _is_one_of(given: object, known: tuple[str, ...]) -> bool:
    return isinstance(given, str) and given in known


def _is_positive(given: object) -> bool:
    return isinstance(given, int | float) and given > 0
