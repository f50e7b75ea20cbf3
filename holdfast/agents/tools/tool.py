"""Tool: a function that a model may call, with its effect, its undo and its policies.

Its declaration is checked.
"""

from __future__ import annotations

import copy
import inspect
import math
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import cached_property
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    ParamSpec,
    Self,
    TypeVar,
    cast,
    get_args,
)

import typing_extensions as ext
from pydantic import Field, ValidationError

from holdfast.agents.guardrails import check_guardrails
from holdfast.agents.tools.arguments import (
    Invoker,
    ToolArgumentsError,
    data_as_given,
    explain,
    object_of,
    object_text,
)
from holdfast.agents.tools.context import Effect, ToolContext
from holdfast.agents.tools.functions.function_schema import FuncSchema
from holdfast.agents.tools.functions.schema import closed_schema, sent_schema, without_titles
from holdfast.agents.tools.guardrails import ToolInputGuardrail, ToolOutputGuardrail
from holdfast.agents.tools.options import (
    ApprovalPredicate,
    EffectHook,
    EnabledPredicate,
    FailureFormatter,
    ToolOptions,
    check_hook,
    check_name,
    invoke_predicate,
    is_offered,
    read_options,
    refuse_option,
    run_hook,
)
from holdfast.errors import DeclarationError, ToolTimeoutError, UserError, WrongTypeError
from holdfast.models.base import ToolSpec
from holdfast.task.data.head import (
    DEFAULT_MAX_OUTPUT_BYTES,
    TimeoutBehavior,
    ToolEffect,
    ToolPolicy,
)
from holdfast.values.base import Json
from holdfast.values.checks.gate import Seconds, check_fields, defaulted, known_as
from holdfast.values.code.user_calls import invoke
from holdfast.values.messages import CallKind, qualified_name
from holdfast.values.runs.approval_rules import ApprovalRule
from holdfast.values.text.shown import shown
from holdfast.values.tool_result import ToolResultError

MOST_INLINE_SECONDS = 30.0
"""The activity of a step has a minute next to the time of its model call."""

_CALLERS = ("direct", "programmatic")


def refuse_to_offer(tool: Any) -> None:
    """Refuse to offer a model a tool that only a hosted tool of the provider makes usable.

    Raises:
        UserError: It wants to be called by programs.
    """
    if "programmatic" in (tool.allowed_callers or ()):
        raise UserError(
            f"Tool {tool.name!r} allows calls by programs that the provider runs; Holdfast has no"
            " ProgrammaticToolCallingTool.",
            remedy="Leave allowed_callers out: then the model calls the tool.",
        )


def check_tool(tool: Any) -> None:
    """Refuse a tool whose attributes contradict each other, or are out of range.

    Args:
        tool: The Tool; its module is above this one.

    Raises:
        DeclarationError: One of them is; the text says which and why.
        WrongTypeError: One is of a wrong type.
    """
    check_name(tool.name)
    owner = f"tool {tool.name!r}"
    checks, results = tool.tool_input_guardrails, tool.tool_output_guardrails
    check_guardrails(owner, "tool_input_guardrails", checks, ToolInputGuardrail)
    check_guardrails(owner, "tool_output_guardrails", results, ToolOutputGuardrail)
    for option in ("custom_data_extractor", "output_json_schema"):
        refuse_option(tool.name, option, getattr(tool, option))
    _check_timeout(tool)
    check_fields(Tool, tool, _FIELDS, f"Tool {tool.name!r}")
    _check_namespace(tool)
    if problem := _effect_problem(tool) or _other(tool):
        raise DeclarationError(f"Tool {tool.name!r}: {problem}.")
    for hook, what in ((tool.undo, "undo"), (tool.probe, "probe")):
        if hook is not None:
            check_hook(hook, f"{what}= of tool {tool.name!r}", ("ctx", "effect"))


class Sent(ext.NamedTuple):
    """The parameters of a tool, as others see them.

    Attributes:
        parameters: The schema that a model is sent.
        is_strict: Whether its API may enforce that.
        defaults: What an approval shows of arguments that a call leaves out.
    """

    parameters: dict[str, Json]
    is_strict: bool
    defaults: dict[str, Json]


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
        raise DeclarationError(
            f"{shown(tool.namespace)} cannot be the namespace of tool {tool.name!r}: it must have 1"
            " to 64 characters of a-z, A-Z, 0-9, '_', '-' and '.'."
        )
    if tool.namespace == tool.name:
        raise DeclarationError(
            f"Responses tool-search reserves the synthetic namespace `{tool.name}.{tool.name}` for"
            " deferred tools outside of namespaces. Rename the namespace or the tool."
        )


_NAMESPACE = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


def _check_timeout(tool: Any) -> None:
    seconds, handle = tool.timeout_seconds, tool.timeout_error_function
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    problem = ""
    if tool.timeout_behavior not in get_args(TimeoutBehavior):
        known = ", ".join(map(repr, get_args(TimeoutBehavior)))
        problem = f"timeout_behavior must be one of {known}; it is {shown(tool.timeout_behavior)}"
    elif is_number and not (math.isfinite(seconds) and seconds > 0):
        wanted = "greater than 0" if math.isfinite(seconds) else "a finite number"
        problem = f"timeout_seconds={shown(seconds)} must be {wanted}; None sets no limit"
    if problem:
        raise DeclarationError(f"Tool {tool.name!r}: {problem}.")
    fits = (
        ("timeout_error_function", handle is None or callable(handle), "callable (ctx, error)"),
        ("timeout_seconds", seconds is None or is_number, "a positive number of seconds"),
    )
    for name, is_fit, wanted in fits:
        if not is_fit:
            msg = f"Tool {tool.name!r}: {name} must be {wanted}, or None; it is"
            raise WrongTypeError(f"{msg} {shown(getattr(tool, name))}.")


def _effect_problem(tool: Any) -> str:
    if tool.effect == "reversible" and tool.undo is None:
        return "effect='reversible' needs undo=, the function that takes a call back"
    if tool.effect == "read" and tool.undo is not None:
        return "effect='read' changes nothing, so undo= has nothing to do; leave one of them out"
    needless = [n for n in ("undo_idempotent", "undo_needs_approval") if getattr(tool, n)]
    if needless and tool.undo is None:
        return f"{needless[0]}=True says how undo= is called, and there is none; leave it out"
    return ""


def _other(tool: Any) -> str:
    rule = tool.needs_approval
    expires = isinstance(rule, ApprovalRule) and bool(rule.expires_seconds)
    if expires and tool.approval_seconds is not None:
        return "approval_seconds= and expires_seconds= of its rule say the same; give one"
    if tool.retry_on and tool.max_attempts == 1:
        return "retry_on= repeats nothing without max_attempts= of 2 or more"
    callers: object = tool.allowed_callers
    if callers is not None and not _are_callers(callers):
        return f"allowed_callers={shown(callers)} is not a list of 'direct' and 'programmatic'"
    return ""


def _are_callers(given: object) -> bool:
    if not isinstance(given, list) or not given:
        return False
    several = cast("list[object]", given)
    return len(set(map(str, several))) == len(several) and all(each in _CALLERS for each in several)


P = ext.ParamSpec("P", default=...)
R = ext.TypeVar("R", default=Any)
P0 = ParamSpec("P0")
R0 = TypeVar("R0")

_BY_UNDO: Any = None  # no effect given: __post_init__ derives it from `undo`
_BY_CLASS: Any = None  # no on_invoke_tool given: the class has a `run` of its own


@known_as("Tool")
@dataclass(eq=False, repr=False)
class Tool(Generic[P, R]):
    """A tool that a model may call; `FunctionTool` is another name of it.

    `@tool` and `@function_tool` make one of a function: calling the object calls that function. One
    made by hand has `on_invoke_tool` and does with the arguments as it likes. Attributes may be
    assigned, which later runs see; they are checked then as well.

    Attributes:
        kind: Type of its calls, if these are no function calls: see ToolCall.
        name: 1 to 64 letters, digits, `_` and `-`.
        description: Description for the model.
        params_json_schema: JSON Schema of the arguments object.
        on_invoke_tool: Called as `(ctx, arguments)` with JSON text; returns the result. That of a
            tool made of a function validates the arguments, and returns the text for the model if
            they do not fit or the function raises: see failure_error_function. In a task it is
            called only if it was made by hand or replaced.
        strict_json_schema: Whether the schema is closed and all of it required, so that the API may
            enforce it. Where OpenAI's strict rules cannot express it, it is sent without that.
        is_enabled: Whether it is offered to the model, or a predicate (ctx, agent).
        tool_input_guardrails: Checks of a call before it is run, in order.
        tool_output_guardrails: Checks of its result, in order.
        needs_approval: Whether calls need an approval, or a predicate (ctx, arguments), or
            (arguments), or (ctx, arguments, call_id), that decides it per call, or an ApprovalRule
            that says who must approve each call.
        timeout_seconds: Longest time of one attempt, or None. A call cut off by it may have
            happened: it is *unknown*, unless the tool is `effect="read"` or `idempotent`.
        timeout_behavior: Whether a timeout of a call without a possible effect becomes a result for
            the model, or raises ToolTimeoutError.
        timeout_error_function: Called as `(ctx, error)` for that result.
        defer_loading: Whether the model sees it only once the provider's tool search has loaded it:
            see `ToolSearchTool`. Responses API only.
        allowed_callers: ["direct"] or None; an agent with "programmatic" is refused when it is run.
        failure_error_function: Called as `(ctx, error)` for the model's text when a call fails;
            "default" is the text of the API in use, None raises.
        effect: "read", "reversible" or "irreversible"; by default "reversible" with `undo`, else
            "irreversible".
        idempotent: Whether two calls with the same idempotency key act once.
        undo: Called as `undo(ctx, effect)` or `undo(effect)` to undo a call that has happened.
        probe: Called like `undo` when it is unknown whether a call has happened; returns its
            result, or None when it has not happened.
        max_attempts: Most attempts when it raises an error of `retry_on`.
        retry_on: Errors after which to try again; empty means every Exception.
        return_direct: Whether the result is the answer of the task.
        max_output_bytes: Longest result, in UTF-8 bytes.
        inline: Whether calls may run in the activity that made the model call, at half the price of
            one of their own. Only those of a tool with `effect="read"` that need no approval do.
        inline_seconds: How long such a call may hold up its step, at most 30; then it goes on
            alone.
        approval_seconds: Seconds after which an approval expires to rejected, or None for never.
        undo_needs_approval: Whether undoing a call needs an approval.
        undo_idempotent: Whether undoing a call twice acts once: an `undo` that was cut off, or that
            raised a transient error, is then called again.
        custom_data_extractor: Not served; None.
        output_json_schema: Not served; None.
        namespace: Namespace that `tool_namespace` has put it into; empty for none.
        namespace_description: What that namespace is for.

    Raises:
        DeclarationError: The attributes contradict each other, or one is out of range.
        WrongTypeError: One is of a wrong type.
    """

    kind: ClassVar[CallKind] = ""
    name: str
    description: str = ""
    params_json_schema: dict[str, Json] = field(default_factory=dict[str, Json])
    on_invoke_tool: Callable[[ToolContext[Any, Any], str], Awaitable[Any]] = _BY_CLASS
    strict_json_schema: bool = True
    is_enabled: bool | EnabledPredicate = True
    tool_input_guardrails: Sequence[ToolInputGuardrail] = ()
    tool_output_guardrails: Sequence[ToolOutputGuardrail] = ()
    needs_approval: bool | ApprovalPredicate | ApprovalRule = False
    timeout_seconds: float | None = None
    timeout_behavior: TimeoutBehavior = "error_as_result"
    timeout_error_function: FailureFormatter | None = None
    defer_loading: bool = False
    _: KW_ONLY
    allowed_callers: list[Literal["direct", "programmatic"]] | None = None
    failure_error_function: FailureFormatter | Literal["default"] | None = "default"
    effect: ToolEffect = _BY_UNDO
    idempotent: bool = False
    undo: EffectHook | None = None
    probe: EffectHook | None = None
    max_attempts: Annotated[int, Field(ge=1)] = 1
    retry_on: tuple[type[Exception], ...] = ()
    return_direct: bool = False
    max_output_bytes: Annotated[int, Field(ge=1)] = DEFAULT_MAX_OUTPUT_BYTES
    inline: bool = True
    inline_seconds: Annotated[float, Field(gt=0, le=MOST_INLINE_SECONDS)] = 2.0
    approval_seconds: Seconds | None = None
    undo_needs_approval: bool = False
    undo_idempotent: bool = False
    custom_data_extractor: None = None
    output_json_schema: None = None
    namespace: str = ""
    namespace_description: str = ""

    def __post_init__(self) -> None:
        """Derive what was not given, and check the attributes."""
        if self.effect is _BY_UNDO:
            self.__dict__["effect"] = "reversible" if self.undo else "irreversible"
        for name in ("tool_input_guardrails", "tool_output_guardrails"):
            self.__dict__[name] = () if getattr(self, name) is None else getattr(self, name)
        given: Any = self.on_invoke_tool
        if given is _BY_CLASS and type(self).run is not Tool.run:
            given = Invoker()
        self.__dict__["on_invoke_tool"] = given.of(self) if isinstance(given, Invoker) else given
        function = self._made.function if self._made is not None else None
        if inspect.isroutine(function):
            self.__dict__["__doc__"] = function.__doc__
        check_tool(self)
        if self.strict_json_schema:
            closed = closed_schema(self.params_json_schema, what=f"tool {self.name!r}")
            self.__dict__["params_json_schema"] = closed
        self.__dict__["_is_checked"] = True
        self.__dict__.pop("sent", None)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute, if the tool is still one that can work.

        Raises:
            DeclarationError: It is not; nothing was changed.
            AttributeError: It is `__wrapped__`, which is the function.
        """
        if name == "__wrapped__":
            msg = "__wrapped__ of a tool is the function that it was made of; make another tool."
            raise AttributeError(msg)
        if name in _FIELDS and "_is_checked" in self.__dict__:
            trial = self._copied(self.__dict__ | {name: value})
            value = trial.__dict__[name]
        self.__dict__[name] = value.of(self) if isinstance(value, Invoker) else value
        self.__dict__.pop("sent", None)

    def __getattr__(self, name: str) -> Any:
        """Return the function as `__wrapped__`, for inspect.signature and help().

        Raises:
            AttributeError: There is no such attribute, or the tool was not made of a function.
        """
        if name == "__wrapped__" and self._made is not None:
            return self._made.function
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __copy__(self) -> Self:
        """Copy the tool; an `on_invoke_tool` of its own is that of the copy."""
        return self._copied(self.__dict__)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy the tool with its data; functions are not copied."""
        made = memo[id(self)] = object.__new__(type(self))
        return self._copied(copy.deepcopy(self.__dict__, memo), made)

    def _copied(self, values: dict[str, Any], made: Self | None = None) -> Self:
        made = object.__new__(type(self)) if made is None else made
        made.__dict__.update(values)
        own = values.get("on_invoke_tool")
        if inspect.ismethod(own) and own.__self__ is self:
            made.__dict__["on_invoke_tool"] = own.__func__.__get__(made, type(made))
        Tool.__post_init__(made)
        return made

    @staticmethod
    def from_function(
        function: Callable[P0, R0], /, **options: ext.Unpack[ToolOptions]
    ) -> Tool[P0, R0]:
        """Make a tool of a function, described by its signature and docstring.

        Raises:
            DeclarationError: Its signature cannot be described to a model; the text says why.
        """
        signature, given = read_options(function, options)
        return Tool(
            name=signature.name,
            description=signature.description or "",
            params_json_schema=signature.params_json_schema,
            on_invoke_tool=Invoker(function, signature),
            strict_json_schema=signature.strict_json_schema,
            **given,
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, as a unit test does.

        Raises:
            UserError: The tool was not made of a function.
        """
        return self.function(*args, **kwargs)

    @property
    def _made(self) -> Invoker | None:
        given: object = self.__dict__.get("on_invoke_tool")
        return given if isinstance(given, Invoker) and given.function is not None else None

    @property
    def function(self) -> Callable[P, R]:
        """The function that the tool was made of.

        Raises:
            UserError: It was made by hand.
        """
        if self._made is None or self._made.function is None:
            msg = f"Tool {self.name!r} was not made of a function: call its on_invoke_tool."
            raise UserError(msg)
        return self._made.function

    @property
    def signature(self) -> FuncSchema | None:
        """Converts arguments to parameters; None for a tool that was made by hand."""
        return self._made.signature if self._made is not None else None

    @property
    def qualified_name(self) -> str:
        """The name by which a task knows it: "crm.lookup" for tool lookup in namespace crm."""
        return qualified_name(self.name, self.namespace) if self.namespace else self.name

    @property
    def mcp_annotations(self) -> Any:
        """What an MCP server says of the tool's effect; None for other tools."""
        return None

    def __repr__(self) -> str:
        """Show the tool's name and effect."""
        return f"<Tool {self.qualified_name!r} effect={self.effect!r}>"

    @property
    def takes_context(self) -> bool:
        """Whether the function takes the ToolContext."""
        return self.signature is None or self.signature.takes_context

    @cached_property
    def sent(self) -> Sent:
        """The parameters, as a model and the people who approve see them.

        It is made again after an attribute of the tool was set.
        """
        schema = self.params_json_schema
        # pydantic's titles cost tokens and say nothing new.
        told = schema if self._made is None else without_titles(schema)
        return Sent(*sent_schema(told, strict=self.strict_json_schema), defaulted(schema))

    def spec(self) -> ToolSpec:
        """Describe the tool for a model.

        Raises:
            UserError: Only a hosted tool of the provider would make it usable.
        """
        refuse_to_offer(self)
        return ToolSpec(
            name=self.qualified_name,
            description=self.description,
            parameters=self.sent.parameters,
            strict=self.sent.is_strict,
            namespace=self.namespace,
            namespace_description=self.namespace_description,
            deferred=self.defer_loading,
        )

    def policy(self) -> ToolPolicy:
        """Describe as data how a task runs the tool."""
        asks, signature = self.needs_approval, self.signature
        rule = asks if isinstance(asks, ApprovalRule) else None
        made = None
        if signature is not None and signature.makes_defaults:
            made = signature.with_made_defaults()
        return ToolPolicy(
            **{name: getattr(self, name) for name in _AS_DECLARED},
            needs_approval="ask" if callable(asks) else "yes" if asks else "no",
            has_undo=self.undo is not None,
            has_probe=self.probe is not None,
            timeout_seconds=self.timeout_seconds or 0,
            approval_seconds=(rule and rule.expires_seconds) or self.approval_seconds or 0,
            approval=rule,
            is_conditional=callable(self.is_enabled),
            guarded=bool(self.tool_input_guardrails),
            defaults=self.sent.defaults if made is None else defaulted(made),
        )

    def parse(self, arguments: str) -> dict[str, Any]:
        """Return the validated arguments by parameter, without the ones that the model omitted.

        Raises:
            ToolArgumentsError: The arguments do not fit; its text is meant for the model.
        """
        signature = self.signature
        if signature is None:
            return object_of(self.name, arguments)
        try:
            values = signature.values(object_text(signature, arguments))
        except ValidationError as error:
            problems = explain(error, signature.argument_names)
            raise ToolArgumentsError(self.name, problems, arguments) from error
        if twice := signature.named_twice(values):
            raise ToolArgumentsError(self.name, (twice,), arguments)
        return values

    async def run(self, ctx: ToolContext, arguments: str) -> Any:
        """Validate the arguments, run the function, and return its value unchanged.

        Raises:
            ToolArgumentsError: The arguments do not fit; the function was not called.
            Exception: An error that the function raised.
        """
        made = self._made
        if made is None or made.signature is None or made.function is None:
            return await invoke(self.on_invoke_tool, ctx, arguments)
        values = self.parse(arguments)
        if made.signature.context is not None:
            values[made.signature.context] = ctx
        positional, named = made.signature.bind(values)
        return await invoke(made.function, *positional, **named)

    async def run_made(self, ctx: ToolContext, arguments: str) -> Any:
        """Run the tool as it was made, whatever was assigned to `on_invoke_tool` since."""
        return await self.run(ctx, arguments)

    def is_worth_repeating(self, error: BaseException) -> bool:
        """Whether the tool allows another attempt after this error.

        A call that was cut off by its timeout may have happened, so it is repeated only if the tool
        is `effect="read"` or `idempotent`. One whose result cannot be used has happened.
        """
        if self.max_attempts == 1 or isinstance(error, ToolArgumentsError | ToolResultError):
            return False
        if isinstance(error, ToolTimeoutError) and self.policy().may_have_happened:
            return False
        return isinstance(error, self.retry_on or Exception)

    async def run_undo(self, ctx: ToolContext | None, effect: Effect) -> Any:
        """Undo a call that has happened; an `undo=` that takes no context needs none.

        Raises:
            InvalidArgumentError: The tool has no `undo=`.
            Exception: An error that the undo raised.
        """
        return await run_hook(self.undo, "undo", self.name, ctx, effect)

    async def run_probe(self, ctx: ToolContext, effect: Effect) -> Any:
        """Find out whether a call has happened: return its result, or None if it has not.

        Raises:
            InvalidArgumentError: The tool has no `probe=`.
            UserError: The probe returned True or False, which is not a result.
            Exception: An error that it raised.
        """
        found = await run_hook(self.probe, "probe", self.name, ctx, effect)
        if isinstance(found, bool):
            raise UserError(
                f"The probe of tool {self.name!r} returned {found}; it must return the call's"
                " result, or None if the call has not happened."
            )
        return found

    async def asks_approval(self, ctx: ToolContext, arguments: str) -> bool | ApprovalRule:
        """Whether this call needs an approval. A predicate gets the decoded JSON arguments.

        With a predicate, arguments that do not fit always need one: a reviewer may correct them. So
        do arguments that the function gets in another form: the predicate then sees that form, and
        only decides by which rule.

        Returns:
            The predicate's rule, if it returned one.

        Raises:
            UserError: The predicate returned something else.
            Exception: An error that it raised.
        """
        asks = self.needs_approval
        if isinstance(asks, bool | ApprovalRule):
            return bool(asks)
        data, is_as_written = data_as_given(self, arguments)
        if data is None:
            return True
        said = await invoke_predicate(asks, ctx, data, ctx.call_id)
        return said or not is_as_written

    async def is_offered(self, ctx: Any, agent: Any) -> bool:
        """Whether the tool is offered to the model.

        Raises:
            Exception: An error that the predicate raised.
        """
        return await is_offered(self.is_enabled, ctx, agent)


_FIELDS = tuple(field.name for field in fields(Tool))

FunctionTool = Tool
"""The name of a tool in the Agents SDK."""
