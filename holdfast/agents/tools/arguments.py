"""From the arguments that a model wrote to a tool's answer or to the model's text for what failed.

Arguments are validated, or refused with a message for the model. `RunConfig.tool_error_formatter`
makes the text for a failed call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, cast

from pydantic import ValidationError
from pydantic_core import from_json

from holdfast.agents.tools.context import ToolContext
from holdfast.agents.tools.functions.function_schema import FuncSchema, is_as_written
from holdfast.agents.tools.options import FailureFormatter
from holdfast.errors import ModelBehaviorError
from holdfast.values.code.user_calls import invoke, naming, place_of
from holdfast.values.messages import ToolCall
from holdfast.values.runs.run_context import ContextT, RunContextWrapper
from holdfast.values.text.logs import log

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


def object_of(tool: str, arguments: str) -> dict[str, Any]:
    """Return the arguments of a tool without a signature: any JSON object, and of empty text none.

    Raises:
        ToolArgumentsError: They are no object.
    """
    try:
        data = from_json(arguments if arguments.strip() else "{}", allow_inf_nan=False)
    except ValueError as error:
        raise ToolArgumentsError(tool, (f"Invalid JSON: {error}",), arguments) from error
    if not isinstance(data, dict):
        raise ToolArgumentsError(tool, ("expected a JSON object",), arguments)
    return cast("dict[str, Any]", data)


def object_text(signature: FuncSchema | None, arguments: str) -> str:
    """Return arguments with what models write for tools without parameters as an empty object.

    That is empty text, of any tool; null and an empty list count of such a tool alone.
    """
    said = arguments.strip()
    if said in ("null", "[]", "[{}]") and signature is not None and not signature.argument_names:
        return "{}"
    return arguments if said else "{}"


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


def data_as_given(tool: Parsing, arguments: str) -> tuple[dict[str, Any] | None, bool]:
    """Return the arguments as JSON data, and whether the tool runs with just these.

    A predicate must decide by the arguments that the tool runs with: where a default is filled in
    or a value is converted, those are returned. None if the tool refuses them.
    """
    text = object_text(tool.signature, arguments.strip())
    try:
        values = tool.parse(text)
    except ToolArgumentsError:
        return None, False
    data, signature = object_of(tool.name, text), tool.signature
    if signature is None:
        same = is_as_written(values, data)
        return (data if same else values), same
    same = signature.is_as_written(text)
    return (data if same else signature.data(text)), same


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


FIXED_ERROR = "An error occurred while running the tool. Please try again."


def default_tool_error_function(ctx: RunContextWrapper[Any], error: Exception) -> str:  # noqa: ARG001  the signature of a failure_error_function
    """Return the text for the model that a tool has without a `failure_error_function` of its own.

    Of an error of the tool it says nothing, because that may hold secrets; arguments that do not
    fit are explained.
    """
    return str(error) if isinstance(error, ToolArgumentsError) else FIXED_ERROR


def formatted_error(error: Exception) -> Exception:
    """Return an error as a `failure_error_function` gets it: of a class that users know."""
    return ModelBehaviorError(str(error)) if isinstance(error, ToolArgumentsError) else error


ErrorKind = Literal["approval_rejected", "tool_not_found", "tool_exception"]
"""Why a call has no result."""


@dataclass(frozen=True)
class ToolErrorFormatterArgs(Generic[ContextT]):
    """Argument of a formatter: a failed call.

    Attributes:
        kind: Whether a reviewer rejected the call, the model was not given the tool, or the tool
            raised.
        tool_type: Always "function".
        tool_name: Name under which the model called the tool.
        call_id: The model's id of the call.
        default_message: The text without a formatter.
        run_context: The run's context.
        error: The error that the tool raised, else None. Its text may hold secrets.
    """

    kind: ErrorKind
    tool_type: Literal["function"]
    tool_name: str
    call_id: str
    default_message: str
    run_context: RunContextWrapper[ContextT]
    error: Exception | None = None


ToolErrorFormatter = Callable[[ToolErrorFormatterArgs[Any]], str | Awaitable[str | None] | None]
"""Returns the text for the model, or None for the default text."""


async def worded(  # noqa: PLR0917  what a formatter is told
    formatter: ToolErrorFormatter,
    kind: ErrorKind,
    call: ToolCall,
    default: str,
    context: RunContextWrapper[Any],
    error: Exception | None = None,
) -> str:
    """Return a formatter's text; the default text if it returns none, or fails itself.

    Args:
        formatter: The run's formatter.
        kind: Why the call has no result.
        call: The call.
        default: The default text.
        context: The run's context.
        error: The error that the tool raised, if it did.
    """
    args = ToolErrorFormatterArgs(kind, "function", call.name, call.id, default, context, error)
    try:
        with naming("tool_error_formatter of the run", formatter):
            text = await invoke(formatter, args)
    except Exception as failed:  # the tool may have run: an error here must not make it run again
        where = place_of(formatter, failed)
        log.exception("The tool_error_formatter (%s) failed for tool %r", where, args.tool_name)
        return args.default_message
    if text is not None and not isinstance(text, str):
        log.error("The tool_error_formatter gave a %s, not a text", type(text).__name__)
    return text if isinstance(text, str) else args.default_message


class Owner(Protocol):
    """The tool that an invoker belongs to."""

    @property
    def failure_error_function(self) -> FailureFormatter | Literal["default"] | None:
        """Makes the model's text for a failed call."""
        ...

    async def run_made(self, ctx: ToolContext[Any, Any], arguments: str) -> Any:
        """Validate the arguments and run the tool as it was made."""
        ...


class Invoker:
    """Runs a tool outside of a task, and makes its errors texts for the model.

    Attributes:
        function: The function; None for a tool whose class runs it in a way of its own.
        signature: Converts arguments to parameters.
        owner: The tool whose name and failure_error_function hold.
    """

    def __init__(
        self,
        function: Callable[..., Any] | None = None,
        signature: FuncSchema | None = None,
        owner: Owner | None = None,
    ) -> None:
        """Take the function, and the tool as far as it is known."""
        self.function = function
        self.signature = signature
        self.owner = owner

    def of(self, owner: Owner) -> Invoker:
        """Return the invoker of another tool with the same function, such as a copy."""
        if self.owner is owner or (self.function is None and self.owner is not None):
            return self
        return Invoker(self.function, self.signature, owner)

    def __deepcopy__(self, memo: dict[int, Any]) -> Invoker:
        """Keep the function: code is not copied."""
        return Invoker(self.function, self.signature, memo.get(id(self.owner), self.owner))

    async def __call__(self, ctx: ToolContext[Any, Any], arguments: str) -> Any:
        """Run the tool; an error becomes a text for the model, as the tool's author wants it.

        Raises:
            ModelBehaviorError: The arguments do not fit, and `failure_error_function` is None.
            Exception: An error of the function, likewise, or of the failure_error_function.
        """
        owner = self.owner
        if owner is None:
            raise RuntimeError("An invoker without a tool cannot be called.")
        try:
            return await owner.run_made(ctx, arguments)
        except Exception as error:
            formatter = owner.failure_error_function
            if formatter is None:
                raise
            if formatter == "default":
                return default_tool_error_function(ctx, error)
            return await invoke(formatter, ctx, formatted_error(error))
