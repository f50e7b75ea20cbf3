"""Match the arguments of a planned call with the parameter names of its tool. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import cast

from holdfast.models.base import ToolSpec
from holdfast.values.base import Json
from holdfast.workers.compiler.arguments import Arguments, ArgumentsError, Plain, unmarked
from holdfast.workers.compiler.references import property_schema, wanted_types

UNNAMED = "arguments"
"""Name under which the unnamed arguments of a call of an unknown tool are kept, as a list."""


def parameter_names(spec: ToolSpec | None) -> tuple[str, ...]:
    """List a tool's parameters in the order of its schema."""
    properties = None if spec is None else spec.parameters.get("properties")
    return tuple(cast("dict[str, Json]", properties)) if isinstance(properties, dict) else ()


def bind(given: Arguments, spec: ToolSpec | None, tools: Collection[str]) -> dict[str, Json]:
    """Return a call's arguments by name.

    Values without a name take the names in the order of the schema. A single object whose keys are
    parameter names is read as the arguments. For a tool with one parameter, unquoted text with
    commas is one text.

    Args:
        given: The arguments, as written.
        spec: The tool; None without one of that name.
        tools: Names of all tools.

    Raises:
        ArgumentsError: The tool does not take these arguments.
    """
    for value in (*given.positional, *given.named.values()):
        inner = re.match(r"([\w.-]+)\(", value) if isinstance(value, Plain) else None
        if inner is not None and inner[1] in tools:
            msg = f"calls do not nest: give {inner[1]} a line of its own and refer to it by $id"
            raise ArgumentsError(msg)
    if spec is not None:
        return {name: unmarked(value) for name, value in _bound(given, spec)}
    arguments = {name: unmarked(value) for name, value in given.named.items()}
    if given.positional:
        arguments[UNNAMED] = [unmarked(value) for value in given.positional]
    return arguments


def _bound(given: Arguments, spec: ToolSpec) -> Iterator[tuple[str, Json]]:
    """Pair a tool's parameters with the arguments."""
    names = parameter_names(spec)
    listed = f"the parameters of {spec.name} are: {', '.join(names) or 'none'}"
    by_name = _one_object(given, names, spec)
    if by_name is not None:
        yield from by_name.items()
        return
    positional = _one_text(given, names)
    if len(positional) > len(names):
        raise ArgumentsError(f"there are {len(positional)} arguments, but {listed}")
    yield from zip(names, positional, strict=False)
    other: Json = spec.parameters.get("additionalProperties", not names)
    for name, value in given.named.items():
        if name in names[: len(positional)]:
            raise ArgumentsError(f"the argument {name!r} is given twice")
        if name not in names and other is False:
            raise ArgumentsError(f"there is no parameter {name!r}; {listed}")
        yield name, value


def _one_object(given: Arguments, names: Sequence[str], spec: ToolSpec) -> dict[str, Json] | None:
    """Return the arguments by name when they were written as one JSON object."""
    only = given.positional[0] if len(given.positional) == 1 and not given.named else None
    if not isinstance(only, dict) or not only:
        return None
    by_name = cast("dict[str, Json]", only)
    if not set(by_name) <= set(names):
        return None
    root = spec.parameters
    is_wanted = "object" in wanted_types(property_schema(root, root, names[0]), root)
    return None if is_wanted else by_name


def _one_text(given: Arguments, names: Sequence[str]) -> Sequence[Json]:
    """Return the unnamed values; for a tool with one parameter, unquoted text is one value."""
    values = given.positional
    is_text = len(values) > 1 and any(isinstance(value, Plain) for value in values)
    if is_text and len(names) == 1 and not given.named:
        return [given.raw.strip()]
    return values
