"""Results as text for the model."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel, SecretStr

from holdfast.agents.tools.decorator import ToolResultError, render_result
from holdfast.errors import HoldfastError


class Level(enum.StrEnum):
    HIGH = "high"


class Colour(enum.Enum):
    RED = "red"


class Booking(BaseModel):
    id: int
    day: dt.date = dt.date(2030, 1, 2)
    secret: SecretStr = SecretStr("hidden")


@dataclass
class Place:
    lat: float
    name: str = "Zürich"


class Pair(NamedTuple):
    a: int
    b: int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain \n text", "plain \n text"),
        ("", ""),
        (Level.HIGH, "high"),
        (Colour.RED, '"red"'),
        (None, "None"),
        (True, "true"),
        (3, "3"),
        (1.0, "1.0"),
        ([1, None, "x"], '[1,null,"x"]'),
        ({"a": (1, 2)}, '{"a":[1,2]}'),
        (Pair(1, 2), "[1,2]"),
        (Booking(id=1), '{"id":1,"day":"2030-01-02","secret":"**********"}'),
        ([Place(1.5)], '[{"lat":1.5,"name":"Zürich"}]'),
        (dt.datetime(2030, 1, 2, tzinfo=dt.UTC), '"2030-01-02T00:00:00Z"'),
        (dt.timedelta(seconds=3), '"PT3S"'),
        (Decimal("1.10"), '"1.10"'),
        (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Path("a/b"), '"a/b"'),
        (b"abc", '"abc"'),
        ({1: "a"}, '{"1":"a"}'),
        (10**30, "1" + "0" * 30),
    ],
)
def test_values_become_text(value: Any, text: str) -> None:
    assert render_result(value) == text


def endless() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize(
    ("value", "type_name"),
    [
        (object(), "object"),
        (b"\xff", "bytes"),
        ([object()], "list"),
        (endless(), "list"),
        (len, "builtin_function_or_method"),
        (ValueError("x"), "ValueError"),
        ({"a": "\ud800"}, "dict"),
    ],
)
def test_other_values_are_refused_with_the_remedy(value: Any, type_name: str) -> None:
    with pytest.raises(ToolResultError, match=r"Tool 'look'.*Return a str") as caught:
        render_result(value, tool="look")
    assert (caught.value.tool, caught.value.type_name) == ("look", type_name)
    assert isinstance(caught.value, HoldfastError)
