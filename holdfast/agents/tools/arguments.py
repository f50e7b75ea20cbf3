"""Validate the arguments that a model wrote, and refuse them with a message for the model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, cast

from pydantic import ValidationError
from pydantic_core import from_json

from holdfast.agents.tools.functions.function_schema import FuncSchema
from holdfast.agents.tools.functions.written import is_as_written
from holdfast.errors import ModelBehaviorError

_QUOTED_CHARACTERS = 200
_LISTED_PROBLEMS = 10


class ToolArgumentsError(ModelBehaviorError):
    """The model called a tool with arguments that do not fit. The task goes on with this message.

    Attributes:
        tool: Tool name.
        problems: What was wrong, one line each.
    """

    def __init__(self, tool: str, problems: tuple[str, ...], arguments: str) -> None:
        """Make the text for the model."""
        self.tool = tool
        self.problems = problems
        quoted = arguments[:_QUOTED_CHARACTERS]
        more = "…" if len(arguments) > _QUOTED_CHARACTERS else ""
        listed = [f"- {problem}" for problem in problems[:_LISTED_PROBLEMS]]
        first = "it was not run, because"
        if len(problems) == 1:
            first, listed = problems[0], ["It was not run."]
        if left_out := len(problems[_LISTED_PROBLEMS:]):
            listed.append(f"- and {left_out} more")
        super().__init__(
            "\n".join(
                (
                    f"Invalid JSON input for tool {tool}: {first}",
                    *listed,
                    f"The arguments were: {quoted}{more}",
                    "Call it again with corrected arguments.",
                )
            )
        )


def parse_arguments(tool: str, signature: FuncSchema | None, arguments: str) -> dict[str, Any]:
    """Return the arguments by parameter; without a signature, as any JSON object.

    Empty text counts as an empty object, because models write it for tools without parameters; so
    do null and an empty list, for such a tool alone.

    Raises:
        ToolArgumentsError: The arguments do not fit.
    """
    text = _object_text(signature, arguments)
    if signature is not None:
        try:
            values = signature.values(text)
        except ValidationError as error:
            problems = explain(error, signature.argument_names)
            raise ToolArgumentsError(tool, problems, arguments) from error
        if twice := signature.named_twice(values):
            raise ToolArgumentsError(tool, (twice,), arguments)
        return values
    try:
        data = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise ToolArgumentsError(tool, (f"Invalid JSON: {error}",), arguments) from error
    if not isinstance(data, dict):
        raise ToolArgumentsError(tool, ("expected a JSON object",), arguments)
    return cast("dict[str, Any]", data)


def _object_text(signature: FuncSchema | None, arguments: str) -> str:
    is_nothing = arguments.strip() in ("null", "[]", "[{}]")
    takes_nothing = signature is not None and not signature.argument_names
    return arguments if arguments.strip() and not (is_nothing and takes_nothing) else "{}"


class Parsing(Protocol):
    """A tool, which reads arguments."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def signature(self) -> FuncSchema | None:
        """Signature of its function; None without one."""
        ...

    def parse(self, arguments: str) -> dict[str, Any]:
        """Validate arguments."""
        ...


def data_as_given(tool: Parsing, arguments: str) -> dict[str, Any] | None:
    """Return the arguments as JSON data; None if the tool refuses them or runs with others.

    A person who decides by the data must be shown the arguments that the tool runs with: where a
    default is filled in or a value is converted, the data say too little.
    """
    text = _object_text(tool.signature, arguments.strip())
    try:
        values = tool.parse(text)
    except ToolArgumentsError:
        return None
    data = parse_arguments(tool.name, None, text)
    signature = tool.signature
    same = signature.is_as_written(text) if signature is not None else is_as_written(values, data)
    return data if same else None


def explain(error: ValidationError, known: Iterable[str]) -> tuple[str, ...]:
    """List the problems of arguments, in words that a model can act on.

    Args:
        error: pydantic's findings.
        known: Names of the arguments.
    """
    problems: list[str] = []
    for found in error.errors(include_url=False, include_context=False, include_input=False):
        place = ".".join(map(str, found["loc"]))
        match found["type"]:
            case "missing":
                problems.append(f"{place}: required, but missing")
            case "extra_forbidden":
                parent = found["loc"][:-1]
                names = "" if parent else f"; the parameters are: {', '.join(known) or 'none'}"
                problems.append(f"{place}: no such parameter{names}")
            case "model_type" if not place:
                problems.append("expected a JSON object")
            case _:
                problems.append(f"{place}: {found['msg']}" if place else found["msg"])
    return tuple(problems)
