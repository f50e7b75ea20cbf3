"""Objects that tools returned, made anew of what is recorded of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

import pytest
from pydantic import BaseModel, model_serializer

from holdfast.activities.tools.lookup import Ready
from holdfast.agents.tools.functions.signature import returned_object
from holdfast.values.code.typed_data import LONGEST_TEXT, Returned
from holdfast.values.messages import ToolCall
from holdfast.values.tool_result import render_result

if TYPE_CHECKING:
    from decimal import Decimal as Unknown


class City(BaseModel):
    name: str


class Loud(BaseModel):
    name: str

    def __str__(self) -> str:
        return f"{self.name}!"


class Broken(BaseModel):
    name: str

    def __str__(self) -> str:
        raise ValueError(self.name)


class Leaving(BaseModel):
    name: str

    def __str__(self) -> str:
        raise SystemExit(self.name)


class Once(BaseModel):
    name: str
    _is_written: bool = False

    @model_serializer
    def _write(self) -> dict[str, str]:
        if self._is_written:
            raise ValueError(self.name)
        self._is_written = True
        return {"name": self.name}


class Counted(BaseModel):
    name: str
    _seen: int = 0

    def see(self) -> Counted:
        self._seen += 1
        return self

    def __str__(self) -> str:
        return f"{self.name}, seen {self._seen} times"


@dataclass
class Place:
    city: City
    number: int = 1


class Colour(Enum):
    RED = "red"


class Word(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "a word"


def gives(kind: Any) -> Callable[..., Any]:
    """Make a function that is said to return this."""

    def give() -> Any: ...

    give.__annotations__["return"] = kind
    return give


def local() -> type[BaseModel]:
    """Make a class that a record cannot name."""

    class Inner(BaseModel):
        name: str

    return Inner


LOCAL = local()


class Socket:
    pass


@dataclass
class WithSocket:
    socket: Socket


@dataclass
class WithUnknown:
    price: Unknown


def ready(behavior: str) -> Ready:
    """Make a call of `look`, of an agent with this behaviour."""
    nothing = cast("Any", None)
    call = ToolCall(id="c", name="look", arguments="{}")
    return Ready(nothing, nothing, call, {}, nothing, nothing, nothing, behavior=behavior)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (7, "data", ""),
        (True, "data", ""),
        (1.5, "data", ""),
        ({"a": [1, None, True]}, "data", ""),
        ([], "data", ""),
        (City(name="Oslo"), f"{__name__}:City", ""),
        (Loud(name="Oslo"), f"{__name__}:Loud", ""),
        (Place(City(name="Oslo")), f"{__name__}:Place", ""),
        (Counted(name="Oslo").see(), f"{__name__}:Counted", "Oslo, seen 1 times"),
        ((1, "a"), "", "(1, 'a')"),
        ([City(name="Oslo")], "", "[City(name='Oslo')]"),
        (date(2026, 1, 31), "", "2026-01-31"),
        (Colour.RED, "", "Colour.RED"),
        (Word("5"), "text", "a word"),
        ({1: "a"}, "", "{1: 'a'}"),
        (tuple(range(LONGEST_TEXT)), "", ""),
    ],
)
def test_an_object_is_described_by_its_class_or_by_its_own_text(
    value: Any, kind: str, text: str
) -> None:
    assert Returned.of(value, render_result(value)) == Returned(kind=kind, text=text)


def test_what_can_be_written_only_once_does_not_fail_the_call_that_returned_it() -> None:
    value = Once(name="Oslo")
    text = render_result(value)
    assert ready("first").returned(value, text) is None


@pytest.mark.parametrize("value", [None, "text", Broken(name="Oslo"), Leaving(name="Oslo")])
def test_text_is_not_described_nor_what_raises_when_it_is_written(value: Any) -> None:
    assert Returned.of(value, "{}") is None


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (None, {"a": [1, None]}),
        (None, 7),
        (None, City(name="Oslo")),
        (None, Place(City(name="Oslo"), 2)),
        (gives(LOCAL), LOCAL.model_validate({"name": "Oslo"})),
        (gives(list[City]), [City(name="Oslo"), City(name="Bergen")]),
        (gives(tuple[int, str]), (1, "a")),
        (gives(date), date(2026, 1, 31)),
        (gives(Colour), Colour.RED),
    ],
)
def test_an_equal_object_is_made_anew(function: Callable[..., Any] | None, value: Any) -> None:
    text = render_result(value)
    described = Returned.of(value, text)
    assert described is not None
    made = returned_object(function, text, described)
    assert made == value
    assert type(made) is type(value)


@pytest.mark.parametrize(
    ("function", "kind", "text", "made"),
    [
        (gives(int), "", "[1,2]", [1, 2]),
        (None, "", "[1,2]", [1, 2]),
        (None, "gone.module:City", '{"name":"Oslo"}', {"name": "Oslo"}),
        (None, f"{__name__}:Place", '{"name":"Oslo"}', {"name": "Oslo"}),
        (gives(WithSocket), "", "{}", {}),
        (gives(WithUnknown), "", "{}", {}),
    ],
)
def test_what_cannot_be_made_anew_stays_data(
    function: Callable[..., Any] | None, kind: str, text: str, made: Any
) -> None:
    assert returned_object(function, text, Returned(kind=kind)) == made
