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


def defaulted(schema: Json, root: Mapping[str, Json], deepest: int = 8) -> dict[str, Json]:
    """Return what a JSON Schema says of values that are left out, without the rest of it.

    Args:
        schema: The schema, or a part of it.
        root: The whole of it, which references point into.
        deepest: Most levels of objects and arrays that are looked at: a type may contain itself.
    """
    given = as_object(schema)
    found: dict[str, Json] = {"default": given["default"]} if "default" in given else {}
    options = (given, *map(as_object, as_array(given.get("anyOf"))))
    meant = [as_object(pointed_at(root, each.get("$ref"))) for each in options]
    for part in (*options, *meant) if deepest else ():
        inner = as_object(part.get("properties")).items()
        named = {name: defaulted(each, root, deepest - 1) for name, each in inner}
        if any(named.values()):
            found["properties"] = {name: each for name, each in named.items() if each}
        if items := defaulted(part.get("items"), root, deepest - 1):
            found["items"] = items
    return found


def left_out(value: Json, schema: Json, at: str = "") -> dict[str, Json]:
    """Return the values that are filled in where some are left out, by their places: "to.city".

    Args:
        value: The value.
        schema: What `defaulted` has returned.
        at: Place of the value; empty for the whole.
    """
    known, found = as_object(schema), dict[str, Json]()
    for name, inner in as_object(known.get("properties")).items():
        if not is_object(value):
            break
        if name in value:
            found |= left_out(value[name], inner, f"{at}{name}.")
        elif "default" in as_object(inner):
            found[f"{at}{name}"] = as_object(inner)["default"]
    for k, each in enumerate(as_array(value) if "items" in known else ()):
        found |= left_out(each, known["items"], f"{at}{k}.")
    return found


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
