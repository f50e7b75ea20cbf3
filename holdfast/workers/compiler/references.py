"""References of a plan's calls to the results of other calls: `$3` or `${3}`; `$$` is `$`.

Pure. A text that consists of one reference becomes the result itself, in the parameter's type;
within a longer text, the result is inserted as text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Never

from holdfast.values.base import Json
from holdfast.values.checks.gate import as_object, is_array, is_object, pointed_at

_REFERENCE = re.compile(r"\$\$|\$([0-9]+)|\$\{\s*([0-9]+)\s*\}")
LONGEST_ID = 6
"""Most digits of an id."""

DEEPEST = 8
"""Most `$ref` and `anyOf` of a schema that are followed in a row, because they may form circles."""

Schema = Mapping[str, Json]


def references(value: Json) -> Iterator[str]:
    """Yield the ids that a value refers to, in order, without leading zeros.

    Args:
        value: JSON data.
    """
    if isinstance(value, str):
        yield from (_id(found) for found in _REFERENCE.finditer(value) if found[0] != "$$")
    elif is_array(value):
        for item in value:
            yield from references(item)
    elif is_object(value):
        for key, item in value.items():
            yield from references(key)
            yield from references(item)


def fill(value: Json, results: Mapping[str, str], schema: Schema, root: Schema) -> Json:
    """Replace references by results.

    Args:
        value: JSON data with references.
        results: Id to the text of its result, for every reference in `value`.
        schema: JSON Schema of the value; empty when it is unknown.
        root: The schema that `$ref` of `schema` points into.
    """
    if isinstance(value, str):
        whole = _REFERENCE.fullmatch(value.strip())
        if whole is not None and whole[0] != "$$":
            return typed(results[_id(whole)], schema, root)
        return _text(value, results)
    if is_array(value):
        inner = _inner(schema, root, "items")
        return [fill(item, results, inner, root) for item in value]
    if is_object(value):
        return {
            _text(key, results): fill(item, results, property_schema(schema, root, key), root)
            for key, item in value.items()
        }
    return value


def _text(text: str, results: Mapping[str, str]) -> str:
    """Insert results into a text."""
    return _REFERENCE.sub(lambda m: "$" if m[0] == "$$" else results[_id(m)], text)


def typed(text: str, schema: Schema, root: Schema) -> Json:
    """Convert a result to the type that a schema wants; keep it as text where that fails.

    A schema that allows text, or names no type, gets text.
    """
    wanted = wanted_types(schema, root)
    if not wanted or "string" in wanted:
        return text
    if "null" in wanted and text.strip() == "None":  # how a tool's None is shown
        return None
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return text
    name = _name(value)
    if name in wanted or (name == "integer" and "number" in wanted):
        return value
    if name == "number" and "integer" in wanted and float(value).is_integer():
        return int(value)
    return text


def property_schema(schema: Schema, root: Schema, name: str) -> Schema:
    """Return the schema of an object's property; empty when it is unknown."""
    known: Json = _inner(schema, root, "properties").get(name)
    if is_object(known):
        return known
    return _inner(schema, root, "additionalProperties")


def _id(found: re.Match[str]) -> str:
    return (found[1] or found[2]).lstrip("0") or "0"


def _refuse(constant: str) -> Never:
    """Refuse NaN and Infinity, which Python's reader accepts and JSON does not have.

    Raises:
        ValueError: Always; `typed` then keeps the result as text.
    """
    raise ValueError(constant)


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _refuse(digits)


def _name(value: Json) -> str:
    """Name the type of a value as JSON Schema does."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case _:
            return "array" if is_array(value) else "object"


def _resolved(schema: Schema, root: Schema) -> Schema:
    """Follow a `$ref` within the root."""
    for _ in range(DEEPEST):
        target = schema.get("$ref")
        if not isinstance(target, str) or not target.startswith("#"):
            break
        schema = as_object(pointed_at(root, target))
    return schema


def _choices(schema: Schema, depth: int) -> Iterator[Schema]:
    if depth > DEEPEST:
        return
    for key in ("anyOf", "oneOf", "allOf"):
        several: Json = schema.get(key)
        yield from filter(is_object, several if is_array(several) else ())


def wanted_types(schema: Schema, root: Schema, depth: int = 0) -> set[str]:
    """Collect the types that a schema allows; empty when it allows any."""
    schema = _resolved(schema, root)
    given: Json = schema.get("type")
    if isinstance(given, str):
        return {given}
    if is_array(given):
        return set(map(str, given))
    values: Json = schema.get("enum")
    if is_array(values):
        return {_name(each) for each in values}
    if "const" in schema:
        return {_name(schema["const"])}
    found: set[str] = set()
    for each in _choices(schema, depth):
        types = wanted_types(each, root, depth + 1)
        if not types:
            return set()
        found |= types
    return found


def _inner(schema: Schema, root: Schema, key: str, depth: int = 0) -> Schema:
    """Return the object under a key of a schema, or of the first of its choices that has one."""
    schema = _resolved(schema, root)
    found: Json = schema.get(key)
    if is_object(found):
        return found
    for each in _choices(schema, depth):
        inner = _inner(each, root, key, depth + 1)
        if inner:
            return inner
    return {}
