"""Type guards for JSON data of unknown shape: `isinstance` alone loses the element types."""

from __future__ import annotations

from typing import TypeGuard

from holdfast.values.base import Json


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
