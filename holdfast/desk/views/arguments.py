"""The arguments of a tool call, typed as the schema of the tool says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from holdfast.desk.views.words import data_of, object_of, pretty
from holdfast.errors import InvalidArgumentError
from holdfast.values.base import Json
from holdfast.values.checks.json_shapes import as_object, pointed_at
from holdfast.values.text.decided import exact, for_decision

FieldKind = Literal["text", "integer", "number", "boolean", "choice", "json"]
_KINDS: Mapping[str, FieldKind] = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
}


@dataclass(frozen=True, kw_only=True)
class Field:
    """One argument of a call.

    Attributes:
        name: Its name.
        kind: How it is shown and edited; "json" for lists and objects.
        type: Its type in the words of the schema.
        value: What the model proposes; None when it was left out as well.
        is_given: Whether the model gave it.
        is_required: Whether the schema asks for it.
        is_nullable: Whether it may be null.
        description: What the schema says of it.
        choices: The values that it may have, when the schema lists them.
        is_uncovered: Whether its secrets are shown as well.
    """

    name: str
    kind: FieldKind
    type: str
    value: Json = None
    is_given: bool = True
    is_required: bool = False
    is_nullable: bool = False
    description: str = ""
    choices: tuple[Json, ...] = ()
    is_uncovered: bool = False

    @property
    def text(self) -> str:
        """The value for people, without secrets unless they were uncovered."""
        if not self.is_given:
            return ""
        return (exact if self.is_uncovered else for_decision)(pretty(self.value))

    @property
    def is_secret(self) -> bool:
        """Whether the text hides a part of the value."""
        return self.is_given and self.text != exact(pretty(self.value))


@dataclass(frozen=True, kw_only=True)
class Difference:
    """An argument that an edit has changed; a text is empty where the argument is left out."""

    name: str
    old: str
    new: str


def fields_of(
    arguments: str, schema: Mapping[str, Json] | None, *, is_uncovered: bool = False
) -> tuple[Field, ...]:
    """Return the arguments in the order of the schema, then the ones it does not know.

    Args:
        arguments: JSON text, as the model wrote it.
        schema: JSON Schema of the arguments object; None when it is not known.
        is_uncovered: Whether secrets are shown as well.

    Returns:
        No fields when the arguments are not an object.
    """
    given = object_of(data_of(arguments or "{}"))
    if given is None:
        return ()
    root: Mapping[str, Any] = schema or {}
    properties = cast("dict[str, Any]", root.get("properties") or {})
    required = cast("list[str]", root.get("required") or [])
    names = [*properties, *(name for name in given if name not in properties)]
    made = (
        _field(name, properties.get(name), given, root, is_required=name in required)
        for name in names
    )
    return tuple(replace(each, is_uncovered=is_uncovered) for each in made)


def parsed(text: str, field: Field) -> Json:
    """Return the value that a person has typed for an argument.

    Raises:
        InvalidArgumentError: It is not of the argument's type.
    """
    match field.kind:
        case "text":
            return text
        case "integer" | "number":
            return _number(text, field)
        case "boolean" | "choice" | "json":
            try:
                value: Json = json.loads(text)
            except (ValueError, RecursionError) as cause:
                msg = f"{field.name} must be JSON ({field.type}): {cause}"
                raise InvalidArgumentError(msg) from cause
            return value


def differences(old: Mapping[str, Json], new: Mapping[str, Json]) -> tuple[Difference, ...]:
    """List the arguments that differ, in the order of the old ones, then new ones."""
    names = [*old, *(name for name in new if name not in old)]
    return tuple(
        Difference(name=name, old=_shown(old, name), new=_shown(new, name))
        for name in names
        if name not in old or name not in new or old[name] != new[name]
    )


def _shown(values: Mapping[str, Json], name: str) -> str:
    return for_decision(pretty(values[name])) if name in values else ""


def _number(text: str, field: Field) -> int | float:
    try:
        return int(text) if field.kind == "integer" else float(text)
    except ValueError as cause:
        what = "a whole number" if field.kind == "integer" else "a number"
        msg = f"{field.name} must be {what}; it was {text!r}."
        raise InvalidArgumentError(msg) from cause


def _field(
    name: str, schema: object, given: dict[str, Json], root: Mapping[str, Any], *, is_required: bool
) -> Field:
    found = _resolved(schema, root)
    types = _types(found)
    plain = [each for each in types if each != "null"]
    choices = tuple(cast("list[Json]", found.get("enum") or ()))
    kind: FieldKind = "choice" if choices else "json"
    if not choices and len(plain) == 1:
        kind = _KINDS.get(plain[0], "json")
    if not choices and not plain:
        kind = _kind_of(given.get(name))
    value = given.get(name, found.get("default"))
    if not _fits(value, kind):
        kind = "json"
    return Field(
        name=name,
        kind=kind,
        type=" or ".join(types) or kind,
        value=value,
        is_given=name in given,
        is_required=is_required,
        is_nullable="null" in types,
        description=str(found.get("description") or ""),
        choices=choices,
    )


def _resolved(schema: object, root: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema, or the one of the same document that it refers to."""
    found = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
    if "$ref" not in found:
        return found
    named = as_object(pointed_at(root, found["$ref"]))
    return {**named, **{key: value for key, value in found.items() if key != "$ref"}}


def _types(schema: Mapping[str, Any]) -> list[str]:
    kind = schema.get("type")
    if isinstance(kind, str):
        return [kind]
    if isinstance(kind, list):
        return [str(each) for each in cast("list[object]", kind)]
    options = cast("list[object]", schema.get("anyOf") or schema.get("oneOf") or [])
    found: list[str] = []
    for option in options:
        if isinstance(option, dict):
            found += _types(cast("dict[str, Any]", option))
    return list(dict.fromkeys(found))


def _kind_of(value: Json) -> FieldKind:
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "text"
        case _:
            return "json"


def _fits(value: Json, kind: FieldKind) -> bool:
    """Whether a value can be shown in a field of a kind: models write what they like."""
    if value is None or kind in ("json", "choice"):
        return True
    found = _kind_of(value)
    return found == kind or (kind == "number" and found == "integer")
