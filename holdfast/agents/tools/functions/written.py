"""Whether a value is what a model wrote, or what became of it; the defaults that functions make."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import date, time
from enum import Enum
from pathlib import PurePath
from typing import Any, cast
from uuid import UUID

from pydantic import AliasChoices, BaseModel, RootModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema, to_jsonable_python

from holdfast.values.base import Json
from holdfast.values.checks.json_shapes import is_array, is_object

_NAMES = (date, time, UUID, PurePath)
"""Types whose text says all, since nothing is computed with them: `datetime` is a `date`."""


def is_as_written(value: object, given: Json) -> bool:
    """Whether a value has the kind and the content of JSON data.

    Models and dataclasses are compared with objects by all their fields, enumerations by their
    values; dates, times, UUIDs and paths with the text that pydantic writes. A whole number where a
    float is expected counts as written so, and True is not 1. Nothing else is as written: a Decimal
    is not text, whatever it is written as.

    Args:
        value: What was made of the data.
        given: The data.
    """
    whole: Any = value  # isinstance alone loses the types of its parts
    if isinstance(value, RootModel):
        return is_as_written(whole.root, given)
    if isinstance(value, Enum):
        return is_as_written(value.value, given)
    if isinstance(value, set | frozenset) and is_array(given):
        return is_as_written(sorted(whole, key=repr), sorted(given, key=repr))
    if isinstance(value, list | tuple):
        same_length = is_array(given) and len(whole) == len(given)
        return same_length and all(map(is_as_written, whole, given))
    members = _members(whole, given) if is_object(given) else None
    if members is not None:
        return members.keys() == given.keys() and all(
            is_as_written(members[key], given[key]) for key in given
        )
    if isinstance(value, _NAMES):
        return bool(to_jsonable_python(value) == given)
    is_plain = value is None or isinstance(value, bool | int | float | str)
    return is_plain and value == given and isinstance(value, bool) == isinstance(given, bool)


def _members(value: object, given: Mapping[str, Json]) -> Mapping[Any, Any] | None:
    """Return an object's members by their keys in JSON; None if it is not an object."""
    whole: Any = value  # as above
    if isinstance(value, dict):
        members: dict[Any, Any] = whole
        return members
    if isinstance(value, BaseModel):
        known = type(value).model_fields
        named = {_key(name, each.validation_alias, given): name for name, each in known.items()}
        return {key: getattr(value, name) for key, name in named.items()} | (
            value.model_extra or {}
        )
    if dataclasses.is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    return None


def _key(name: str, alias: object, given: Mapping[str, Json]) -> str:
    """Return under which key a field was given: its alias, or, where models take it, its name.

    Of several aliases that is the first, by which others read the data.
    """
    if isinstance(alias, AliasChoices):
        alias = alias.choices[0]
    return alias if isinstance(alias, str) and (alias in given or name not in given) else name


MADE_LATER = "made by the tool when it runs"
"""What people are shown of a default that is another one each time."""


class MadeDefaults(GenerateJsonSchema):
    """Tells the defaults that functions make as well, which pydantic leaves out."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Return the schema of a value that may be left out."""
        found = {**super().default_schema(schema)}
        if "default_factory" in schema:
            found["default"] = self._made(schema["default_factory"])
        return found

    def _made(self, make: Callable[..., Any]) -> Json:
        """Return what a function makes, if it makes the same each time."""
        try:
            first, second = (self.encode_default(make()) for _ in range(2))
        except Exception:  # noqa: BLE001  it takes other arguments, or the call tells how it fails
            return MADE_LATER
        return first if first == second else MADE_LATER


def makes_defaults(model: type[BaseModel]) -> bool:
    """Whether a model has a default that a function makes, at any depth."""
    parts: list[Any] = [model.__pydantic_core_schema__]
    for part in parts:  # it grows while it is read
        if isinstance(part, dict):
            if "default_factory" in part:
                return True
            parts.extend(cast("dict[str, Any]", part).values())
        elif isinstance(part, list | tuple):
            parts.extend(cast("list[Any]", part))
    return False
