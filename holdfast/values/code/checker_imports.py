"""Adapters of classes whose annotations name what Python does not find in the class's module.

That is what a module imports for type checkers only (`if TYPE_CHECKING:`), because the other module
imports it. Only an adapter needs such names: the class itself and its users work without them.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import sys
import typing
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticUndefinedAnnotation

from holdfast.errors import UserError

WHOLE, TOP = "", "."
"""Instead of a name of a module: the module itself, and the package at its top."""


def adapter_of(kind: type[Any]) -> TypeAdapter[Any]:
    """Return the adapter of a dataclass or pydantic model.

    Raises:
        UserError: An annotation names something that cannot be found.
    """
    made: TypeAdapter[Any] = TypeAdapter(kind)
    names: dict[str, Any] = {}
    while not made.pydantic_complete:
        try:
            made.rebuild(force=True, _types_namespace=names)
        except PydanticUndefinedAnnotation as error:
            name = str(error.name)
            if name in names:
                raise _unknown(kind, name) from error
            names[name] = _found(name, kind, names)
    return made


def _unknown(kind: type[Any], name: str, why: str = "") -> UserError:
    msg = f"An annotation of {kind.__qualname__} names {name!r}, which cannot be found from there."
    return UserError(
        f"{msg}{why}",
        remedy=(
            f"Import or define {name!r} at the top level of module {kind.__module__!r}, or import"
            " it there under `if TYPE_CHECKING:`. What a run records is rebuilt by annotations."
        ),
    )


def _found(name: str, kind: type[Any], names: Mapping[str, Any]) -> Any:
    """Look a name up where checkers do: in the modules of the class and of its parts.

    Raises:
        UserError: It is not there, or two of the modules mean two things by it.
    """
    found: dict[int, tuple[Any, str]] = {}
    why = ""
    for module in dict.fromkeys(_modules(name, kind, names, set())):
        for origin, original in _for_checkers(module, name):
            try:
                made = _imported(origin, original)
            except (Exception, SystemExit) as error:  # noqa: BLE001  of the module's own code
                why = f" Importing module {origin!r} raised {type(error).__name__}: {error}."
            else:
                found.setdefault(id(made), (made, module))
    if not found:
        raise _unknown(kind, name, why)
    if len(found) > 1:
        where = " and ".join(repr(module) for _, module in found.values())
        msg = f"Annotations of {kind.__qualname__} mean two things by {name!r}, in modules {where}."
        raise UserError(msg, remedy=f"Import one {name!r} at the top level, or by another name.")
    return next(made for made, _ in found.values())


def _imported(origin: str, original: str) -> Any:
    """Import a module, and return it or what it has of a name.

    The program's main module is the one that runs: imported, it would run again.
    """
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    if origin not in sys.modules and path:
        spec = importlib.util.find_spec(origin)
        if spec is not None and spec.origin and Path(spec.origin).resolve() == Path(path).resolve():
            return main if original in {WHOLE, TOP} else getattr(main, original)
    module = importlib.import_module(origin)
    if original in {WHOLE, TOP}:
        return module if original == WHOLE else sys.modules[origin.partition(".")[0]]
    with suppress(AttributeError):
        return getattr(module, original)
    return importlib.import_module(f"{origin}.{original}")


def _modules(name: str, kind: Any, known: Mapping[str, Any], seen: set[Any]) -> Iterator[str]:
    """List the modules where a class, its bases or the classes of its fields use a name."""
    for part in (typing.get_origin(kind), *typing.get_args(kind)):
        if part is not None:
            yield from _modules(name, part, known, seen)
    if not isinstance(kind, type) or kind in seen:
        return
    seen.add(kind)
    for base in kind.__mro__:
        annotations: Mapping[str, Any] = vars(base).get("__annotations__") or {}
        if any(re.search(rf"\b{name}\b", str(each)) for each in annotations.values()):
            yield base.__module__
        scope = {**vars(sys.modules.get(base.__module__, typing)), **known}
        for each in annotations.values() if base is not BaseModel else ():
            for part in _named(each, scope):
                yield from _modules(name, part, known, seen)


def _named(annotation: Any, scope: Mapping[str, Any]) -> Iterator[Any]:
    """Find what an annotation names, which may be a text."""
    if not isinstance(annotation, str):
        yield annotation
        return
    with suppress(SyntaxError):
        for node in ast.walk(ast.parse(annotation, mode="eval")):
            match node:
                case ast.Name(id=name):
                    yield scope.get(name)
                case ast.Attribute(value=ast.Name(id=name), attr=inner):
                    yield getattr(scope.get(name), inner, None)
                case ast.Constant(value=str(text)):
                    yield from _named(text, scope)
                case _:
                    pass


def _for_checkers(module: str, name: str) -> list[tuple[str, str]]:
    """Find the imports of a name under `if TYPE_CHECKING:`: their modules, and names there."""
    held = sys.modules.get(module)
    try:
        source = inspect.getsource(cast("ModuleType", held))
    except (OSError, TypeError):
        return []
    return _imports_for_checkers(source, str(getattr(held, "__package__", "") or "")).get(name, [])


@lru_cache(maxsize=100)
def _imports_for_checkers(source: str, package: str) -> dict[str, list[tuple[str, str]]]:
    """Read from a module's source what it imports under `if TYPE_CHECKING:`, by name."""
    found: dict[str, list[tuple[str, str]]] = {}
    with suppress(SyntaxError):
        for block in ast.walk(ast.parse(source)):
            if isinstance(block, ast.If) and ast.unparse(block.test).endswith("TYPE_CHECKING"):
                for each in ast.walk(block):
                    for name, *origin in _names_of(each, package):
                        found.setdefault(name, []).append((origin[0], origin[1]))
    return found


def _names_of(statement: ast.AST, package: str) -> Iterator[tuple[str, str, str]]:
    """List what a statement imports: the name here, the module, and the name there."""
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            top = alias.name.partition(".")[0]
            yield alias.asname or top, alias.name, WHOLE if alias.asname else TOP
    elif isinstance(statement, ast.ImportFrom):
        with suppress(ImportError):  # a script is in no package
            origin = "." * statement.level + (statement.module or "")
            origin = importlib.util.resolve_name(origin, package)
            for alias in statement.names:
                yield alias.asname or alias.name, origin, alias.name
