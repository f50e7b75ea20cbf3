"""Dataclasses and pydantic models recorded as data, and made again where their class is loaded."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from typing import Any

from pydantic import BaseModel
from pydantic_core import from_json

from holdfast.values.base import Json, Value
from holdfast.values.checks.gate import clean
from holdfast.values.code.context_data import dump, load

DATA, TEXT = "data", "text"
"""Kinds of a value that is JSON data, and of a text of a class of its own; no class is so named."""

LONGEST_TEXT = 4000
"""Most characters of a value's own text that are recorded next to its JSON."""


class Returned(Value):
    """What a tool returned, next to what the model reads of it: its JSON, or a text.

    Attributes:
        kind: "data" for JSON data, "text" for a text, or the name of its class; empty if what is
            written and its class do not make it again.
        text: `str()` of it, if they do not make it again, or that of what they make is another one.
    """

    kind: str = ""
    text: str = ""

    @classmethod
    def of(cls, value: Any, written: str) -> Returned | None:
        """Describe a value.

        Args:
            value: What a tool returned.
            written: What the model reads of it.

        Returns:
            The description; None for None, for a plain text, and where its own `str()` raises.
        """
        if value is None or type(value) is str:
            return None
        try:
            text = clean(str(value))
            kind = TEXT if isinstance(value, str) else class_name(value) or DATA
            made = cls(kind=kind).object_of(written)
            is_made = type(made) is type(value) and (kind != DATA or str(made) == text)
            if kind != TEXT and not is_made:
                kind = ""
            is_said = bool(kind) and text == str(made)
        except (Exception, SystemExit):  # noqa: BLE001  the class's own code
            return None
        return cls(kind=kind, text="" if is_said or len(text) > LONGEST_TEXT else text)

    def object_of(self, written: str) -> Any:
        """Make the value again of what is written; its data, where that cannot be done here."""
        data = self.data_of(written)
        return data if self.kind in (DATA, TEXT) else remade(data, self.kind)

    def data_of(self, written: str) -> Json:
        """Return the data of what is written."""
        return written if self.kind == TEXT else from_json(written)


def class_name(value: Any) -> str:
    """Name the class of a dataclass or pydantic model, `module:qualified.name`; empty for others.

    A class without a top-level name in its module, such as a local one, has no name either.
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
        found = inspect.getattr_static(found, part, None)  # getattr could import
    if not isinstance(found, type) or (found.__module__, found.__qualname__) != (module, path):
        return None
    kind: type[Any] = found
    return kind if issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind) else None
