"""Values copy, compare, hash and dump as pydantic's models do, only faster."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from holdfast.task.data.state import Carried
from holdfast.values.base import Json, Value
from holdfast.values.checks.gate import pointed_at


class Plain(Value):
    """A value with the usual kinds of fields."""

    number: float = 0
    many: tuple[int, ...] = ()
    data: dict[str, Any] = Field(default_factory=dict[str, Any])


class Child(Plain):
    """The same fields, another class."""


class Counting(Value):
    """A value with a private attribute."""

    number: float = 0
    _seen: list[int] = PrivateAttr(default_factory=list[int])

    def seeing(self, number: int) -> Counting:
        """Note a number, and return this value."""
        self._seen.append(number)
        return self


class Open(Value):
    """A value that takes fields of any name."""

    model_config = ConfigDict(extra="allow")
    number: float = 0


VALUES = [
    Plain(),
    Plain(number=0),
    Plain(number=1, many=(1, 2)),
    Plain(number=1, many=(1, 2), data={"a": [1]}),
    Plain(number=float("nan")),
    Plain.model_construct(number=1),
    Plain.model_construct(number=1, other=2),  # type: ignore[call-arg]
    Plain.model_construct(),
    Child(),
    Child(number=1, many=(1, 2)),
    Counting(number=1),
    Counting(number=1).seeing(1),
    Open(number=1),
    Open.model_validate({"number": 1, "more": 2}),
]


def parts(value: BaseModel) -> tuple[object, ...]:
    """Return all that makes a model's state, in a form that compares NaN with itself."""
    return (
        type(value),
        repr(value.__dict__),
        value.model_fields_set,
        value.__pydantic_extra__,
        value.__pydantic_private__,
    )


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_copy_is_the_one_that_pydantic_makes(value: Value) -> None:
    for update in (None, {}, {"number": 5}):
        own, pydantics = value.model_copy(update=update), BaseModel.model_copy(value, update=update)
        assert parts(own) == parts(pydantics)
    assert parts(value.model_copy(deep=True)) == parts(BaseModel.model_copy(value, deep=True))


def test_a_misspelt_field_is_an_error_in_a_copy_and_in_a_part() -> None:
    with pytest.raises(TypeError, match="Plain has no field nubmer"):
        Plain().model_copy(update={"nubmer": 1, "data": {}})
    with pytest.raises(ValueError, match="has no field"):
        Carried().ntoes = ()  # type: ignore[attr-defined]


@pytest.mark.parametrize("one", VALUES, ids=repr)
@pytest.mark.parametrize("other", [*VALUES, None, 1], ids=repr)
def test_values_are_equal_where_pydantics_are(one: Value, other: object) -> None:
    if one is other:
        assert one == other
        return
    assert (one == other) is (BaseModel.__eq__(one, other) is True)


@pytest.mark.parametrize("value", VALUES[:5], ids=repr)
def test_the_wire_form_has_what_is_not_a_default(value: Value) -> None:
    assert repr(value.wire()) == repr(value.model_dump(mode="json", exclude_defaults=True))


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("#/$defs/Box%5Bint%5D", {"type": "integer"}),
        ("#/$defs/Box[int]", {"type": "integer"}),
        ("#/$defs/a~1b", {"type": "null"}),
        ("#/$defs/a%7E0b", {"type": "array"}),
        ("#/anyOf/1", {"type": "string"}),
        ("#/anyOf/2", None),
        pytest.param("#/anyOf/" + "9" * 5000, None, id="a number of 5,000 digits"),
        ("#/$defs/nothing/more", None),
        ("other.json#/$defs/a", None),
        (7, None),
    ],
)
def test_a_reference_within_a_schema_is_a_json_pointer_in_a_uri(
    reference: object, found: Json
) -> None:
    root = {
        "$defs": {
            "Box[int]": {"type": "integer"},
            "a/b": {"type": "null"},
            "a~b": {"type": "array"},
        },
        "anyOf": [{}, {"type": "string"}],
    }
    assert pointed_at(root, reference) == found
    assert pointed_at(root, "#") is root
