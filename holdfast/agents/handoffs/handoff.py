"""Handoffs: one agent hands the task to another."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Generic

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from typing_extensions import TypeVar

from holdfast.agents.agent_base import AgentBase, name_for_models, users_agent
from holdfast.agents.tools.arguments import ToolArgumentsError
from holdfast.agents.tools.context import ToolContext
from holdfast.agents.tools.functions.schema import object_schema, strict_schema, without_titles
from holdfast.agents.tools.options import is_offered
from holdfast.agents.tools.tool import Tool
from holdfast.errors import (
    InvalidArgumentError,
    ModelBehaviorError,
    UserError,
    WrongTypeError,
    message_of,
    remedy_of,
)
from holdfast.models.base import ToolSpec
from holdfast.task.data.head import ToolEffect, ToolPolicy, transfer_message
from holdfast.values.base import Json
from holdfast.values.checks.gate import known_as
from holdfast.values.code.user_calls import invoke
from holdfast.values.runs.run_context import ContextT
from holdfast.values.text.logs import log
from holdfast.values.text.shown import shown

if TYPE_CHECKING:
    from holdfast.agents.handoffs.filters import HandoffInputData

    HandoffInputFilter = Callable[
        [HandoffInputData], HandoffInputData | Awaitable[HandoffInputData]
    ]
    """Edits what the next agent is shown: `handoff(input_filter=...)`."""
else:
    HandoffInputFilter = Callable[[Any], Any]
    """Edits what the next agent is shown: `handoff(input_filter=...)`."""

NO_INPUT: dict[str, Json] = {
    "type": "object",
    "properties": {},
    "required": [],
    "additionalProperties": False,
}


class UnfitInputError(ModelBehaviorError):
    """The model called a handoff with arguments that do not fit; `on_handoff` was not called."""


class Invocation:
    """What a handoff made by `handoff(...)` does: it calls `on_handoff`, and returns its agent."""

    def __init__(
        self, agent: Any, tool: str, on_handoff: Callable[..., Any] | None, input_type: Any
    ) -> None:
        """Take the agent, and the function with the type of its input.

        Raises:
            UserError: They contradict each other.
        """
        self.agent = agent
        self.on_handoff = on_handoff
        self._tool = tool
        _check_on_handoff(tool, on_handoff, input_type)
        self._adapter = _adapter(tool, input_type)

    async def __call__(self, ctx: Any, arguments: str | None = None) -> Any:
        """Call `on_handoff`.

        Raises:
            ModelBehaviorError: The arguments do not fit the input_type.
            Exception: An error of `on_handoff`.
        """
        try:
            said = self.read(arguments or "")
        except ValidationError as error:
            raise UnfitInputError(
                f"Invalid JSON: the model called handoff {self._tool!r} with arguments that do not"
                f" fit: {'; '.join(problems(error))}"
            ) from error
        if self.on_handoff is not None:
            await invoke(self.on_handoff, *((ctx,) if self._adapter is None else (ctx, said)))
        return self.agent

    def read(self, arguments: str) -> Any:
        """Return the input, strictly validated; None without an input_type."""
        if self._adapter is None:
            return None
        return self._adapter.validate_json(arguments, strict=True)

    def schema(self, input_type: Any) -> dict[str, Json]:
        """Return the JSON Schema of the arguments.

        Raises:
            UserError: The input_type has no schema that a model can be given.
        """
        if self._adapter is None:
            return dict(NO_INPUT)
        what = f"input_type of handoff {self._tool!r}"
        try:
            schema = strict_schema(object_schema(self._adapter.json_schema()), what=what)
        except (InvalidArgumentError, PydanticUserError) as cause:
            msg = f"The {what} cannot be told to a model: {message_of(cause)}"
            raise UserError(msg, remedy=remedy_of(cause)) from cause
        if schema.get("type") != "object":
            raise UserError(
                f"The {what} must be an object, as a pydantic model, a dataclass or a TypedDict is:"
                " models call with named arguments, and the root of a strict JSON schema is one"
                f" object. It was {shown(input_type)}."
            )
        return schema


def check_callable(given: object, what: str, of: str = "") -> None:
    """Refuse an object that cannot be called.

    Args:
        given: The object.
        what: What it serves as, such as "input_filter".
        of: What it belongs to, as "handoff 'transfer_to_ann'"; empty if `what` says that.

    Raises:
        WrongTypeError: It cannot be called.
    """
    if not callable(given):
        whose = f"that of {of}" if of else "it"
        raise WrongTypeError(f"{what} must be callable, sync or async; {whose} was {shown(given)}.")


def problems(error: ValidationError) -> tuple[str, ...]:
    """Describe what does not fit, a line for each place."""
    return tuple(
        f"{'.'.join(map(str, each['loc'])) or 'input'}: {each['msg']}" for each in error.errors()
    )


def _adapter(tool: str, input_type: Any) -> TypeAdapter[Any] | None:
    if input_type is None:
        return None
    try:
        return TypeAdapter(input_type)
    except PydanticUserError as cause:
        raise UserError(f"input_type={shown(input_type)} of handoff {tool!r}: {cause}") from cause


def _check_on_handoff(tool: str, function: Callable[..., Any] | None, kind: Any) -> None:
    """Check that `on_handoff` takes (ctx) or, with an input_type, (ctx, input)."""
    if function is None:
        if kind is None:
            return
        raise UserError(
            f"You must provide on_handoff when input_type is provided: handoff {tool!r} has none"
            " that would get the input. Pass on_handoff=function(ctx, input), or leave input_type"
            " out."
        )
    check_callable(function, "on_handoff", f"handoff {tool!r}")
    wanted = ("ctx",) if kind is None else ("ctx", "input")
    count = len(inspect.signature(function).parameters)
    if count != len(wanted):
        why = "there is no input_type" if kind is None else "there is an input_type"
        raise UserError(
            f"on_handoff of handoff {tool!r} must take ({', '.join(wanted)}), because {why}; it"
            f" takes {count} argument{'' if count == 1 else 's'}."
        )


AgentT = TypeVar("AgentT", bound=AgentBase[Any], default=Any)

LONGEST_NAME = 64


@dataclass(eq=False)
class Handoff(Generic[ContextT, AgentT]):
    """A handoff from one agent to another. Usually made by `handoff(...)`.

    Fields may be assigned to, for runs that begin afterwards.

    Attributes:
        tool_name: Name under which the model calls it.
        tool_description: Description for the model.
        input_json_schema: JSON Schema of the arguments of the model's call.
        on_invoke_handoff: Called with (ctx, arguments as JSON text) when the task is handed over;
            returns the agent.
        agent_name: Name of the agent that the task is handed to.
        input_filter: Chooses the conversation that the next agent sees.
        nest_handoff_history: Whether the earlier conversation becomes one message; None for the
            run's setting.
        strict_json_schema: Whether the provider enforces the schema.
        is_enabled: Whether it is offered, or a predicate (ctx, agent).
        target: The agent that the task is handed to. A run needs it, so that any worker process can
            go on; without it, a handoff made by hand can be called, but not run.

    Raises:
        UserError: The arguments contradict each other; the text says what to write instead.
    """

    tool_name: str
    tool_description: str
    input_json_schema: dict[str, Any]
    on_invoke_handoff: Callable[[Any, str], Awaitable[AgentT]] = field(repr=False)
    agent_name: str
    input_filter: HandoffInputFilter | None = None
    nest_handoff_history: bool | None = None
    strict_json_schema: bool = True
    is_enabled: bool | Callable[..., Any] = True
    _: KW_ONLY
    target: AgentT | None = field(default=None, repr=False)

    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None:
            """Set a field, checked.

            Raises:
                UserError: The field cannot hold the value.
            """
            _check_field(self, name, value)
            object.__setattr__(self, name, value)

    @property
    def agent(self) -> AgentT:
        """The agent that the task is handed to.

        Raises:
            UserError: The handoff was made by hand without a target.
        """
        if self.target is not None:
            return self.target
        raise UserError(
            f"Handoff {self.tool_name!r} names agent {self.agent_name!r}, but does not have it. A"
            " run needs the agent itself, so that any worker process can go on with it: make the"
            " handoff with handoff(agent, ...), or add target=agent."
        )

    @property
    def on_handoff(self) -> Callable[..., Any] | None:
        """The function that was given to `handoff(on_handoff=...)`, or None."""
        made: object = self.on_invoke_handoff
        return made.on_handoff if isinstance(made, Invocation) else None

    @property
    def code(self) -> Callable[..., Any] | None:
        """The user's code that a handing over calls, or None."""
        made: object = self.on_invoke_handoff
        return made.on_handoff if isinstance(made, Invocation) else self.on_invoke_handoff

    def spec(self) -> ToolSpec:
        """Describe the handoff for a model, as a tool."""
        return ToolSpec(
            name=self.tool_name,
            description=self.tool_description,
            parameters=without_titles(self.input_json_schema),
            strict=self.strict_json_schema,
        )

    def policy(self) -> ToolPolicy:
        """Describe as data how a task hands over; only the user's code has an effect."""
        effect: ToolEffect = "read" if self.code is None else "irreversible"
        name, known_as = self.agent.name, users_agent(self.agent).name
        return ToolPolicy(
            effect=effect,
            handoff=name,
            handoff_name="" if known_as == name else known_as,
            is_conditional=callable(self.is_enabled),
        )

    def tool(self) -> HandoffTool:
        """Return the tool that a task runs to hand over."""
        return HandoffTool(
            name=self.tool_name,
            description=self.tool_description,
            params_json_schema=self.input_json_schema,
            strict_json_schema=False,  # it is made for each call; `spec` describes the handoff
            handoff=self,
        )

    def read_input(self, arguments: str) -> Any:
        """Return the input for `on_handoff`, strictly validated; None without an input_type.

        Raises:
            pydantic.ValidationError: The arguments do not fit the input_type.
        """
        made: object = self.on_invoke_handoff
        return made.read(arguments) if isinstance(made, Invocation) else None

    def get_transfer_message(self, agent: AgentBase[Any]) -> str:
        """Return the result of the model's call, which names the agent."""
        return transfer_message(agent.name)

    @classmethod
    def default_tool_name(cls, agent: AgentBase[Any]) -> str:
        """Return the default name of a handoff to an agent."""
        return default_tool_name(agent.name)

    @classmethod
    def default_tool_description(cls, agent: AgentBase[Any]) -> str:
        """Return the default description of a handoff to an agent, for the model."""
        about = agent.handoff_description or ""
        return f"Handoff to the {agent.name} agent to handle the request. {about}"


class HandoffFailedError(Exception):
    """The task is not handed over.

    Attributes:
        kind: Class name of the error that stopped the handoff.
        remedy: What to do about that error, or empty.
        is_of_model: Whether the model made a mistake, which ends the run. After any error of the
            user's code, the task waits until the code is mended.
    """

    def __init__(
        self, message: str, *, kind: str, remedy: str = "", is_of_model: bool = False
    ) -> None:
        """Take the text, and the facts of the error."""
        self.kind = kind
        self.remedy = remedy
        self.is_of_model = is_of_model
        super().__init__(message)


@dataclass(eq=False, repr=False)
class HandoffTool(Tool):
    """A handoff as a tool, which a task runs to call its `on_handoff`."""

    _: KW_ONLY
    handoff: Handoff

    def policy(self) -> ToolPolicy:
        """Return the handoff's policy."""
        return self.handoff.policy()

    def parse(self, arguments: str) -> dict[str, Any]:
        """Check arguments that a reviewer has edited; the result is empty, as it is not used.

        Raises:
            ToolArgumentsError: The arguments do not fit.
        """
        try:
            self.handoff.read_input(arguments)
        except ValidationError as error:
            raise ToolArgumentsError(self.name, problems(error), arguments) from error
        return {}

    async def run(self, ctx: ToolContext, arguments: str) -> Any:
        """Call `on_handoff`, and return the message of the handoff as the call's result.

        Raises:
            HandoffFailedError: The arguments do not fit, or `on_handoff` raised. A function of a
                handoff made by hand says by a ModelBehaviorError that they do not fit.
        """
        made: object = self.handoff.on_invoke_handoff
        mistake = UnfitInputError if isinstance(made, Invocation) else ModelBehaviorError
        try:
            to = await self.handoff.on_invoke_handoff(ctx, arguments)
        except Exception as error:
            kind, why = type(error).__name__, message_of(error)
            if isinstance(error, mistake):
                kind = ModelBehaviorError.__name__
                raise HandoffFailedError(why, kind=kind, is_of_model=True) from error
            text = f"on_handoff of handoff {self.name!r} raised {kind}: {why}"
            raise HandoffFailedError(text, kind=kind, remedy=remedy_of(error)) from error
        target = self.handoff.agent
        wanted = users_agent(target)
        # Where names are shared, only the object itself says which agent is meant.
        is_wanted = to is wanted or (wanted is target and getattr(to, "name", None) == wanted.name)
        if not is_wanted:
            text = (
                f"on_invoke_handoff of handoff {self.name!r} returned {shown(to)}; it must return"
                f" agent {target.name!r}, which the task knows."
            )
            raise HandoffFailedError(text, kind="UserError")
        return transfer_message(wanted.name)


@known_as("handoff")
def handoff(  # noqa: PLR0917  the Agents SDK's signature
    agent: AgentT,
    tool_name_override: str | None = None,
    tool_description_override: str | None = None,
    on_handoff: Callable[..., Any] | None = None,
    input_type: Any = None,
    input_filter: HandoffInputFilter | None = None,
    nest_handoff_history: bool | None = None,  # noqa: FBT001
    is_enabled: bool | Callable[..., Any] = True,  # noqa: FBT001, FBT002
) -> Handoff[Any, AgentT]:
    """Make a handoff to an agent. An agent in `Agent(handoffs=[...])` becomes one with defaults.

    Args:
        agent: The agent that the task is handed to.
        tool_name_override: Name under which the model calls it; `transfer_to_<agent>` by default.
        tool_description_override: Description for the model.
        on_handoff: Called with (ctx) or, with an input_type, (ctx, input), when the task is handed
            over; sync or async. `ctx` is a ToolContext. It runs as a recorded call, which is never
            repeated without a decision when it may have happened; if it raises, the task is not
            handed over and waits.
        input_type: Type of the arguments of the model's call: an object that pydantic can validate.
            They are for `on_handoff`; the next agent reads the conversation.
        input_filter: Takes a HandoffInputData and returns the one that the next agent sees; sync or
            async.
        nest_handoff_history: Whether the earlier conversation becomes one message; None for the
            run's setting. An input filter takes precedence.
        is_enabled: Whether it is offered to the model, or a predicate (ctx, agent), called in every
            turn; sync or async.

    Raises:
        UserError: The arguments contradict each other; the text says what to write instead.
    """
    _check_target(agent)
    name = tool_name_override or Handoff.default_tool_name(agent)
    made = Invocation(agent, name, on_handoff, input_type)
    return Handoff(
        tool_name=name,
        tool_description=tool_description_override or Handoff.default_tool_description(agent),
        input_json_schema=made.schema(input_type),
        on_invoke_handoff=made,
        agent_name=agent.name,
        input_filter=input_filter,
        nest_handoff_history=nest_handoff_history,
        is_enabled=_predicate(is_enabled) if callable(is_enabled) else is_enabled,
        target=agent,
    )


def _predicate(given: Callable[..., Any]) -> Callable[..., Any]:
    """Return a predicate that is awaited, and takes (ctx, agent), whatever the given one takes."""

    @functools.wraps(given)
    async def is_enabled(ctx: Any, agent: Any) -> bool:
        return await is_offered(given, ctx, agent)

    return is_enabled


@functools.lru_cache(maxsize=1000)
def default_tool_name(name: str) -> str:
    """Return the default name of a handoff to an agent of this name."""
    made = f"transfer_to_{name_for_models(name)}"
    if re.search(r"[^a-zA-Z0-9_\s]", name):
        log.warning(
            "The name of agent %r contains invalid characters for function calling: the handoff to"
            " it is called %r. tool_name_override= names it otherwise.",
            name,
            made,
        )
    return made


def _check_target(agent: Any) -> None:
    if not isinstance(agent, AgentBase):
        raise UserError(
            f"A handoff goes to an Agent; it was given {shown(agent)}. Pass the agent itself, or"
            " handoff(agent, ...)."
        )


def _check_field(made: Handoff, name: str, value: object) -> None:
    """Refuse a value that a field of a handoff cannot hold."""
    tool = vars(made).get("tool_name", value)
    wanted = _TYPES.get(name, object)
    if name == "tool_name":
        _check_tool_name(value)
    elif name == "target":
        if value is not None:
            _check_target(value)
    elif not isinstance(value, wanted):
        if name in _FUNCTIONS:
            check_callable(value, name, f"handoff {tool!r}")
            return
        msg = f"{name} of handoff {tool!r} must be a {wanted.__name__}; it was {shown(value)}."
        raise WrongTypeError(msg)


_TYPES: dict[str, type[Any]] = {
    "tool_description": str,
    "agent_name": str,
    "input_json_schema": dict,
    "on_invoke_handoff": Invocation,
    "input_filter": type(None),
    "is_enabled": bool,
}
_FUNCTIONS = frozenset({"on_invoke_handoff", "input_filter", "is_enabled"})
"""Fields that may hold a function as well."""


def _check_tool_name(name: Any) -> None:
    if isinstance(name, str) and re.fullmatch(rf"[a-zA-Z0-9_-]{{1,{LONGEST_NAME}}}", name):
        return
    raise UserError(
        f"A handoff is named {shown(name)}, but models take names of 1 to {LONGEST_NAME} letters,"
        " digits, '_' and '-'. Name it with handoff(agent, tool_name_override=...)."
    )
