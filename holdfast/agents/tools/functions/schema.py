"""Turns JSON Schemas of arguments and outputs into the ones a model is sent.

Source of the strict rules: OpenAI, "Structured model outputs", section "Supported schemas".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from holdfast.errors import DeclarationError, WrongTypeError
from holdfast.values.base import Json
from holdfast.values.text.shown import shown

Schema = dict[str, Json]

_MAPS = ("properties", "$defs", "patternProperties")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLES = ("items", "additionalProperties", "not", "contains", "propertyNames")

_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)
# The provider does not enforce these; the arguments are validated by them nevertheless.
_DROPPED = ("default", "discriminator", "examples", "minLength", "maxLength", "uniqueItems")
_REMEDY = (
    "Give it a precise type (a dataclass or pydantic model, list[str], ...) or use strict=False"
    " (strict_mode=False, strict_json_schema=False)."
)
_LOOKAROUNDS = ("(?=", "(?!", "(?<=", "(?<!")


def without_titles(schema: Schema) -> Schema:
    """Return the schema without titles, which cost tokens and say nothing new to the model."""
    return {key: value for key, value in _inside(schema, without_titles).items() if key != "title"}


def is_same_shape(one: Schema, other: Schema) -> bool:
    """Whether two schemas allow the same data; titles and descriptions may differ."""
    return _shape(one) == _shape(other)


def _shape(schema: Schema) -> Schema:
    inner = _inside(schema, _shape)
    return {key: value for key, value in inner.items() if key not in _WORDS}


_WORDS = frozenset({"title", "description", "examples"})
"""Keywords of a schema that do not restrict the data."""


def object_schema(schema: Schema) -> Schema:
    """Return the schema with its type at the top, also for a type that contains itself.

    pydantic puts such a type among the definitions and refers to it, but providers require an
    object at the top of a schema. The definitions stay, because the type refers to itself there.

    Args:
        schema: JSON Schema, as pydantic makes it.
    """
    begin = "#/$defs/"
    reference = str(schema.get("$ref", ""))
    if not reference.startswith(begin):
        return schema
    return {**schema["$defs"][reference.removeprefix(begin)], **_without(schema, "$ref")}


def strict_schema(schema: Schema, *, what: str) -> Schema:
    """Return the schema under OpenAI's strict rules.

    Objects are closed and all their properties required; defaults, and constraints that the
    provider cannot enforce, are removed.

    Args:
        schema: JSON Schema of an object, as pydantic makes it.
        what: Name of the described thing, for the error.

    Raises:
        DeclarationError: It holds something that strict mode cannot express.
    """
    return _strict(schema, what)


def closed_schema(schema: Schema, *, what: str) -> Schema:
    """Return the schema of an object with all its objects closed and their properties required.

    This is what a strict tool declares. Keywords that a provider does not enforce stay: see
    `sent_schema`.

    Args:
        schema: JSON Schema of an object; it is not changed.
        what: Name of the described thing, for the error.

    Raises:
        DeclarationError: It is not the schema of an object, an object in it has free keys, or it is
            nested too deeply.
    """
    if "anyOf" in schema or "oneOf" in schema or schema.get("type", "object") != "object":
        raise DeclarationError(
            f"The schema of {what} is not that of one object, which the root of a strict JSON"
            " schema must be.",
            remedy=_REMEDY,
        )
    try:
        _check_chains(schema)
        return _closed({"type": "object", **schema}, what)
    except RecursionError:
        msg = f"The schema of {what} is too deeply nested."
        raise DeclarationError(msg, remedy=_REMEDY) from None


def ensure_strict_json_schema(schema: Schema) -> Schema:
    """Return the JSON Schema of an object as strict tools declare it, for one that is made by hand.

    Its objects are closed and all their properties required.

    Args:
        schema: The schema; it is not changed.

    Raises:
        DeclarationError: Strict mode cannot express it.
        WrongTypeError: It is not a dict.
    """
    given = cast("object", schema)
    if not isinstance(given, dict):
        raise WrongTypeError(f"A JSON Schema is a dict, that of an object; it was {shown(given)}.")
    return closed_schema(schema, what="a tool")


def _closed(schema: Schema, what: str) -> Schema:
    new = _inside(schema, lambda inner: _closed(inner, what))
    if len(new.get("allOf", ())) == 1:
        rest = _without(new, "allOf")
        wraps = rest.get("properties") == {}  # it restricts nothing
        new = {**new["allOf"][0], **(_without(rest, "properties") if wraps else rest)}
    if "oneOf" in new:
        new = {**_without(new, "oneOf"), "anyOf": [*new.get("anyOf", ()), *new["oneOf"]]}
    if "default" in new and new["default"] is None:
        del new["default"]
    if not _is_object(new):
        return new
    if new.get("additionalProperties") not in (None, False):
        raise DeclarationError(
            f"The schema of {what} holds an object with free keys (additionalProperties), which"
            " OpenAI's strict mode cannot express.",
            remedy=_REMEDY,
        )
    properties = new.get("properties", {})
    closed = {"properties": properties, "additionalProperties": False, "required": [*properties]}
    return {"type": "object", **new, **closed}


def _is_object(schema: Schema) -> bool:
    kind = schema.get("type")
    if kind is None:
        return "properties" in schema or "additionalProperties" in schema
    return kind == "object" or (isinstance(kind, list) and "object" in kind)


def _check_chains(schema: Schema) -> None:
    """Refuse definitions that refer to one another in a chain too long to be followed.

    Raises:
        RecursionError: There is such a chain.
    """
    definitions: Schema = schema.get("$defs", {})
    for start in definitions:
        name, seen = start, set[str]()
        while name in definitions and name not in seen:
            seen.add(name)
            reference = str(cast("Schema", definitions[name]).get("$ref", ""))
            name = reference.removeprefix("#/$defs/")
        if len(seen) > LONGEST_CHAIN:
            raise RecursionError


LONGEST_CHAIN = 100
"""Most definitions that refer to one another without anything else in them."""


def sent_schema(schema: Schema, *, strict: bool) -> tuple[Schema, bool]:
    """Return a schema as a model is sent it, and whether its API may enforce it.

    A schema that OpenAI's strict rules cannot express, such as that of a value of any type, is sent
    as it is, and not enforced.

    Args:
        schema: What a tool declares.
        strict: Whether it wants its schema enforced.
    """
    if not strict:
        return schema, False
    try:
        return strict_schema(schema, what="a tool"), True
    except DeclarationError:
        return schema, False


def _inside(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """Return the schema with each schema directly inside of it changed; other values stay."""
    new: Schema = {}
    for key, value in schema.items():
        if key in _MAPS:
            new[key] = {name: _changed(inner, change) for name, inner in value.items()}
        elif key in _LISTS:
            new[key] = [_changed(inner, change) for inner in value]
        else:
            new[key] = _changed(value, change) if key in _SINGLES else value
    return new


def _changed(inner: Json, change: Callable[[Schema], Schema]) -> Json:
    return change(cast("Schema", inner)) if isinstance(inner, dict) else inner


def _strict(schema: Schema, what: str) -> Schema:
    reference = schema.get("$ref")
    if reference and schema.keys() - {"$ref", "default"}:  # a reference may have no neighbours
        schema = {**_without(schema, "$ref"), "anyOf": [{"$ref": reference}]}
    if "oneOf" in schema:
        schema = {**_without(schema, "oneOf"), "anyOf": schema["oneOf"]}
    _refuse(schema, what)
    new = _inside(_without(schema, *_DROPPED), lambda inner: _strict(inner, what))
    if new.get("format") not in _FORMATS:
        new.pop("format", None)
    if any(mark in str(new.get("pattern", "")) for mark in _LOOKAROUNDS):
        del new["pattern"]
    if new.get("type") == "object":
        new |= {"additionalProperties": False, "required": list(new["properties"])}
    return new


def _refuse(schema: Schema, what: str) -> None:
    """Refuse a schema that strict mode cannot express."""
    kinds = ("type", "anyOf", "enum", "const", "$ref")
    reason = ""
    if not any(kind in schema for kind in kinds):
        reason = "a value of any type"
    elif schema.get("additionalProperties") not in (None, False) or (
        schema.get("type") == "object" and "properties" not in schema
    ):
        reason = "a dict with free keys"
    elif "prefixItems" in schema:
        reason = "a tuple"
    elif schema.get("type") == "array" and "items" not in schema:
        reason = "a list of anything"
    if reason:
        msg = f"The schema of {what} holds {reason}, which OpenAI's strict mode cannot express."
        raise DeclarationError(msg, remedy=_REMEDY)


def _without(schema: Schema, *keys: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in keys}
