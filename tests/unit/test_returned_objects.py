"""Objects that function tools returned, made anew of what is recorded of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from holdfast.agents.tools.functions.returned import returned_object

if TYPE_CHECKING:
    from decimal import Decimal as Unknown


class City(BaseModel):
    name: str


class Socket:
    pass


@dataclass
class WithSocket:
    socket: Socket


@dataclass
class WithUnknown:
    price: Unknown


def city() -> City:
    return City(name="Oslo")


def text() -> str:
    return ""


def with_socket() -> WithSocket:
    return WithSocket(Socket())


def with_unknown() -> WithUnknown:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("function", "recorded", "made"),
    [
        (city, '{"name": "Oslo"}', City(name="Oslo")),
        (city, "An error occurred.", None),
        (text, '"x"', None),
        (with_socket, "{}", None),
        (with_unknown, "{}", None),
    ],
)
def test_what_pydantic_cannot_read_stays_text(
    function: Callable[..., Any], recorded: str, made: object
) -> None:
    assert returned_object(function, recorded) == made
