"""Rewriting JSON Schemas for models: no titles, and OpenAI's strict rules.

Source of the strict rules: OpenAI, "Structured model outputs", section "Supported schemas".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from holdfast.errors import InvalidArgumentError
from holdfast.values.base import Json

Schema = dict[str, Json]

_MAPS = ("properties", "$defs", "patternProperties")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLES = ("items", "additionalProperties", "not", "contains", "propertyNames")

_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)
# Not enforced by the provider; the arguments are validated against them all the same.
_DROPPED = ("default", "discriminator", "examples", "minLength", "maxLength", "uniqueItems")
_LOOKAROUNDS = ("(?=", "(?!", "(?<=", "(?<!")


def without_titles(schema: Schema) -> Schema:
    """Return the schema without titles: the model pays for each and learns nothing from them."""
    return {key: value for key, value in _inside(schema, without_titles).items() if key != "title"}


def is_same_shape(one: Schema, other: Schema) -> bool:
    """Whether two schemas take the same data; what they say about it may differ."""
    return one == other or _shape(one) == _shape(other)


def _shape(schema: Schema) -> Schema:
    inner = _inside(schema, _shape)
    return {key: value for key, value in inner.items() if key not in _WORDS}


_WORDS = frozenset({"title", "description", "examples"})
"""Keywords of a schema that are for readers."""


def object_schema(schema: Schema) -> Schema:
    """Return the schema of a type that may contain itself with that type at the top.

    pydantic puts such a type among the definitions and refers to it, but providers want to find an
    object where a schema begins. The definitions stay: the type refers to itself by them.

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
    provider cannot enforce, are left out.

    Args:
        schema: JSON Schema of an object, as pydantic makes it.
        what: What it describes, for the error text.

    Raises:
        InvalidArgumentError: It holds something that strict mode cannot express.
    """
    return _strict(schema, what)


def _inside(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """Return the schema with each schema directly inside it changed; data is left alone."""
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
    """Refuse what has no form in strict mode."""
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
        remedy = (
            "Give it a precise type (a dataclass or pydantic model, list[str], ...) or use"
            " strict=False."
        )
        raise InvalidArgumentError(msg, remedy=remedy)


def _without(schema: Schema, *keys: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in keys}
