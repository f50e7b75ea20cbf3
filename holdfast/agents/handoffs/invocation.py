"""What a handoff does when the model calls it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from holdfast.agents.tools.functions.schema import object_schema, strict_schema
from holdfast.errors import (
    InvalidArgumentError,
    ModelBehaviorError,
    UserError,
    WrongTypeError,
    message_of,
    remedy_of,
)
from holdfast.values.base import Json
from holdfast.values.code.user_calls import invoke
from holdfast.values.text.shown import shown

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
            msg = (
                f"Invalid JSON: the model called handoff {self._tool!r} with arguments that do not"
                f" fit: {'; '.join(problems(error))}"
            )
            raise UnfitInputError(msg) from error
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
            msg = (
                f"The {what} must be an object, as a pydantic model, a dataclass or a TypedDict is:"
                " models call with named arguments, and the root of a strict JSON schema is one"
                f" object. It was {shown(input_type)}."
            )
            raise UserError(msg)
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
        msg = f"{what} must be callable, sync or async; {whose} was {shown(given)}."
        raise WrongTypeError(msg)


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
        msg = f"input_type={shown(input_type)} of handoff {tool!r}: {cause}"
        raise UserError(msg) from cause


def _check_on_handoff(tool: str, function: Callable[..., Any] | None, kind: Any) -> None:
    """Check that `on_handoff` takes (ctx) or, with an input_type, (ctx, input)."""
    if function is None:
        if kind is None:
            return
        msg = (
            f"You must provide on_handoff when input_type is provided: handoff {tool!r} has none"
            " that would get the input. Pass on_handoff=function(ctx, input), or leave input_type"
            " out."
        )
        raise UserError(msg)
    check_callable(function, "on_handoff", f"handoff {tool!r}")
    wanted = ("ctx",) if kind is None else ("ctx", "input")
    count = len(inspect.signature(function).parameters)
    if count != len(wanted):
        why = "there is no input_type" if kind is None else "there is an input_type"
        msg = (
            f"on_handoff of handoff {tool!r} must take ({', '.join(wanted)}), because {why}; it"
            f" takes {count} argument{'' if count == 1 else 's'}."
        )
        raise UserError(msg)
