"""Results as text for the model."""

import base64
import datetime as dt
import enum
import sys
import uuid
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    TextContent,
)
from pydantic import BaseModel, SecretStr

from holdfast.agents.tools.decorator import ToolResultError, render_result
from holdfast.errors import HoldfastError
from holdfast.mcp.results import read_call_result
from holdfast.values.code.typed_data import class_name, remade
from holdfast.values.parts.images import Image
from holdfast.values.tool_result import read_result, read_whole


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


# ---- objects that are recorded as data, and made again where their class is loaded


class Found(BaseModel, strict=True):
    when: dt.date
    why: str = ""


@dataclass
class Point:
    x: int


def function() -> None:
    """Be no class."""


HERE = __name__


def test_a_class_is_named_where_its_module_defines_it() -> None:
    class Local(BaseModel):
        x: int = 1

    assert class_name(Found(when=dt.date(2026, 1, 2))) == f"{HERE}:Found"
    assert class_name(Point(1)) == f"{HERE}:Point"
    assert [class_name(each) for each in (Local(), {"x": 1}, "text", None, Point)] == [""] * 5


def test_an_object_is_made_of_its_data() -> None:
    made = remade({"when": "2026-01-02", "why": "so"}, f"{HERE}:Found")
    assert made == Found(when=dt.date(2026, 1, 2), why="so")
    assert remade({"x": 1}, f"{HERE}:Point") == Point(1)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "no colon",
        f"{HERE}:Gone",
        f"{HERE}:function",
        f"{HERE}:BaseModel",  # imported there, not defined
        "not_loaded_module:Found",
        "subprocess:Popen",
        f"{HERE}:Found",  # its data have changed
    ],
)
def test_data_stay_data_where_the_class_cannot_be_used(name: str) -> None:
    data: dict[str, Any] = {"when": "never"}
    assert remade(data, name) is data


def test_no_module_is_asked_for_a_name_that_it_would_have_to_import(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    lazy: Any = ModuleType("lazy")
    lazy.__getattr__ = asked.append
    monkeypatch.setitem(sys.modules, "lazy", lazy)
    assert remade({"x": 1}, "lazy:Found") == {"x": 1}
    assert asked == []


# ---- results of MCP servers as values of tools

PNG = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4"
        "890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
    )
).decode()
SVG = base64.b64encode(b"<svg/>").decode()
TEXT = TextContent(text="charged, receipt 17")


def read(*content: Any) -> Any:
    """Return what the model reads of a result."""
    return read_result(read_call_result(CallToolResult(content=[*content]), structured=False))


def test_an_image_that_models_read_is_one() -> None:
    told, image = read(TEXT, ImageContent(data=PNG, mime_type="image/png"))
    assert told == "charged, receipt 17"
    assert isinstance(image, Image)


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (
            ImageContent(data=SVG, mime_type="image/svg+xml"),
            "[image of type image/svg+xml, 6 bytes, was left out]",
        ),
        (
            ImageContent(data="no Base64!", mime_type="image/png"),
            "[image of type image/png, 7 bytes, was left out]",
        ),
        (
            AudioContent(data=SVG, mime_type="audio/wav"),
            "[audio of type audio/wav, 6 bytes, was left out]",
        ),
        (
            EmbeddedResource(resource=BlobResourceContents(uri="file:///a.bin", blob=SVG)),
            "[resource file:///a.bin of type no type, 6 bytes, was left out]",
        ),
    ],
)
def test_what_no_model_reads_is_named_and_costs_nothing_else(block: Any, said: str) -> None:
    assert read(TEXT, block) == f"charged, receipt 17\n{said}"
