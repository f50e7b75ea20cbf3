"""Handoffs: one agent hands the task to another."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, cast

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from typing_extensions import TypeVar

from holdfast.agents.agent_base import AgentBase
from holdfast.agents.tools.arguments import ToolArgumentsError
from holdfast.agents.tools.context import ToolContext
from holdfast.agents.tools.schema import object_schema, strict_schema, without_titles
from holdfast.agents.tools.tool import Tool
from holdfast.errors import InvalidArgumentError, UserError, message_of, remedy_of
from holdfast.models.base import ToolSpec
from holdfast.task.data.agent_snapshot import ToolEffect, ToolPolicy
from holdfast.task.handoff_calls import transfer_message
from holdfast.values.base import Json
from holdfast.values.code.user_calls import invoke
from holdfast.values.run_context import ContextT
from holdfast.values.text.shown import shown

if TYPE_CHECKING:
    from holdfast.agents.handoff_filters import HandoffInputData

    HandoffInputFilter = Callable[
        [HandoffInputData], HandoffInputData | Awaitable[HandoffInputData]
    ]
else:
    HandoffInputFilter = Callable[[Any], Any]

AgentT = TypeVar("AgentT", bound=AgentBase[Any], default=Any)

LONGEST_NAME = 64

NO_INPUT: dict[str, Json] = {
    "type": "object",
    "properties": {},
    "required": [],
    "additionalProperties": False,
}


@dataclass(frozen=True, kw_only=True)
class Handoff(Generic[ContextT, AgentT]):
    """A handoff from one agent to another. Made by `handoff(...)`.

    Attributes:
        agent: The agent that the task is handed to.
        tool_name: Name under which the model calls it.
        tool_description: Description for the model.
        on_handoff: Called when the task is handed over: (ctx), or (ctx, input) with an input_type.
        input_type: Type of the arguments of the model's call, or None.
        input_filter: Chooses the conversation that the next agent sees.
        nest_handoff_history: Whether the earlier conversation becomes one message; None for the
            run's setting.
        is_enabled: Whether it is offered, or a predicate (ctx, agent).

    Raises:
        UserError: The arguments contradict each other; the text says what to write instead.
    """

    agent: AgentT
    tool_name: str
    tool_description: str
    on_handoff: Callable[..., Any] | None = None
    input_type: Any = None
    input_filter: HandoffInputFilter | None = None
    nest_handoff_history: bool | None = None
    is_enabled: bool | Callable[..., Any] = True

    def __post_init__(self) -> None:
        """Check the fields."""
        _check_target(self.agent)
        _check_tool_name(self.tool_name, self.agent.name)
        _check_on_handoff(self)
        if self.input_filter is not None:
            check_callable(self.input_filter, f"input_filter of handoff {self.tool_name!r}")
        if not isinstance(cast("Any", self.is_enabled), bool):
            check_callable(self.is_enabled, f"is_enabled of handoff {self.tool_name!r}")
        _ = self.input_json_schema  # raises for an input_type without a JSON Schema

    @property
    def agent_name(self) -> str:
        """Name of the agent that the task is handed to."""
        return self.agent.name

    @cached_property
    def input_json_schema(self) -> dict[str, Json]:
        """JSON Schema of the arguments of the model's call."""
        if self._adapter is None:
            return NO_INPUT
        what = f"input_type of handoff {self.tool_name!r}"
        try:
            schema = object_schema(without_titles(self._adapter.json_schema()))
            schema = strict_schema(schema, what=what)
        except (InvalidArgumentError, PydanticUserError) as cause:
            msg = f"The {what} cannot be told to a model: {message_of(cause)}"
            raise UserError(msg, remedy=remedy_of(cause)) from cause
        if schema.get("type") != "object":
            msg = (
                f"The {what} must be an object, as a pydantic model, a dataclass or a TypedDict is:"
                f" models call with named arguments. It was {shown(self.input_type)}."
            )
            raise UserError(msg)
        return schema

    @cached_property
    def _adapter(self) -> TypeAdapter[Any] | None:
        if self.input_type is None:
            return None
        try:
            return TypeAdapter(self.input_type)
        except PydanticUserError as cause:
            msg = f"input_type={shown(self.input_type)} of handoff {self.tool_name!r}: {cause}"
            raise UserError(msg) from cause

    def spec(self) -> ToolSpec:
        """Describe the handoff for a model, as a tool."""
        return ToolSpec(
            name=self.tool_name,
            description=self.tool_description,
            parameters=self.input_json_schema,
            strict=True,
        )

    def policy(self) -> ToolPolicy:
        """Describe as data how a task hands over; only an `on_handoff` function has an effect."""
        effect: ToolEffect = "read" if self.on_handoff is None else "irreversible"
        return ToolPolicy(
            effect=effect, handoff=self.agent.name, is_conditional=callable(self.is_enabled)
        )

    def tool(self) -> HandoffTool:
        """Return the tool that a task runs to hand over."""
        return HandoffTool(
            name=self.tool_name,
            description=self.tool_description,
            parameters=self.input_json_schema,
            function=self.on_handoff or _do_nothing,
            handoff=self,
        )

    def read_input(self, arguments: str) -> Any:
        """Return the input for `on_handoff`, strictly validated; None without an input_type.

        Raises:
            pydantic.ValidationError: The arguments do not fit the input_type.
        """
        if self._adapter is None:
            return None
        return self._adapter.validate_json(arguments, strict=True)

    @classmethod
    def default_tool_name(cls, agent: AgentBase) -> str:
        """Return the default name of a handoff to an agent."""
        return default_tool_name(agent.name)

    @classmethod
    def default_tool_description(cls, agent: AgentBase) -> str:
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


@dataclass(frozen=True, eq=False, repr=False)
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
            raise ToolArgumentsError(self.name, _problems(error), arguments) from error
        return {}

    async def run(self, ctx: ToolContext, arguments: str) -> Any:
        """Call `on_handoff`, and return the message of the handoff as the call's result.

        Raises:
            HandoffFailedError: The arguments do not fit, or `on_handoff` raised.
        """
        function = self.handoff.on_handoff
        try:
            said = self.handoff.read_input(arguments)
        except ValidationError as error:
            problems = "; ".join(_problems(error))
            text = (
                f"The model called handoff {self.name!r} with arguments that do not fit: {problems}"
            )
            raise HandoffFailedError(text, kind="ModelBehaviorError", is_of_model=True) from error
        given = (ctx,) if self.handoff.input_type is None else (ctx, said)
        try:
            if function is not None:
                await invoke(function, *given)
        except Exception as error:
            kind, why = type(error).__name__, message_of(error)
            text = f"on_handoff of handoff {self.name!r} raised {kind}: {why}"
            raise HandoffFailedError(text, kind=kind, remedy=remedy_of(error)) from error
        return transfer_message(self.handoff.agent.name)


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
    return Handoff(
        agent=agent,
        tool_name=tool_name_override or Handoff.default_tool_name(agent),
        tool_description=tool_description_override or Handoff.default_tool_description(agent),
        on_handoff=on_handoff,
        input_type=input_type,
        input_filter=input_filter,
        nest_handoff_history=nest_handoff_history,
        is_enabled=is_enabled,
    )


def default_tool_name(name: str) -> str:
    """Return the default name of a handoff to an agent of this name."""
    return "transfer_to_" + re.sub(r"[^a-zA-Z0-9_]", "_", name).lower()


def check_callable(given: object, what: str) -> None:
    """Refuse an object that cannot be called.

    Raises:
        UserError: It cannot be called.
    """
    if not callable(given):
        msg = f"{what} must be a function, sync or async; it was {shown(given)}."
        raise UserError(msg)


async def _do_nothing(*_given: Any) -> None:
    """Take the place of an `on_handoff` that was not given."""


def _problems(error: ValidationError) -> tuple[str, ...]:
    return tuple(
        f"{'.'.join(map(str, each['loc'])) or 'input'}: {each['msg']}" for each in error.errors()
    )


def _check_target(agent: Any) -> None:
    if not isinstance(agent, AgentBase):
        msg = (
            f"A handoff goes to an Agent; it was given {shown(agent)}. Pass the agent itself, or"
            " handoff(agent, ...)."
        )
        raise UserError(msg)


def _check_tool_name(name: Any, agent: str) -> None:
    if isinstance(name, str) and re.fullmatch(rf"[a-zA-Z0-9_-]{{1,{LONGEST_NAME}}}", name):
        return
    msg = (
        f"The handoff to agent {agent!r} is named {shown(name)}, but models take names of 1 to"
        f" {LONGEST_NAME} letters, digits, '_' and '-'. Name it with"
        " handoff(agent, tool_name_override=...)."
    )
    raise UserError(msg)


def _check_on_handoff(made: Handoff) -> None:
    """Check that `on_handoff` takes (ctx) or, with an input_type, (ctx, input)."""
    function, kind = made.on_handoff, made.input_type
    if function is None:
        if kind is None:
            return
        msg = (
            f"Handoff {made.tool_name!r} has an input_type, but no on_handoff that would get the"
            " input. Pass on_handoff=function(ctx, input), or leave input_type out."
        )
        raise UserError(msg)
    check_callable(function, f"on_handoff of handoff {made.tool_name!r}")
    wanted = ("ctx",) if kind is None else ("ctx", "input")
    count = len(inspect.signature(function).parameters)
    if count != len(wanted):
        why = "there is no input_type" if kind is None else "there is an input_type"
        msg = (
            f"on_handoff of handoff {made.tool_name!r} must take ({', '.join(wanted)}), because"
            f" {why}; it takes {count} argument{'' if count == 1 else 's'}."
        )
        raise UserError(msg)
