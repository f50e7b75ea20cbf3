"""Results as text for the model."""

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
from holdfast.values.tool_result import read_whole


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


def breaking() -> Any:
    yield 1
    msg = "the connection is closed"
    raise OSError(msg)


class Rude:
    """A result whose own code raises."""

    @property
    def source_nodes(self) -> Any:
        raise OSError

    def __str__(self) -> str:
        raise OSError


class Ruder(BaseModel):
    """A result that looks like an output of a known type."""

    type: str = "text"

    def model_dump(self, **_: Any) -> Any:
        raise OSError


class DataFrame(dict[str, Any]):
    """A result that is a dict, and is not."""

    def __bool__(self) -> bool:
        msg = "The truth value is ambiguous"
        raise ValueError(msg)


async def later() -> str:
    return "paid"


async def parts() -> Any:
    yield "paid"


def test_a_result_that_nobody_awaited_is_told_as_what_has_not_run() -> None:
    waiting = later()
    for value in (waiting, parts()):
        with pytest.raises(ToolResultError, match=r"has not run\. Did its code forget `await`"):
            read_whole(value, tool="pay")
    waiting.close()


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
        (breaking(), "generator"),
        (Rude(), "Rude"),
        (Ruder(), "Ruder"),
        (DataFrame({"a": object()}), "DataFrame"),
    ],
)
def test_other_values_are_refused_with_the_remedy_and_told_as_having_run(
    value: Any, type_name: str
) -> None:
    told = r"(?s)Tool 'look' ran\. Its result, of type .*Do not call it again.*Return a str"
    with pytest.raises(ToolResultError, match=told) as caught:
        read_whole(value, tool="look")
    assert (caught.value.tool, caught.value.type_name) == ("look", type_name)
    assert isinstance(caught.value, HoldfastError)
