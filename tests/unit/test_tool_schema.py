"""From signature and docstring to JSON Schema, and back to arguments."""

# Annotations are strings here, as in most code that users write.
from __future__ import annotations

import copy
import datetime as dt
import enum
import functools
import math
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Optional

import agents
import agents.tool_context
import pydantic
import pytest
from agents.strict_schema import ensure_strict_json_schema as their_strict_schema
from pydantic import AliasChoices, BaseModel, Field
from pydantic.json_schema import PydanticJsonSchemaWarning
from typing_extensions import TypedDict

from holdfast.agents.tools.arguments import ToolArgumentsError
from holdfast.agents.tools.context import ToolContext
from holdfast.agents.tools.decorator import tool
from holdfast.agents.tools.functions.function_schema import FuncSchema, function_schema
from holdfast.agents.tools.functions.schema import (
    ensure_strict_json_schema,
    object_schema,
    strict_schema,
    without_titles,
)
from holdfast.errors import DeclarationError, InvalidArgumentError, ModelBehaviorError, UserError
from holdfast.testing.fake_api.checks.requests import strict_problem
from holdfast.values.runs.run_context import AgentHookContext, RunContextWrapper

if TYPE_CHECKING:
    from decimal import Context as OnlyForCheckers


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Guest(BaseModel):
    """Who stays."""

    name: str
    title: str = "Ms"


@dataclass
class Place:
    lat: float
    lon: float = 0.0


class Filters(TypedDict):
    stars: int
    pool: NotRequired[bool]


def lenient(
    function: Callable[..., Any], *, name: str | None = None, description: str | None = None
) -> FuncSchema:
    return function_schema(function, None, name, description, strict_json_schema=False)


def properties(function: Callable[..., Any]) -> dict[str, Any]:
    return typing.cast("dict[str, Any]", lenient(function).parameters["properties"])


def test_unannotated_parameters_take_anything() -> None:
    made: dict[str, Any] = {}
    exec("def say(what, loud=False): return what, loud", made)
    schema = lenient(made["say"])
    assert schema.parameters["properties"] == {"what": {}, "loud": {"default": False}}
    assert schema.values('{"what": [1]}') == {"what": [1]}


def test_json_becomes_what_the_annotations_say() -> None:
    def book(colour: Colour, guest: Guest, place: Place, filters: Filters) -> None: ...
    def plan(
        day: dt.date, kind: Literal["a", 1], tags: set[str], pair: tuple[int, str]
    ) -> None: ...

    values = lenient(book).values(
        """{"colour": "blue", "guest": {"name": "Ann"}, "place": {"lat": 1},
            "filters": {"stars": 3}}"""
    ) | lenient(plan).values(
        """{"day": "2030-01-02", "kind": 1, "tags": ["x"], "pair": [1, "y"]}"""
    )
    assert values == {
        "colour": Colour.BLUE,
        "guest": Guest(name="Ann"),
        "place": Place(1.0),
        "filters": {"stars": 3},
        "day": dt.date(2030, 1, 2),
        "kind": 1,
        "tags": {"x"},
        "pair": (1, "y"),
    }


def test_titles_are_left_out_but_a_property_named_title_stays() -> None:
    def book(guest: Guest, title: str = "title") -> None: ...

    schema = lenient(book).parameters
    assert schema["$defs"]["Guest"] == {
        "description": "Who stays.",
        "type": "object",
        "properties": {"name": {"type": "string"}, "title": {"type": "string", "default": "Ms"}},
        "required": ["name"],
    }
    assert schema["properties"]["title"] == {"type": "string", "default": "title"}
    assert "title" not in schema


@pytest.mark.parametrize(
    "name", ["schema", "json", "copy", "model_config", "_hidden", "p1", "class_"]
)
def test_no_parameter_name_collides_with_pydantic(name: str) -> None:
    made: dict[str, Any] = {}
    exec(f"def f({name}: int, other: int = 2): return {name}", made)
    schema = lenient(made["f"])
    assert list(schema.parameters["properties"]) == [name, "other"]
    assert schema.values(f'{{"{name}": 7}}') == {name: 7}


def test_annotated_texts_and_fields_describe_and_constrain() -> None:
    def f(
        a: Annotated[int, "plain text"],
        b: Annotated[int, Field(ge=1, description="from field")] = 2,
        c: Annotated[str, Field(max_length=3), "text beside a field"] = "x",
    ) -> None:
        """Do.

        Args:
            a: the docstring wins
            b: over the field, too
        """

    assert properties(f) == {
        "a": {"type": "integer", "description": "the docstring wins"},
        "b": {"type": "integer", "default": 2, "minimum": 1, "description": "over the field, too"},
        "c": {
            "type": "string",
            "default": "x",
            "maxLength": 3,
            "description": "text beside a field",
        },
    }
    with pytest.raises(pydantic.ValidationError):
        lenient(f).values('{"a": 1, "b": 0}')


def test_a_field_may_be_the_default() -> None:
    a = Field(5, ge=1, description="d")
    b = Field(default_factory=lambda: [7])

    def f(a: int = a, b: list[int] = b) -> None: ...

    schema = lenient(f)
    assert schema.parameters["properties"]["a"] == {
        "type": "integer",
        "default": 5,
        "minimum": 1,
        "description": "d",
    }
    assert "required" not in schema.parameters
    assert schema.values("{}") == {"a": 5, "b": [7]}


def test_an_alias_of_a_field_is_the_name_of_the_argument() -> None:
    def f(
        start: Annotated[int, Field(alias="from")],
        end: int = Field(5, validation_alias=AliasChoices("to", "till"), description="The last."),
    ) -> None:
        """Do it.

        Args:
            start: The first.
        """

    schema = lenient(f)
    assert {name: each["description"] for name, each in properties(f).items()} == {
        "from": "The first.",
        "to": "The last.",
    }
    assert schema.values('{"from": 1, "to": 2}') == {"start": 1, "end": 2}
    assert schema.values('{"from": 1}') == {"start": 1, "end": 5}
    assert schema.is_as_written('{"from": 1, "to": 2}')
    assert not schema.is_as_written('{"from": 1, "till": 2}')
    with pytest.raises(
        ToolArgumentsError, match=r"start: no such .*; the parameters are: from, to"
    ):
        tool(f, strict_mode=False).parse('{"start": 1}')


def test_an_alias_that_another_parameter_has_is_refused() -> None:
    def f(a: int, b: Annotated[int, Field(alias="a")]) -> None: ...

    with pytest.raises(DeclarationError, match="name both parameters, 'a' and 'b', 'a'"):
        lenient(f)

    def g(a: int = Field(validation_alias=AliasChoices("x", "b")), b: int = 0) -> None: ...

    with pytest.raises(DeclarationError, match="name both parameters, 'a' and 'b', 'b'"):
        lenient(g)


def test_none_as_default_allows_null() -> None:
    def f(a: Any, b: Any, c: str | None = None) -> None: ...

    f.__defaults__ = (None, None, None)
    f.__annotations__ |= {"a": int, "b": Annotated[int, Field(ge=1)]}
    schema = lenient(f)
    assert schema.values('{"a": null, "b": null, "c": null}') == {"a": None, "b": None, "c": None}
    assert schema.parameters["properties"]["c"]["anyOf"] == [{"type": "string"}, {"type": "null"}]


GOOGLE = """Book a hotel.

Prices are in euros.

Args:
    city: Where to stay,
        in English.
    nights (int): How long.

Returns:
    The booking.

Raises:
    ValueError: Never.
"""
NUMPY = """Book a hotel.

Prices are in euros.

Parameters
----------
city : str
    Where to stay,
    in English.
nights : int, optional
    How long.

Returns
-------
str
    The booking.
"""
SPHINX = """Book a hotel.

Prices are in euros.

:param city: Where to stay,
    in English.
:param int nights: How long.
:returns: The booking.
:raises ValueError: Never.
"""


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_each_docstring_style_describes_tool_and_parameters(
    docstring: str, caplog: pytest.LogCaptureFixture
) -> None:
    def book(ctx: ToolContext, city: str, nights: int = 1) -> None: ...

    book.__doc__ = docstring
    schema = lenient(book)
    assert schema.description == "Book a hotel.\n\nPrices are in euros."
    assert schema.parameters["properties"]["city"]["description"] == "Where to stay, in English."
    assert schema.parameters["properties"]["nights"]["description"] == "How long."
    assert caplog.records == []


@pytest.mark.parametrize(
    "annotation",
    [
        "tool_context.ToolContext",
        "ToolContext | None",
        "Annotated[ToolContext, 'why not']",
        "Optional[ToolContext[dict[str, int]]]",
        ToolContext[Any],
        "RunContextWrapper[OnlyForCheckers]",
        "Optional[RunContextWrapper[OnlyForCheckers]]",
        Optional["RunContextWrapper[OnlyForCheckers]"],
        Annotated["RunContextWrapper[OnlyForCheckers]", "why not"],
        RunContextWrapper[Place],
        AgentHookContext,
    ],
)
def test_the_context_is_hidden_however_it_is_annotated(annotation: Any) -> None:
    def f(c: Any, x: int) -> None: ...

    f.__annotations__["c"] = annotation
    schema = lenient(f)
    assert (schema.context, list(schema.parameters["properties"])) == ("c", ["x"])
    assert schema.bind({"c": "CTX", "x": 1}) == (["CTX"], {"x": 1})


@pytest.mark.parametrize(
    "annotation",
    [
        agents.RunContextWrapper,
        agents.RunContextWrapper[Any],
        agents.tool_context.ToolContext[Any] | None,
        "agents.RunContextWrapper[OnlyForCheckers]",
    ],
)
@pytest.mark.parametrize("parameter", ["a", "b"])
def test_a_context_of_another_library_is_refused(annotation: Any, parameter: str) -> None:
    def f(a: int, b: int) -> None: ...

    f.__annotations__[parameter] = annotation
    with pytest.raises(UserError, match=r"from holdfast import (RunContextWrapper|ToolContext)"):
        lenient(f)


def test_star_parameters_are_a_list_and_a_dict() -> None:
    def f(a: int, b: int = 2, *rest: float, loud: bool = False, **more: str) -> Any:
        """Do.

        Args:
            a: one
            *rest: several
            **more: others
        """
        return a, b, rest, loud, more

    schema = lenient(f)
    assert properties(f)["rest"] == {
        "type": "array",
        "items": {"type": "number"},
        "description": "several",
    }
    assert properties(f)["more"]["additionalProperties"] == {"type": "string"}
    values = schema.values('{"a": 1, "rest": [5, 6], "more": {"x": "y"}}')
    positional, named = schema.bind(values)
    assert f(*positional, **named) == (1, 2, (5, 6), False, {"x": "y"})
    bare, none = schema.bind(schema.values('{"a": 1}'))
    assert f(*bare, **none) == (1, 2, (), False, {})
    twice = "'a', 'loud' are both a named parameter and a key in 'more'"
    with pytest.raises(ToolArgumentsError, match=twice):
        tool(f, strict_mode=False).parse('{"a": 1, "more": {"loud": "x", "a": "y", "b2": "z"}}')
    data = schema.params_pydantic_model.model_validate({"a": 1, "more": {"loud": "x"}})
    with pytest.raises(ModelBehaviorError, match="tool f: 'loud' is both"):
        schema.to_call_args(data)
    with pytest.raises(UserError, match=r"\*\*more.*strict_mode=False.*nested object 'more'"):
        function_schema(f)


class Desk:
    def book(self, city: str, guest: Guest | None = None) -> str:
        """Book."""
        return f"{city} {guest}"

    @staticmethod
    def rate(stars: int) -> int:
        return stars

    def __call__(self, nights: int) -> int:
        """Count nights."""
        return nights


def test_bound_methods_lose_self() -> None:
    schema = lenient(Desk().book)
    assert (schema.name, schema.description) == ("book", "Book.")
    assert list(schema.parameters["properties"]) == ["city", "guest"]
    assert list(properties(Desk.rate)) == ["stars"]


def test_what_a_partial_binds_is_not_told_to_the_model() -> None:
    def call(ctx: ToolContext, key: str, city: str, nights: int = 1) -> str:
        """Call."""
        return f"{ctx}{key}{city}{nights}"

    schema = lenient(functools.partial(call, key="secret"))
    assert (schema.name, schema.description, schema.context) == ("call", "Call.", "ctx")
    assert list(schema.parameters["properties"]) == ["city", "nights"]
    assert "secret" not in str(schema.parameters)
    positional = lenient(functools.partial(functools.partial(call, ToolContext()), "secret"))
    assert list(positional.parameters["properties"]) == ["city", "nights"]
    assert positional.context is None


def test_positional_only_parameters_are_passed_by_position() -> None:
    def f(ctx: ToolContext, a: int, b: int = 2, /, c: int = 3) -> int:
        return a + b + c

    schema = lenient(f)
    values = {"ctx": "CTX"} | schema.values('{"a": 1, "c": 9}')
    assert schema.bind(values) == (["CTX", 1, 2], {"c": 9})
    assert list(lenient(math.sqrt).parameters["properties"]) == ["x"]


def test_what_is_left_out_keeps_the_functions_own_default() -> None:
    missing = object()

    def f(a: int = 1, b: Any = missing) -> object:
        return b

    with pytest.warns(PydanticJsonSchemaWarning, match="is not JSON serializable"):
        schema = lenient(f)
    assert (schema.values("{}"), schema.parameters["properties"]["b"]) == ({}, {})


def test_an_unknown_name_in_the_return_type_does_not_matter() -> None:
    def f(x: int) -> OnlyForCheckers:
        raise NotImplementedError

    assert list(properties(f)) == ["x"]


def test_decorated_functions_are_looked_through() -> None:
    def loud(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @loud
    def stay(guest: Guest) -> None:
        """Stay."""

    @functools.cache
    def cached(x: int) -> int:
        return x

    assert (lenient(stay).description, list(properties(stay))) == ("Stay.", ["guest"])
    assert list(properties(cached)) == ["x"]


# ---- openAI's strict rules


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"


@dataclass
class Spot:
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
        animal: Annotated[Cat | Dog, Field(discriminator="kind")], tree: Tree, places: list[Spot]
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
