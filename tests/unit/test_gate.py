"""The gate for data that enters: what it refuses, and that everything behind reads the rest."""

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import from_json, to_json

from holdfast.errors import InvalidArgumentError
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import canonical
from holdfast.values.checks import gate

LONE = "\ud800"
LARGE = 100_000


def nested(levels: int, leaf: Any = 1) -> Any:
    for level in range(levels):
        leaf = {"a": leaf} if level % 2 else [leaf]
    return leaf


def doubled() -> Any:
    """Make data that holds itself many times over."""
    data: Any = "x"
    for _ in range(gate.DEEPEST):
        data = [data, data]
    return data


def endless() -> Any:
    """Make data that holds itself."""
    data: list[Any] = []
    data.append(data)
    return data


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (nested(gate.DEEPEST), ""),
        ({"a": nested(gate.DEEPEST)}, f"value is nested more than {gate.DEEPEST} levels deep"),
        (nested(100_000), "nested"),
        ({"a": [0, {"b": math.nan}]}, "value.a[1].b is nan; numbers must be finite"),
        ([-math.inf], "value[0] is -inf"),
        ([10**5000], "is an integer of"),
        ({"a": LONE}, "value.a holds a lone surrogate"),
        ({"a": {LONE: 1}}, "value.a has a key with a lone surrogate"),
        ({1: 2}, "has the key 1 of type int"),
        ({"a": set[int]()}, "is of type set"),
        ("x" * (LARGE + 1), "too large"),
        ([0] * (LARGE // 8), "too large"),  # for the time that they cost
        (doubled(), "too large"),
        (endless(), "nested"),
    ],
    ids=lambda given: given if isinstance(given, str) and len(given) < 99 else "data",
)
def test_data_that_may_not_enter_is_refused_with_its_place(data: Any, words: str) -> None:
    wrong = gate.flaw(data, largest=LARGE)
    assert (words in wrong) is bool(wrong or not words)
    wrong.encode()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        ("9" * 5000, "is not JSON"),
        ("[" * 100_000, "is nested more than"),
        ("NaN", "numbers must be finite"),
        ("[1e999]", "numbers must be finite"),
        ('{"\\ud800": 1}', "lone surrogate"),
    ],
)
def test_reading_refuses_what_is_no_json_or_may_not_enter(text: str | bytes, reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=reason) as caught:
        gate.read(text)
    str(caught.value).encode()


_NUMBERS = st.integers() | st.floats() | st.just(10**4000)
_SCALARS = st.none() | st.booleans() | _NUMBERS | st.text(max_size=5) | st.just(LONE)


@st.composite
def _odd_data(draw: st.DrawFn) -> Any:
    """JSON as Python has it: at odd depths, with odd leaves and keys."""
    leaf = draw(st.recursive(_SCALARS, lambda inner: st.lists(inner) | _objects(inner)))
    return nested(draw(st.integers(0, gate.DEEPEST + 2)), leaf)


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(st.text(max_size=3) | st.just(LONE), inner)


@settings(max_examples=40)
@given(_odd_data())
def test_what_passes_survives_every_reader_with_our_envelopes_around_it(data: Any) -> None:
    if gate.flaw(data):
        return
    change = merge_patch.diff({"a": nested(gate.DEEPEST - 1)}, {"a": data})
    enveloped = nested(15, change)
    assert from_json(to_json(enveloped)) == enveloped
    assert json.loads(canonical(enveloped)) == enveloped
