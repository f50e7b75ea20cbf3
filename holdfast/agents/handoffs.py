"""Handoffs: an agent hands the task to another one."""

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
    """How one agent hands the task to another. Made by `handoff(...)`.

    Attributes:
        agent: The agent that goes on.
        tool_name: Name under which the model calls it.
        tool_description: What the model is told of it.
        on_handoff: Called when the task is handed over: (ctx), or (ctx, input) with an input_type.
        input_type: Type of what the model says with the handoff, or None.
        input_filter: Chooses what the next agent sees.
        nest_handoff_history: Whether the earlier conversation becomes one message; None leaves it
            to the run.
        is_enabled: Whether it is offered, or a predicate (ctx, agent).

    Raises:
        UserError: The parts do not go together; the text says what to write instead.
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
        """Check what was given."""
        _check_target(self.agent)
        _check_tool_name(self.tool_name, self.agent.name)
        _check_on_handoff(self)
        if self.input_filter is not None:
            check_callable(self.input_filter, f"input_filter of handoff {self.tool_name!r}")
        if not isinstance(cast("Any", self.is_enabled), bool):
            check_callable(self.is_enabled, f"is_enabled of handoff {self.tool_name!r}")
        _ = self.input_json_schema  # an input_type that no model can be told of is found here

    @property
    def agent_name(self) -> str:
        """Name of the agent that goes on."""
        return self.agent.name

    @cached_property
    def input_json_schema(self) -> dict[str, Json]:
        """JSON Schema of what the model says with the handoff."""
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
        """Return what a model is told."""
        return ToolSpec(
            name=self.tool_name,
            description=self.tool_description,
            parameters=self.input_json_schema,
            strict=True,
        )

    def policy(self) -> ToolPolicy:
        """Return what a task must know: without an `on_handoff`, nothing happens in the world."""
        effect: ToolEffect = "read" if self.on_handoff is None else "irreversible"
        return ToolPolicy(
            effect=effect, handoff=self.agent.name, is_conditional=callable(self.is_enabled)
        )

    def tool(self) -> HandoffTool:
        """Return what a task runs to hand over."""
        return HandoffTool(
            name=self.tool_name,
            description=self.tool_description,
            parameters=self.input_json_schema,
            function=self.on_handoff or _do_nothing,
            handoff=self,
        )

    def read_input(self, arguments: str) -> Any:
        """Return what the model said with the handoff, strictly validated.

        Raises:
            pydantic.ValidationError: It does not fit the input_type.
        """
        if self._adapter is None:
            return None
        return self._adapter.validate_json(arguments, strict=True)

    @classmethod
    def default_tool_name(cls, agent: AgentBase) -> str:
        """Return the name under which a model hands over to an agent."""
        return default_tool_name(agent.name)

    @classmethod
    def default_tool_description(cls, agent: AgentBase) -> str:
        """Return what a model is told of a handoff to an agent."""
        about = agent.handoff_description or ""
        return f"Handoff to the {agent.name} agent to handle the request. {about}"


class HandoffFailedError(Exception):
    """The task is not handed over.

    Attributes:
        kind: Class name of the error that stopped it.
        remedy: What to do about that one, or empty.
        is_of_model: Whether the model made a mistake, which ends the run; the task waits for code
            that has failed to be mended, whatever it has raised.
    """

    def __init__(
        self, message: str, *, kind: str, remedy: str = "", is_of_model: bool = False
    ) -> None:
        """Keep the facts beside the text."""
        self.kind = kind
        self.remedy = remedy
        self.is_of_model = is_of_model
        super().__init__(message)


@dataclass(frozen=True, eq=False, repr=False)
class HandoffTool(Tool):
    """What a task runs when the `on_handoff` of a handoff wants to be called."""

    _: KW_ONLY
    handoff: Handoff

    def policy(self) -> ToolPolicy:
        """Return what a task must know: that of the handoff."""
        return self.handoff.policy()

    def parse(self, arguments: str) -> dict[str, Any]:
        """Check arguments as a person edited them; nobody needs the result.

        Raises:
            ToolArgumentsError: They do not fit.
        """
        try:
            self.handoff.read_input(arguments)
        except ValidationError as error:
            raise ToolArgumentsError(self.name, _problems(error), arguments) from error
        return {}

    async def run(self, ctx: ToolContext, arguments: str) -> Any:
        """Call `on_handoff`; return the result of the call.

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
    """Make a handoff to an agent. An agent itself in `Agent(handoffs=[...])` is one by defaults.

    Args:
        agent: The agent that goes on with the task.
        tool_name_override: Name under which the model calls it; `transfer_to_<agent>` by default.
        tool_description_override: What the model is told of it.
        on_handoff: Called with (ctx) or, with an input_type, (ctx, input), when the task is handed
            over; sync or async. `ctx` is a ToolContext. It runs as a recorded call that is never
            repeated unnoticed; if it raises, the task is not handed over and waits.
        input_type: Type of what the model says with the handoff: an object that pydantic can
            validate. It is for `on_handoff`; the next agent reads the conversation.
        input_filter: Makes of a HandoffInputData the one that the next agent sees; sync or async.
        nest_handoff_history: Whether the earlier conversation becomes one message; None leaves it
            to the run. An input filter goes before it.
        is_enabled: Whether it is offered to the model, or a predicate (ctx, agent), asked in every
            turn; sync or async.

    Raises:
        UserError: The arguments do not go together; the text says what to write instead.
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
    """Return the name under which a model hands over to an agent of this name."""
    return "transfer_to_" + re.sub(r"[^a-zA-Z0-9_]", "_", name).lower()


def check_callable(given: object, what: str) -> None:
    """Refuse what cannot be called.

    Raises:
        UserError: It cannot.
    """
    if not callable(given):
        msg = f"{what} must be a function, sync or async; it was {shown(given)}."
        raise UserError(msg)


async def _do_nothing(*_given: Any) -> None:
    """Stand for an `on_handoff` that was not given."""


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
    """Check that `on_handoff` can be called with what there is for it."""
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
