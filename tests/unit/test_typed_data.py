"""Objects that are recorded as data, and made again where their class is loaded."""

import datetime as dt
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast.values.code.typed_data import class_name, remade


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
