"""Type guards for JSON data of unknown shape: `isinstance` alone loses the element types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard
from urllib.parse import unquote

from holdfast.values.base import Json

LONGEST_INDEX = 9
"""Digits of an index in a JSON Pointer; of thousands, Python makes no number."""


def is_object(value: object) -> TypeGuard[dict[str, Json]]:
    """Whether `value` is a JSON object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Json]]:
    """Whether `value` is a JSON array."""
    return isinstance(value, list)


def as_object(value: object) -> dict[str, Json]:
    """Return `value` when it is a JSON object, else an empty one."""
    return value if is_object(value) else {}


def as_array(value: object) -> list[Json]:
    """Return `value` when it is a JSON array, else an empty one."""
    return value if is_array(value) else []


def as_text(value: object) -> str:
    """Return `value` when it is a text, else an empty one."""
    return value if isinstance(value, str) else ""


def pointed_at(root: Mapping[str, Json], reference: object) -> Json:
    """Return what a `$ref` within a JSON Schema refers to; None for nothing, or another document.

    Args:
        root: The schema.
        reference: "#", or "#/" and a JSON Pointer, percent-encoded as in a URI (RFC 6901).
    """
    if reference == "#":
        return root
    if not (isinstance(reference, str) and reference.startswith("#/")):
        return None
    at: Json = root
    for part in unquote(reference[2:]).split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if is_array(at):
            is_index = name.isdecimal() and len(name) <= LONGEST_INDEX and int(name) < len(at)
            at = at[int(name)] if is_index else None
        else:
            at = as_object(at).get(name)
    return at
