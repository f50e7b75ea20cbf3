"""The rules that a schema must follow when a provider is to enforce it."""

from __future__ import annotations

from holdfast.values.base import Json
from holdfast.values.checks.gate import as_object, is_array, is_object


def strict_problem(schema: dict[str, Json], context: tuple[str, ...] = ()) -> str:
    """Return the first breach of the strict rules in `schema`, or an empty text.

    Every object must forbid additional properties and require all of its own; the outermost schema
    must be an object.
    """
    if not context and schema.get("type") != "object":
        return f"schema must be a JSON Schema of 'type: \"object\"', got {schema.get('type')!r}."
    if schema.get("type") == "object" or "properties" in schema:
        properties = as_object(schema.get("properties"))
        if schema.get("additionalProperties") is not False:
            return (
                f"In context={context}, 'additionalProperties' is required to be supplied and to be"
                " false."
            )
        required: Json = schema.get("required")
        for name in properties:
            if name not in (required if is_array(required) else []):
                return (
                    f"In context={context}, 'required' is required to be supplied and to be an"
                    f" array including every key in properties. Missing {name!r}."
                )
    for place, inner in _inner(schema):
        problem = strict_problem(inner, (*context, *place))
        if problem:
            return problem
    return ""


def _inner(schema: dict[str, Json]) -> list[tuple[tuple[str, ...], dict[str, Json]]]:
    found: list[tuple[tuple[str, ...], dict[str, Json]]] = []
    for key in ("properties", "$defs", "definitions"):
        for name, inner in as_object(schema.get(key)).items():
            found.append(((key, name), as_object(inner)))
    for key in ("anyOf", "allOf"):
        options: Json = schema.get(key)
        for index, inner in enumerate(options if is_array(options) else []):
            found.append(((key, str(index)), as_object(inner)))
    items: Json = schema.get("items")
    if is_object(items):
        found.append((("items",), items))
    return found
