"""The options of `@tool(...)`: what they are, how they are read, and which are refused."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict, cast

from holdfast.agents.tools.context import Effect, ToolContext
from holdfast.agents.tools.functions.function_schema import (
    DocstringStyle,
    FuncSchema,
    function_schema,
)
from holdfast.agents.tools.functions.schema import strict_schema
from holdfast.agents.tools.functions.signature import EMPTY
from holdfast.agents.tools.guardrails import ToolInputGuardrail, ToolOutputGuardrail
from holdfast.errors import DeclarationError, InvalidArgumentError, UserError
from holdfast.task.data.head import TimeoutBehavior, ToolEffect
from holdfast.values.checks.gate import check_known, clean
from holdfast.values.code.user_calls import invoke, yes_or_no
from holdfast.values.runs.approval_rules import ApprovalRule
from holdfast.values.text.shown import shown

Verdict = bool | Awaitable[bool]

EffectHook = Callable[[Effect], Any] | Callable[[ToolContext[Any], Effect], Any]
"""An undo or a probe, sync or async."""

Asked = bool | ApprovalRule
"""Whether a call needs an approval, or of whom."""

Asking = Asked | Awaitable[Asked]

ApprovalPredicate = (
    Callable[[dict[str, Any]], Asking]
    | Callable[[ToolContext[Any], dict[str, Any]], Asking]
    | Callable[[ToolContext[Any], dict[str, Any], str], Asking]
)
"""Whether a call needs an approval, or the rule by which it does; takes (arguments), (ctx,
arguments) or (ctx, arguments, call_id)."""

EnabledPredicate = Callable[[], Verdict] | Callable[[Any], Verdict] | Callable[[Any, Any], Verdict]
"""Whether a tool is offered to the model; takes (), (ctx) or (ctx, agent)."""

FailureFormatter = Callable[[ToolContext[Any], Exception], str | Awaitable[str]]
"""Makes the model's text for a failed call."""


async def invoke_hook(
    function: Callable[..., Any], *args: Any, keep: Literal["first", "last"]
) -> Any:
    """Call a hook, which may take fewer positional arguments than there are.

    Args:
        function: The hook.
        args: All arguments.
        keep: Which of them a hook with fewer parameters gets.
    """
    wanted = min(_wanted(function, len(args)), len(args))
    given = args[:wanted] if keep == "first" else args[len(args) - wanted :]
    return await invoke(function, *given)


def takes_context(hook: EffectHook | None) -> bool:
    """Whether an undo or a probe takes the context of the call, not only the effect."""
    return hook is not None and _wanted(hook, 2) > 1


async def run_hook(
    hook: EffectHook | None, what: str, tool: str, ctx: ToolContext | None, effect: Effect
) -> Any:
    """Call an undo or a probe.

    Args:
        hook: It, or None.
        what: Which of the two.
        tool: Name of the tool.
        ctx: The context of the call; None for one that takes none, see `takes_context`.
        effect: The call that has happened, or may have.

    Raises:
        InvalidArgumentError: The tool has none.
        Exception: An error that it raised.
    """
    if hook is None:
        raise InvalidArgumentError(f"Tool {tool!r} has no {what}= and cannot be asked to {what}.")
    if ctx is None:
        return await invoke(hook, effect)
    return await invoke_hook(hook, ctx, effect, keep="last")


async def invoke_predicate(
    predicate: ApprovalPredicate, ctx: ToolContext, arguments: dict[str, Any], call_id: str
) -> Asked:
    """Call an approval predicate with as many arguments as it takes.

    Raises:
        UserError: It returned something else.
        Exception: An error that it raised.
    """
    everything = (ctx, arguments, call_id)
    if _wanted(predicate, len(everything)) >= len(everything):
        return answer_of(predicate, await invoke(predicate, *everything))
    return answer_of(predicate, await invoke_hook(predicate, ctx, arguments, keep="last"))


def answer_of(predicate: Callable[..., Any], said: object) -> Asked:
    """Return what an approval predicate said.

    Raises:
        UserError: It said something else.
    """
    if isinstance(said, ApprovalRule):
        return said
    return yes_or_no(predicate, said, "True, False or an ApprovalRule")


def decision_of(what: str, said: object) -> tuple[bool, str]:
    """Return whether a function that decides in place of a person approves, and its reason.

    Args:
        what: The function, as errors name it.
        said: What it returned.

    Raises:
        UserError: It returned no decision.
    """
    given = cast("Mapping[str, object]", said if isinstance(cast("Any", said), Mapping) else {})
    approve, reason = given.get("approve"), given.get("reason")
    if isinstance(approve, bool) and isinstance(reason, str | None):
        return approve, clean(reason or "")
    raise UserError(
        f'{what} must return {{"approve": bool, "reason": str}}; it returned {shown(said)}.',
        remedy="To have a person decide, leave it out.",
    )


async def is_offered(is_enabled: bool | EnabledPredicate, ctx: Any, agent: Any) -> bool:  # noqa: FBT001  a tool's attribute
    """Whether a tool or handoff is offered to the model in this turn.

    Raises:
        UserError: The predicate returned neither True nor False.
        Exception: An error that it raised.
    """
    if not callable(is_enabled):
        return is_enabled
    return yes_or_no(is_enabled, await invoke_hook(is_enabled, ctx, agent, keep="first"))


def check_hook(function: Callable[..., Any], what: str, arguments: tuple[str, ...]) -> None:
    """Refuse a hook that cannot be called with all of these arguments, or with the last ones.

    Raises:
        DeclarationError: It cannot be called, or takes none or more arguments.
    """
    if callable(cast("object", function)) and 0 < _wanted(function, len(arguments)) <= len(
        arguments
    ):
        return
    raise DeclarationError(
        f"{what} must be a function ({', '.join(arguments)}) or ({arguments[-1]}); got"
        f" {shown(function)}."
    )


def _wanted(function: Callable[..., Any], offered: int) -> int:
    """Count the positional parameters of a hook without a default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    wanted = 0
    for each in parameters:
        if each.kind is each.VAR_POSITIONAL:
            return offered
        is_positional = each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
        wanted += is_positional and each.default is EMPTY
    return wanted


ToolCaller = Literal["direct", "programmatic"]
"""Who may call a tool: the model, or programs that the provider runs for it."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

REFUSED = {
    "custom_data_extractor": "items of a run are read from the task's record, which keeps what the"
    " model reads; keep other data in ctx.state or ctx.context",
    "output_type": "it serves programs that the provider runs, and Holdfast offers no such"
    " (ProgrammaticToolCallingTool); the result is written as JSON anyway",
    "output_json_schema": "it serves programs that the provider runs, and Holdfast offers no such"
    " (ProgrammaticToolCallingTool)",
}
"""Options of the Agents SDK that cannot be served, and why."""


class LocalOptions(TypedDict, total=False):
    """Options that any tool has which runs here; see `Tool`."""

    effect: ToolEffect
    idempotent: bool
    undo: EffectHook | None
    probe: EffectHook | None
    timeout_seconds: float | None
    allowed_callers: list[ToolCaller] | None
    custom_data_extractor: None
    max_attempts: int
    retry_on: tuple[type[Exception], ...]
    failure_error_function: FailureFormatter | Literal["default"] | None
    is_enabled: bool | EnabledPredicate
    max_output_bytes: int
    approval_seconds: float | None
    undo_needs_approval: bool
    undo_idempotent: bool
    tool_input_guardrails: Sequence[ToolInputGuardrail]
    tool_output_guardrails: Sequence[ToolOutputGuardrail]


class ToolOptions(LocalOptions, total=False):
    """The options of `@tool(...)`; they are described at the attributes of Tool."""

    name: str | None
    name_override: str | None
    description: str | None
    description_override: str | None
    needs_approval: bool | ApprovalPredicate | ApprovalRule
    timeout: float | None
    timeout_behavior: TimeoutBehavior
    timeout_error_function: FailureFormatter | None
    docstring_style: DocstringStyle | None
    use_docstring_info: bool
    defer_loading: bool
    output_type: None
    output_json_schema: None
    return_direct: bool
    strict: bool
    strict_mode: bool
    inline: bool
    inline_seconds: float
    completes: Literal["later"]
    completion_seconds: float | None


def check_name(name: str) -> None:
    """Refuse a name that models cannot use.

    Raises:
        DeclarationError: It is not 1 to 64 characters of letters, digits, `_` and `-`.
    """
    if not isinstance(cast("object", name), str) or not _NAME.fullmatch(name):
        raise DeclarationError(
            f"{shown(name)} cannot be a tool's name: models want 1 to 64 characters of a-z, A-Z,"
            " 0-9, '_' and '-'. Pass name_override= or name= to @tool."
        )


def read_options(
    function: Callable[..., Any], options: ToolOptions
) -> tuple[FuncSchema, dict[str, Any]]:
    """Describe a function as its options say; return also the options that Tool has as well.

    Raises:
        DeclarationError: Its signature cannot be described to a model, or an option is not served.
        WrongTypeError: There is no such option.
    """
    given = cast("dict[str, Any]", dict(options))
    check_known("options of a tool", given, sorted(ToolOptions.__annotations__))
    names = [given.pop("name", None), given.pop("name_override", None)]
    texts = [given.pop("description", None), given.pop("description_override", None)]
    if "timeout" in given:
        given.setdefault("timeout_seconds", given.pop("timeout"))
    is_exact = bool(given.pop("strict", False))
    signature = function_schema(
        function,
        given.pop("docstring_style", None),
        next((name for name in names if name is not None), None),
        next((text for text in texts if text is not None), None),
        given.pop("use_docstring_info", True),
        given.pop("strict_mode", False) or is_exact,
    )
    refuse_option(signature.name, "output_type", given.pop("output_type", None))
    if is_exact:
        strict_schema(signature.params_json_schema, what=f"tool {signature.name!r}")
    return signature, given


def refuse_option(tool: str, option: str, value: object) -> None:
    """Refuse an option of the Agents SDK that Holdfast does not serve; None is not a wish.

    Raises:
        DeclarationError: It has a value.
    """
    if value is not None:
        raise DeclarationError(f"Tool {tool!r} cannot have {option}=: {REFUSED[option]}.")
