"""Reading a callable: the function behind it, its parameters, their types, its docstring."""

from __future__ import annotations

import functools
import inspect
import re
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, Union, cast

from holdfast.errors import InvalidArgumentError
from holdfast.tool_context import ToolContext

EMPTY = inspect.Parameter.empty

_CONTEXT_BY_NAME = re.compile(r"(\w+\.)*ToolContext(\[.*\])?( *\| *None)?")
_STYLES: Any = {name: {"warnings": False} for name in ("google", "numpy", "sphinx")}


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


def docstring_of(function: Callable[..., Any], source: Any) -> str:
    """Return the docstring of the function, or of the class of a callable object."""
    own = inspect.getdoc(source) or ""
    if own or inspect.isroutine(function) or isinstance(function, functools.partial):
        return own
    return inspect.getdoc(type(function)) or ""


def parameters_of(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    """Return the parameters that a caller still has to give.

    Raises:
        InvalidArgumentError: A JSON object cannot name them all.
    """
    bound: set[str] = set()
    inner: Any = function
    while isinstance(inner, functools.partial):
        bound |= inner.keywords.keys()
        inner = cast("Any", inner.func)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError, NameError) as error:
        msg = f"Tool {name!r} has no readable signature: {error}. Wrap it in a function of yours."
        raise InvalidArgumentError(msg) from error
    for index, parameter in enumerate(parameters):
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
            msg = (
                f"Tool {name!r} takes {stars}{parameter.name}, which a model cannot be told of."
                " Name the parameters one by one, or take one list or dict."
            )
            raise InvalidArgumentError(msg)
        if not index and parameter.name in {"self", "cls"} and parameter.annotation is EMPTY:
            msg = (
                f"Tool {name!r} is a method without its object: its first parameter is"
                f" {parameter.name!r}. Make the tool of the bound method: tool(thing.{name})."
            )
            raise InvalidArgumentError(msg)
    return [parameter for parameter in parameters if parameter.name not in bound]


def annotation_of(parameter: inspect.Parameter, source: Any, tool: str) -> Any:
    """Return the type of a parameter, names looked up where the function is defined.

    Raises:
        InvalidArgumentError: A name in it is not known there.
    """
    raw = parameter.annotation
    if raw is EMPTY:
        return Any
    if isinstance(raw, str) and _CONTEXT_BY_NAME.fullmatch(raw.strip(" '\"")):
        return ToolContext  # often imported for type checkers only
    holder = types.SimpleNamespace(__annotations__={parameter.name: raw})
    try:
        names = getattr(source, "__globals__", {})
        return typing.get_type_hints(holder, names, include_extras=True)[parameter.name]
    except Exception as error:  # an annotation is an expression: evaluating it can raise anything
        msg = (
            f"Tool {tool!r}: the type of parameter {parameter.name!r}, {raw!r}, cannot be resolved:"
            f" {error}. Define or import it at the top level of the module."
        )
        raise InvalidArgumentError(msg) from error


def is_context(annotation: Any) -> bool:
    """Whether a parameter of this type takes the ToolContext."""
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return is_context(typing.get_args(annotation)[0])
    if origin in {Union, types.UnionType}:
        return any(map(is_context, typing.get_args(annotation)))
    kind = origin or annotation
    return inspect.isclass(kind) and issubclass(kind, ToolContext)


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Split a docstring (Google, NumPy or Sphinx style) into the whole and the parameters.

    Returns:
        The description, without the sections on results and errors, and parameter to text.
    """
    if len(text.splitlines()) <= 1:
        return text, {}
    import griffe  # `import holdfast` stays light

    said: list[str] = []
    about: dict[str, str] = {}
    doc = griffe.Docstring(text, lineno=1)
    for section in griffe.parse_auto(doc, per_style_options=_STYLES):
        match section:
            case griffe.DocstringSectionText():
                said.append(section.value)
            case griffe.DocstringSectionAdmonition():
                said.append(f"{section.title}: {section.value.description}")
            case griffe.DocstringSectionParameters():
                about |= {p.name: " ".join(p.description.split()) for p in section.value}
            case _:
                pass
    return "\n\n".join(said), about
