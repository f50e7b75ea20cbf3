"""Tool: a function that a model may call, with its effect, its undo and its policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, Generic, Literal, ParamSpec, TypeVar, cast, get_args

import typing_extensions as ext

from holdfast.agents.tools.arguments import ToolArgumentsError, parse_arguments
from holdfast.agents.tools.context import Effect, ToolContext
from holdfast.agents.tools.guardrails import (
    ToolInputGuardrail,
    ToolOutputGuardrail,
    check_tool_guardrails,
)
from holdfast.agents.tools.hooks import (
    ApprovalPredicate,
    EffectHook,
    EnabledPredicate,
    FailureFormatter,
    check_hook,
    invoke_hook,
    invoke_predicate,
    is_offered,
)
from holdfast.agents.tools.options import ToolOptions, check_name
from holdfast.agents.tools.schema import FunctionSchema, read_function
from holdfast.errors import InvalidArgumentError, ToolTimeoutError
from holdfast.models.base import ToolSpec
from holdfast.task.data.agent_snapshot import (
    DEFAULT_MAX_OUTPUT_BYTES,
    TimeoutBehavior,
    ToolEffect,
    ToolPolicy,
)
from holdfast.values.base import Json
from holdfast.values.code.user_calls import invoke
from holdfast.values.settings import ApprovalRule
from holdfast.values.text.shown import shown

P = ext.ParamSpec("P", default=...)
R = ext.TypeVar("R", default=Any)
P0 = ParamSpec("P0")
R0 = TypeVar("R0")

MOST_INLINE_SECONDS = 30.0
"""The activity of a step has a minute beside the time of its model call."""

_BY_UNDO: Any = None  # no effect given: __post_init__ derives it from `undo`


@dataclass(frozen=True, eq=False, repr=False)
class Tool(Generic[P, R]):
    """A tool that a model may call. Made by `@tool`; calling the object calls the function.

    A tool that is made without a signature calls `function(ctx, arguments)` with the decoded JSON
    object, which is not validated.

    Attributes:
        name: 1 to 64 letters, digits, `_` and `-`.
        description: Description for the model.
        parameters: JSON Schema of the arguments object.
        function: The function; a sync function runs in a thread.
        signature: Converts arguments to parameters; None for a tool made without `@tool`.
        effect: "read", "reversible" or "irreversible"; by default "reversible" with `undo`, else
            "irreversible".
        idempotent: Whether two calls with the same idempotency key act once.
        undo: Called as `undo(ctx, effect)` or `undo(effect)` to undo a call that has happened.
        probe: Called like `undo` when it is unknown whether a call has happened; returns its
            result, or None when it has not happened.
        needs_approval: Whether calls need an approval, or a predicate (ctx, arguments), or
            (arguments), or (ctx, arguments, call_id), that decides it per call, or an ApprovalRule
            that says who must approve each call.
        timeout_seconds: Longest time of one attempt, or None. A call cut off by it may have
            happened: it is *unknown*, unless the tool is `effect="read"` or `idempotent`.
        timeout_behavior: Whether a timeout of a call without a possible effect becomes a result for
            the model, or raises ToolTimeoutError.
        max_attempts: Most attempts when it raises an error of `retry_on`.
        retry_on: Errors after which to try again; empty means every Exception.
        return_direct: Whether the result is the answer of the task.
        failure_error_function: Called as `(ctx, error)` for the model's text when a call fails;
            "default" is the text of the API in use, None raises.
        is_enabled: Whether it is offered to the model, or a predicate (ctx, agent).
        strict: Whether the schema follows OpenAI's strict rules and may be enforced.
        max_output_bytes: Longest result, in UTF-8 bytes.
        inline: Whether calls may run in the activity that made the model call, at half the price of
            one of their own. Only those of a tool with `effect="read"` that need no approval do.
        inline_seconds: How long such a call may hold up its step, at most 30; then it goes on by
            itself.
        approval_seconds: Seconds after which an approval expires to rejected, or None for never.
        undo_needs_approval: Whether undoing a call needs an approval.
        undo_idempotent: Whether undoing a call twice acts once: an `undo` that was cut off, or that
            raised a transient error, is then called again.
        tool_input_guardrails: Checks of a call before it is run, in order.
        tool_output_guardrails: Checks of its result, in order.

    Raises:
        InvalidArgumentError: The attributes contradict each other, or one is out of range.
        UserError: The guardrails are not a list of tool guardrails.
    """

    _: KW_ONLY
    name: str
    description: str = ""
    parameters: dict[str, Json]
    function: Callable[P, R]
    signature: FunctionSchema | None = None
    effect: ToolEffect = _BY_UNDO
    idempotent: bool = False
    undo: EffectHook | None = None
    probe: EffectHook | None = None
    needs_approval: bool | ApprovalPredicate | ApprovalRule = False
    timeout_seconds: float | None = None
    timeout_behavior: TimeoutBehavior = "error_as_result"
    max_attempts: int = 1
    retry_on: tuple[type[Exception], ...] = ()
    return_direct: bool = False
    failure_error_function: FailureFormatter | Literal["default"] | None = "default"
    is_enabled: bool | EnabledPredicate = True
    strict: bool = False
    max_output_bytes: int = DEFAULT_MAX_OUTPUT_BYTES
    inline: bool = True
    inline_seconds: float = 2.0
    approval_seconds: float | None = None
    undo_needs_approval: bool = False
    undo_idempotent: bool = False
    tool_input_guardrails: Sequence[ToolInputGuardrail] = ()
    tool_output_guardrails: Sequence[ToolOutputGuardrail] = ()

    def __post_init__(self) -> None:
        """Derive the effect if it was not given, and check the attributes."""
        if self.effect is _BY_UNDO:
            object.__setattr__(self, "effect", "reversible" if self.undo else "irreversible")
        object.__setattr__(self, "__wrapped__", self.function)  # for inspect.signature and help()
        object.__setattr__(self, "__doc__", getattr(self.function, "__doc__", None))
        check_name(self.name)
        checks, results = self.tool_input_guardrails, self.tool_output_guardrails
        check_tool_guardrails(self.name, "tool_input_guardrails", checks, ToolInputGuardrail)
        check_tool_guardrails(self.name, "tool_output_guardrails", results, ToolOutputGuardrail)
        problem = self._problem()
        if problem:
            msg = f"Tool {self.name!r}: {problem}."
            raise InvalidArgumentError(msg)
        for hook, what in ((self.undo, "undo"), (self.probe, "probe")):
            if hook is not None:
                check_hook(hook, f"{what}= of tool {self.name!r}", ("ctx", "effect"))

    def _problem(self) -> str:
        """Return what is wrong with the attributes, for the error; empty if they are valid."""
        problem = ""
        if not _is_one_of(self.effect, get_args(ToolEffect)):
            known = ", ".join(map(repr, get_args(ToolEffect)))
            problem = f"effect={shown(self.effect)} is none of {known}"
        elif self.effect == "reversible" and self.undo is None:
            problem = "effect='reversible' needs undo=, the function that takes a call back"
        elif self.effect == "read" and self.undo is not None:
            problem = (
                "effect='read' changes nothing, so undo= has nothing to do; leave one of them out"
            )
        elif not _is_one_of(self.timeout_behavior, get_args(TimeoutBehavior)):
            known = ", ".join(map(repr, get_args(TimeoutBehavior)))
            problem = f"timeout_behavior={shown(self.timeout_behavior)} is none of {known}"
        elif self.timeout_seconds is not None and not _is_positive(self.timeout_seconds):
            given = shown(self.timeout_seconds)
            problem = f"timeout_seconds={given} is not above 0; None is no limit"
        elif not _is_positive(self.max_attempts):
            problem = f"max_attempts={shown(self.max_attempts)} is below 1; 1 is no repetition"
        elif self.rule and self.rule.expires_seconds and self.approval_seconds is not None:
            problem = "approval_seconds= and expires_seconds= of its rule say the same; give one"
        elif self.retry_on and self.max_attempts == 1:
            problem = "retry_on= repeats nothing without max_attempts= of 2 or more"
        elif not _is_positive(self.max_output_bytes):
            problem = f"max_output_bytes={shown(self.max_output_bytes)} is below 1"
        elif not isinstance(cast("object", self.inline), bool):
            problem = f"inline={shown(self.inline)} is neither True nor False"
        elif not _is_positive(self.inline_seconds) or self.inline_seconds > MOST_INLINE_SECONDS:
            given = shown(self.inline_seconds)
            problem = (
                f"inline_seconds={given} is not above 0 and up to {MOST_INLINE_SECONDS:g};"
                " inline=False gives each call an activity of its own"
            )
        return problem

    @staticmethod
    def from_function(
        function: Callable[P0, R0], /, **options: ext.Unpack[ToolOptions]
    ) -> Tool[P0, R0]:
        """Make a tool of a function, described by its signature and docstring.

        Raises:
            InvalidArgumentError: Its signature cannot be described to a model; the text says why.
        """
        given = cast("dict[str, Any]", dict(options))
        names = [given.pop("name", None), given.pop("name_override", None)]
        texts = [given.pop("description", None), given.pop("description_override", None)]
        for other, own in (("strict_mode", "strict"), ("timeout", "timeout_seconds")):
            if other in given:
                given.setdefault(own, given.pop(other))
        signature = read_function(
            function,
            name=next((name for name in names if name is not None), None),
            description=next((text for text in texts if text is not None), None),
            strict=given.get("strict", False),
        )
        return Tool(
            name=signature.name,
            description=signature.description,
            parameters=signature.parameters,
            function=function,
            signature=signature,
            **given,
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, as a unit test does."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        """Show the tool's name and effect."""
        return f"<Tool {self.name!r} effect={self.effect!r}>"

    @property
    def rule(self) -> ApprovalRule | None:
        """Who decides about calls, when the tool says so."""
        return self.needs_approval if isinstance(self.needs_approval, ApprovalRule) else None

    @property
    def _approval_seconds(self) -> float:
        own = self.rule.expires_seconds if self.rule is not None else None
        return own or self.approval_seconds or 0

    @property
    def takes_context(self) -> bool:
        """Whether the function takes the ToolContext."""
        return self.signature is None or self.signature.context is not None

    def spec(self) -> ToolSpec:
        """Describe the tool for a model."""
        return ToolSpec(
            name=self.name,
            description=self.description,
            parameters=self.parameters,
            strict=self.strict,
        )

    def policy(self) -> ToolPolicy:
        """Describe as data how a task runs the tool."""
        asks = callable(self.needs_approval)
        return ToolPolicy(
            **{name: getattr(self, name) for name in _AS_DECLARED},
            needs_approval="ask" if asks else "yes" if self.needs_approval else "no",
            has_undo=self.undo is not None,
            has_probe=self.probe is not None,
            timeout_seconds=self.timeout_seconds or 0,
            approval_seconds=self._approval_seconds,
            approval=self.rule,
            is_conditional=callable(self.is_enabled),
            guarded=bool(self.tool_input_guardrails),
        )

    def parse(self, arguments: str) -> dict[str, Any]:
        """Return the validated arguments by parameter, without those that the model omitted.

        Raises:
            ToolArgumentsError: The arguments do not fit; its text is meant for the model.
        """
        return parse_arguments(self.name, self.signature, arguments)

    async def run(self, ctx: ToolContext, arguments: str) -> Any:
        """Validate the arguments, run the function, and return its value unchanged.

        Raises:
            ToolArgumentsError: The arguments do not fit; the function was not called.
            Exception: An error that the function raised.
        """
        values = self.parse(arguments)
        if self.signature is None:
            return await invoke(self.function, ctx, values)
        positional, named = self.signature.bind(ctx, values)
        return await invoke(self.function, *positional, **named)

    def is_worth_repeating(self, error: BaseException) -> bool:
        """Whether the tool allows another attempt after this error.

        A call that was cut off by its timeout may have happened, so it is repeated only if the tool
        is `effect="read"` or `idempotent`.
        """
        if self.max_attempts == 1 or isinstance(error, ToolArgumentsError):
            return False
        if isinstance(error, ToolTimeoutError) and self.policy().may_have_happened:
            return False
        return isinstance(error, self.retry_on or Exception)

    async def run_undo(self, ctx: ToolContext, effect: Effect) -> Any:
        """Undo a call that has happened.

        Raises:
            InvalidArgumentError: The tool has no `undo=`.
            Exception: An error that the undo raised.
        """
        return await self._run_hook(self.undo, "undo", ctx, effect)

    async def run_probe(self, ctx: ToolContext, effect: Effect) -> Any:
        """Find out whether a call has happened: return its result, or None if it has not.

        Raises:
            InvalidArgumentError: The tool has no `probe=`.
            Exception: An error that the probe raised.
        """
        return await self._run_hook(self.probe, "probe", ctx, effect)

    async def _run_hook(
        self, hook: EffectHook | None, what: str, ctx: ToolContext, effect: Effect
    ) -> Any:
        if hook is None:
            msg = f"Tool {self.name!r} has no {what}= and cannot be asked to {what}."
            raise InvalidArgumentError(msg)
        return await invoke_hook(hook, ctx, effect, keep="last")

    async def asks_approval(self, ctx: ToolContext, arguments: str) -> bool:
        """Whether this call needs an approval. A predicate gets the decoded JSON arguments.

        With a predicate, arguments that do not fit always need one: a reviewer may correct them.

        Raises:
            Exception: An error that the predicate raised.
        """
        if isinstance(self.needs_approval, bool | ApprovalRule):
            return bool(self.needs_approval)
        try:
            self.parse(arguments)
        except ToolArgumentsError:
            return True
        data = parse_arguments(self.name, None, arguments)
        return bool(await invoke_predicate(self.needs_approval, ctx, data, ctx.call_id))

    async def is_offered(self, ctx: Any, agent: Any) -> bool:
        """Whether the tool is offered to the model.

        Raises:
            Exception: An error that the predicate raised.
        """
        return await is_offered(self.is_enabled, ctx, agent)


_OTHERWISE_RECORDED = {"needs_approval", "timeout_seconds", "approval_seconds"}
_AS_DECLARED = frozenset(
    {field.name for field in fields(Tool)} & ToolPolicy.model_fields.keys() - _OTHERWISE_RECORDED
)
"""Attributes that ToolPolicy has under the same name, with the same values."""


def _is_one_of(given: object, known: tuple[str, ...]) -> bool:
    return isinstance(given, str) and given in known


def _is_positive(given: object) -> bool:
    return isinstance(given, int | float) and given > 0
