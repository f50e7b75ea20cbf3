"""OpenAI's strict rules."""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from agents.strict_schema import ensure_strict_json_schema as their_strict_schema
from pydantic import BaseModel, Field

from holdfast.agents.tools.decorator import tool
from holdfast.agents.tools.functions.schema import (
    ensure_strict_json_schema,
    object_schema,
    strict_schema,
    without_titles,
)
from holdfast.errors import InvalidArgumentError
from holdfast.testing.fake_api.checks.requests import strict_problem


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"


@dataclass
class Place:
    lat: float
    lon: float | None = None


class Tree(BaseModel):
    name: str
    leaves: list[Tree] = []


def strict(function: Callable[..., Any]) -> dict[str, Any]:
    return tool(function, strict=True).spec().parameters


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if schema.get("type") == "object":  # pyright: ignore[reportUnknownMemberType]
            yield schema  # pyright: ignore[reportUnknownVariableType]
        for inner in schema.values():  # pyright: ignore[reportUnknownVariableType]
            yield from objects(inner)
    elif isinstance(schema, list):
        for inner in schema:  # pyright: ignore[reportUnknownVariableType]
            yield from objects(inner)


def test_all_properties_are_required_and_defaults_are_gone() -> None:
    def f(a: int, b: str = "x", c: int | None = None) -> None: ...

    assert strict(f) == {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "string"},
            "c": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        },
        "required": ["a", "b", "c"],
        "additionalProperties": False,
    }


def test_nested_objects_are_closed_too() -> None:
    def f(
        animal: Annotated[Cat | Dog, Field(discriminator="kind")], tree: Tree, places: list[Place]
    ) -> None: ...

    schema = strict(f)
    found = list(objects(schema))
    assert len(found) == 5
    for inner in found:
        assert inner["additionalProperties"] is False
        assert inner["required"] == list(inner["properties"])
    for word in ("default", "oneOf", "discriminator", "title"):
        assert f"'{word}'" not in str(schema)


def test_constraints_that_cannot_be_enforced_are_dropped_but_still_validated() -> None:
    def f(name: Annotated[str, Field(max_length=3, pattern="^a")], day: dt.date) -> None: ...
    def g(path: Path, price: Decimal, tags: set[str], n: Annotated[int, Field(ge=1)]) -> None: ...

    properties = strict(f)["properties"] | strict(g)["properties"]
    assert properties["name"] == {"type": "string", "pattern": "^a"}
    assert properties["day"] == {"type": "string", "format": "date"}
    assert properties["path"] == {"type": "string"}
    assert properties["price"] == {"anyOf": [{"type": "number"}, {"type": "string"}]}
    assert properties["tags"] == {"type": "array", "items": {"type": "string"}}
    assert properties["n"] == {"type": "integer", "minimum": 1}


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        (Any, "any type"),
        (dict[str, int], "free keys"),
        (dict, "free keys"),
        (list[dict[str, Any]], "free keys"),
        (list, "type"),
        (tuple[int, str], "tuple"),
        (list[Any] | None, "any type"),
    ],
)
def test_what_strict_mode_cannot_say_is_refused_with_the_way_out(
    annotation: Any, reason: str
) -> None:
    def f(x: Any) -> None: ...

    f.__annotations__["x"] = annotation
    with pytest.raises(InvalidArgumentError, match=f"'f'.*{reason}.*strict=False"):
        strict(f)
    assert tool(f).spec().parameters


def test_a_type_that_contains_itself_is_an_object_at_the_top() -> None:
    schema = strict_schema(object_schema(without_titles(Tree.model_json_schema())), what="x")
    assert strict_problem(schema) == ""
    assert schema["properties"]["leaves"] == {"type": "array", "items": {"$ref": "#/$defs/Tree"}}
    assert schema["$defs"]["Tree"]["properties"] == schema["properties"]


def test_schemas_from_elsewhere_follow_the_same_rules() -> None:
    schema = {
        "type": "object",
        "properties": {"code": {"type": "string", "pattern": "^(?!x)", "minLength": 1}},
    }
    assert strict_schema(schema, what="x")["properties"] == {"code": {"type": "string"}}
    schema["properties"] = {"codes": {"type": "array"}}
    with pytest.raises(InvalidArgumentError, match="a list of anything"):
        strict_schema(schema, what="x")


BY_HAND: list[dict[str, Any]] = [
    {},
    {"type": "object", "properties": {"a": {"type": "string", "default": None}}},
    {
        "type": "object",
        "properties": {
            "a": {"anyOf": [{"type": "object", "properties": {}}, {"$ref": "#/$defs/X"}]}
        },
        "$defs": {"X": {"type": "object", "properties": {"b": {"type": "integer"}}}},
    },
]


@pytest.mark.parametrize("schema", BY_HAND)
def test_a_schema_made_by_hand_is_made_strict_as_in_the_agents_sdk(schema: dict[str, Any]) -> None:
    before = copy.deepcopy(schema)
    assert ensure_strict_json_schema(schema) == their_strict_schema(copy.deepcopy(schema))
    assert schema == before
    with pytest.raises(InvalidArgumentError, match="free keys"):
        ensure_strict_json_schema({"type": "object", "additionalProperties": True})
