"""Adapters of classes whose annotations name what Python does not find where the class stands.

That is what a module imports for type checkers only (`if TYPE_CHECKING:`), because the other module
imports it, and what stands beside a local class. Nothing but an adapter needs such names: the class
itself, and whoever uses it, works without them.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.util
import inspect
import sys
import typing
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import Enum
from typing import Any, cast
from weakref import WeakKeyDictionary

from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticUndefinedAnnotation

from holdfast.errors import UserError
from holdfast.values.checks.json_shapes import is_object

MOST_PARTS = 1000
"""Objects in a context that are looked at for their classes."""

_BESIDE: WeakKeyDictionary[type[Any], dict[str, Any]] = WeakKeyDictionary()
"""Local class to those beside it of what a context of it held, by name."""


def adapter_of(kind: type[Any]) -> TypeAdapter[Any]:
    """Return the adapter of a dataclass or pydantic model.

    Raises:
        UserError: An annotation names something that cannot be found.
    """
    made: TypeAdapter[Any] = TypeAdapter(kind)
    names = dict(_BESIDE.get(kind, {}))
    while not made.pydantic_complete:
        try:
            made.rebuild(force=True, _types_namespace=names)
        except PydanticUndefinedAnnotation as error:
            name = str(error.name)
            found = None if name in names else _found(name, kind)
            if found is None:
                raise _unknown(kind, name) from error
            names[name] = found
    return made


def _unknown(kind: type[Any], name: str) -> UserError:
    msg = f"An annotation of {kind.__qualname__} names {name!r}, which cannot be found from there."
    return UserError(
        msg,
        remedy=(
            f"Import or define {name!r} at the top level of module {kind.__module__!r}, or import"
            " it there under `if TYPE_CHECKING:`. What a run records is made anew by annotations."
        ),
    )


def _found(name: str, kind: type[Any]) -> Any:
    """Look a name up where checkers do: in the modules of the class and of its parts."""
    for module in _modules(kind, set()):
        for origin, original in _for_checkers(module, name):
            with suppress(ImportError, AttributeError):
                return getattr(importlib.import_module(origin), original)
    return None


def _modules(kind: Any, seen: set[Any]) -> Iterator[str]:
    """List the modules of a class, its bases and the dataclasses that its fields hold."""
    for part in (kind, *typing.get_args(kind)):
        if not isinstance(part, type) or part in seen:
            continue
        seen.add(part)
        yield from (base.__module__ for base in part.__mro__)
        if dataclasses.is_dataclass(part):
            for field in dataclasses.fields(part):
                yield from _modules(field.type, seen)


def _for_checkers(module: str, name: str) -> Iterator[tuple[str, str]]:
    """Find the imports of a name under `if TYPE_CHECKING:`: their modules, and names there."""
    held = sys.modules.get(module)
    try:
        tree = ast.parse(inspect.getsource(held)) if held is not None else ast.Module([], [])
    except (OSError, TypeError, SyntaxError):
        return
    for block in ast.walk(tree):
        if isinstance(block, ast.If) and ast.unparse(block.test).endswith("TYPE_CHECKING"):
            for each in ast.walk(block):
                if isinstance(each, ast.ImportFrom):
                    package = str(getattr(held, "__package__", "") or "")
                    origin = importlib.util.resolve_name(
                        "." * each.level + (each.module or ""), package
                    )
                    yield from (
                        (origin, alias.name)
                        for alias in each.names
                        if name == (alias.asname or alias.name)
                    )


def note_parts(context: object) -> None:
    """Note the classes of what a context holds, where its own class is a local one.

    Its annotations may name classes that stand beside it, which nothing else leads to.
    """
    kind = context.__class__
    if "<locals>" not in kind.__qualname__:
        return
    held: list[Any] = [context]
    names: dict[str, Any] = {}
    for each in held:
        if len(held) > MOST_PARTS:
            break
        if dataclasses.is_dataclass(each) or isinstance(each, BaseModel | Enum):
            names[type(each).__name__] = type(each)
            held += vars(each).values()
        elif is_object(each):
            held += each.values()
        elif isinstance(each, list | tuple | set):
            held += cast("Iterable[Any]", each)
    around = (kind.__module__, kind.__qualname__.rpartition(".")[0])
    _BESIDE[kind] = {
        name: part
        for name, part in names.items()
        if part is not kind and (part.__module__, part.__qualname__.rpartition(".")[0]) == around
    }
