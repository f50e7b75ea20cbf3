"""Dataclasses and pydantic models recorded as data, and made again where their class is loaded."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from pydantic import BaseModel

from holdfast.values.base import Json
from holdfast.values.code.context_data import dump, load


def class_name(value: Any) -> str:
    """Name the class of a dataclass or pydantic model, `module:qualified.name`; empty for others.

    A class that is no top-level name of its module, such as a local one, has no name either.
    """
    kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType]
    if not (isinstance(value, BaseModel) or dataclasses.is_dataclass(value)):
        return ""
    name = f"{kind.__module__}:{kind.__qualname__}"
    return name if _class(name) is kind else ""


def remade(data: Json, name: str) -> Any:
    """Make an object of its recorded data, or return the data.

    It is the data where the class is not loaded, has changed, cannot be made of data, or makes
    something else of them. Nothing is imported, and no function is looked up: the name comes with a
    task.

    Args:
        data: The data.
        name: What `class_name` has said; empty for plain data.
    """
    kind = _class(name) if name else None
    if kind is None:
        return data
    try:
        made = load(data, kind)
        is_same = dump(made) == data
    except Exception:  # noqa: BLE001  the class's own code, which must not hide what was recorded
        return data
    return made if is_same else data


def _class(name: str) -> type[Any] | None:
    """Return a dataclass or pydantic model that a loaded module defines under a name."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type) or (found.__module__, found.__qualname__) != (module, path):
        return None
    kind: type[Any] = found
    return kind if issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind) else None
