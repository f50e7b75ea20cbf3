"""Type guards for JSON data of unknown shape: `isinstance` alone loses the element types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeGuard
from urllib.parse import unquote

from holdfast.values.base import Json

DEEPEST_SCHEMA = 64
"""Most levels of a schema whose defaults are looked at, with those of what it refers to."""

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


def data_in(text: str) -> Json:
    """Return JSON data, or the text itself if it is not one."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def as_text(value: object) -> str:
    """Return `value` when it is a text, else an empty one."""
    return value if isinstance(value, str) else ""


def defaulted(schema: Json) -> dict[str, Json]:
    """Return what a JSON Schema says of values that are left out, without the rest of it.

    A type may contain itself, so references stay; "$defs" has what they refer to, by reference.

    Args:
        schema: The schema.
    """
    root, defs = as_object(schema), dict[str, Json]()
    defaults = 0

    def kept(part: Json, deepest: int) -> dict[str, Json]:
        nonlocal defaults
        given, found = as_object(part), dict[str, Json]()
        if not given or not deepest:
            return found
        if "default" in given:
            found["default"], defaults = given["default"], defaults + 1
        inner = as_object(given.get("properties")).items()
        if named := {name: each for name, of in inner if (each := kept(of, deepest - 1))}:
            found["properties"] = named
        if items := kept(given.get("items"), deepest - 1):
            found["items"] = items
        options = as_array(given.get("anyOf"))
        if some := [each for of in options if (each := kept(of, deepest - 1))]:
            found["anyOf"] = list[Json](some)
        if reference := as_text(given.get("$ref")):
            found["$ref"] = reference
            if reference not in defs:
                defs[reference] = {}  # it may refer to itself
                defs[reference] = kept(pointed_at(root, reference), deepest - 1)
        return found

    found = kept(root, DEEPEST_SCHEMA)
    return {**found, "$defs": defs} if defaults and defs else found if defaults else {}


def filled_in(arguments: str, schema: Json) -> dict[str, Json]:
    """Return the values that are filled in for what the arguments of a call leave out.

    Args:
        arguments: The arguments, as JSON; for others nothing is filled in.
        schema: What `defaulted` has returned.
    """
    try:
        return left_out(json.loads(arguments or "{}"), schema)
    except (ValueError, RecursionError):
        return {}


def left_out(
    value: Json, schema: Json, at: str = "", defs: Mapping[str, Json] | None = None
) -> dict[str, Json]:
    """Return the values that are filled in where some are left out, by their places: "to.city".

    Args:
        value: The value.
        schema: What `defaulted` has returned, or a part of it.
        at: Place of the value; empty for the whole.
        defs: What references refer to; "$defs" of the schema by default.
    """
    found = dict[str, Json]()
    defs = as_object(as_object(schema).get("$defs")) if defs is None else defs
    for part in _alternatives(as_object(schema), defs):
        named = as_object(part.get("properties")) if is_object(value) else {}
        for name, inner in named.items():
            if name in as_object(value):
                found |= left_out(as_object(value)[name], inner, f"{at}{name}.", defs)
            elif "default" in as_object(inner):
                found[f"{at}{name}"] = as_object(inner)["default"]
        for k, each in enumerate(as_array(value) if "items" in part else ()):
            found |= left_out(each, part["items"], f"{at}{k}.", defs)
    return found


def _alternatives(schema: dict[str, Json], defs: Mapping[str, Json]) -> list[dict[str, Json]]:
    """List a schema with all that its options and references are, each once."""
    found = [schema]
    for part in found:  # it grows while it is read
        meant = (*as_array(part.get("anyOf")), defs.get(as_text(part.get("$ref"))))
        found += [each for each in map(as_object, meant) if each and each not in found]
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
