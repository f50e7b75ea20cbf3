"""Calls the user's functions of a tool (undo, probe, predicates) with as many arguments as fit."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Literal, cast

from holdfast.agents.tools.context import Effect, ToolContext
from holdfast.agents.tools.functions.signature import EMPTY
from holdfast.errors import DeclarationError, InvalidArgumentError
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


async def run_hook(
    hook: EffectHook | None, what: str, tool: str, ctx: ToolContext, effect: Effect
) -> Any:
    """Call an undo or a probe.

    Args:
        hook: It, or None.
        what: Which of the two.
        tool: Name of the tool.
        ctx: The context of the call.
        effect: The call that has happened, or may have.

    Raises:
        InvalidArgumentError: The tool has none.
        Exception: An error that it raised.
    """
    if hook is None:
        msg = f"Tool {tool!r} has no {what}= and cannot be asked to {what}."
        raise InvalidArgumentError(msg)
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
    msg = (
        f"{what} must be a function ({', '.join(arguments)}) or ({arguments[-1]}); got"
        f" {shown(function)}."
    )
    raise DeclarationError(msg)


def _wanted(function: Callable[..., Any], offered: int) -> int:
    """Count the positional parameters of a hook without a default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return offered
    kinds = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    return sum(p.kind in kinds and p.default is EMPTY for p in parameters)
