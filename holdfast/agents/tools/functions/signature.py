"""Reads a callable: the function behind it, its parameters and their types.

From its annotation follows how what it returned is made again from the record.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, Union, cast

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import from_json, to_json

from holdfast.agents.tools.context import ToolContext
from holdfast.errors import DeclarationError, UserError
from holdfast.values.code.typed_data import DATA, TEXT, Returned, class_name
from holdfast.values.runs.run_context import RunContextWrapper

EMPTY = inspect.Parameter.empty

_CONTEXTS = ("RunContextWrapper", "ToolContext")
_CONTEXT_BY_NAME = re.compile(
    r"(?:(?:\w+\.)*(?:Annotated|Optional|Union)\[\s*)?(?:None\s*[|,]\s*)?"
    rf"(?P<name>(?:\w+\.)*(?:{'|'.join(_CONTEXTS)}))\b(?!\.)"
)


def source_of(function: Callable[..., Any]) -> Any:
    """Return the plain function behind partials, methods, decorators and callable objects."""
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = cast("Any", inner.func)
    is_plain = inspect.isroutine(inner) or inspect.isclass(inner) or hasattr(inner, "__wrapped__")
    inner = inspect.unwrap(inner if is_plain else type(inner).__call__)
    return getattr(inner, "__func__", inner)


def name_of(function: Callable[..., Any], source: Any) -> str:
    """Return the name of the function, or of the class of a callable object."""
    named: Any = source if isinstance(function, functools.partial) else function
    return str(getattr(named, "__name__", type(named).__name__))


def parameters_of(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    """Return the parameters that a partial has not bound by name.

    Raises:
        DeclarationError: A JSON object cannot name them all.
    """
    bound: set[str] = set()
    inner: Any = function
    while isinstance(inner, functools.partial):
        bound |= inner.keywords.keys()
        inner = cast("Any", inner.func)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError, NameError) as error:
        raise DeclarationError(
            f"Tool {name!r} has no readable signature: {error}. Wrap it in an explicit wrapper"
            " function."
        ) from error
    for index, parameter in enumerate(parameters):
        if not index and parameter.name in {"self", "cls"} and parameter.annotation is EMPTY:
            raise DeclarationError(
                f"Tool {name!r} is a method without its object: its first parameter is"
                f" {parameter.name!r}. Make the tool of the bound method: tool(thing.{name})."
            )
    return [parameter for parameter in parameters if parameter.name not in bound]


def names_of(function: Callable[..., Any], source: Any) -> dict[str, Any]:
    """Return the names that annotations may use: those of the module, and of an object's class."""
    names: dict[str, Any] = dict(getattr(source, "__globals__", {}))
    owners = [
        each for each in inspect.getmro(type(function)) if vars(each).get("__call__") is source
    ]
    for owner in owners[:1]:
        names |= {**vars(owner), owner.__name__: owner}
    return names


def annotation_of(parameter: inspect.Parameter, names: dict[str, Any], tool: str) -> Any:
    """Return the type of a parameter, with these names.

    Raises:
        DeclarationError: A name in it is unknown there.
    """
    raw = parameter.annotation
    if raw is EMPTY:
        return Any
    try:
        return _resolved(raw, names)
    except Exception as error:  # an annotation is an expression: evaluating it can raise anything
        context = _context_by_name(raw, names)
        if context is not None:
            return context
        raise DeclarationError(
            f"Tool {tool!r}: the type of parameter {parameter.name!r}, {raw!r}, cannot be resolved:"
            f" {error}. Make annotations resolvable: define or import the type at the top level of"
            " the module."
        ) from error


def return_annotation_of(function: Callable[..., Any], names: dict[str, Any]) -> Any:
    """Return the type of the result; as written, if a name in it is unknown."""
    raw = inspect.signature(function).return_annotation
    if raw is EMPTY:
        return raw
    try:
        return _resolved(raw, names)
    except Exception:  # noqa: BLE001  as above
        return raw


def is_context(annotation: Any, tool: str) -> bool:
    """Whether a parameter of this type takes the ToolContext, which is a RunContextWrapper as well.

    Raises:
        UserError: It is another library's class of the same name, which Holdfast cannot make.
    """
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return is_context(typing.get_args(annotation)[0], tool)
    if origin in {Union, types.UnionType}:
        return any(is_context(each, tool) for each in typing.get_args(annotation))
    kind: Any = origin or annotation
    if not inspect.isclass(kind):
        return False
    if issubclass(kind, RunContextWrapper):
        return True
    for each in kind.__mro__:
        if each.__name__ in _CONTEXTS:
            raise UserError(
                f"Tool {tool!r} takes a {each.__module__}.{each.__name__}, which Holdfast does not"
                f" make. Write `from holdfast import {each.__name__}` instead."
            )
    return False


def _resolved(raw: Any, names: dict[str, Any]) -> Any:
    holder = types.SimpleNamespace(__annotations__={"it": raw})
    return typing.get_type_hints(holder, names, include_extras=True)["it"]


def _context_by_name(raw: Any, names: dict[str, Any]) -> Any:
    """Return the context type in an annotation whose names are imported for type checkers only."""
    parts = [raw, *(getattr(each, "__forward_arg__", None) for each in typing.get_args(raw))]
    texts = [part.strip(" '\"") for part in parts if isinstance(part, str)]
    found = next(filter(None, map(_CONTEXT_BY_NAME.match, texts)), None)
    if found is None:
        return None
    try:
        return _resolved(found["name"], names)
    except Exception:  # noqa: BLE001  as above
        return ToolContext


def returned_object(function: Callable[..., Any] | None, text: str, returned: Returned) -> Any:
    """Return what a tool has returned, restored from its recorded text.

    Args:
        function: The tool's function, whose annotation names the class that the record cannot name;
            None for a tool without one.
        text: Its recorded result.
        returned: What is recorded next to it.

    Returns:
        An object of the same class with the recorded data; the data, if this process does not know
        the class.
    """
    made = returned.object_of(text)
    if returned.kind in (DATA, TEXT) or (returned.kind and class_name(made) == returned.kind):
        return made
    return made if function is None else _as_annotated(function, text, made)


def _as_annotated(function: Callable[..., Any], text: str, data: Any) -> Any:
    """Make the object of the class that a function says it returns, or return the data."""
    kind: Any = return_annotation_of(function, names_of(function, inspect.unwrap(function)))
    try:
        made = _reader_of(kind).validate_json(text)
        return made if from_json(to_json(made)) == data else data
    except (ValidationError, PydanticUserError, NameError, TypeError, ValueError):
        return data  # it says something else, or names a class that is none of data


@functools.lru_cache(maxsize=256)
def _reader_of(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter[Any](kind)
