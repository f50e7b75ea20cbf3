"""The gate for data that enters: what it refuses, and that everything behind reads the rest."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json, to_json

from holdfast.errors import InvalidArgumentError
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import canonical
from holdfast.values.checks import gate

LONE = "\ud800"


def nested(levels: int, leaf: Any = 1) -> Any:
    for level in range(levels):
        leaf = {"a": leaf} if level % 2 else [leaf]
    return leaf


def test_data_at_the_bound_of_depth_passes() -> None:
    assert gate.flaw(nested(gate.DEEPEST)) == ""


def test_data_one_level_deeper_is_refused_with_its_place() -> None:
    wrong = gate.flaw({"a": nested(gate.DEEPEST)}, "extra_state")
    assert f"extra_state is nested more than {gate.DEEPEST} levels deep" in wrong
    assert "at extra_state.a" in wrong


def test_depth_far_beyond_what_python_recurses_is_refused() -> None:
    assert "nested" in gate.flaw(nested(100_000))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused(number: float) -> None:
    wrong = gate.flaw({"a": [0, {"b": number}]}, "answer")
    assert wrong.startswith(f"answer.a[1].b is {number!r}")


def test_integers_that_pydantic_cannot_read_are_refused() -> None:
    assert "is an integer of" in gate.flaw([10**5000])


def test_a_lone_surrogate_in_a_text_is_refused() -> None:
    assert gate.flaw({"a": LONE}).startswith("value.a holds a lone surrogate")


def test_a_lone_surrogate_in_a_key_is_refused_in_words_that_can_be_written() -> None:
    wrong = gate.flaw({"a": {LONE: 1}})
    assert wrong.startswith("value.a has a key with a lone surrogate")
    wrong.encode()


def test_keys_that_are_no_texts_are_refused() -> None:
    assert "has the key 1 of type int" in gate.flaw({1: 2})


def test_other_types_are_refused() -> None:
    assert "is of type set" in gate.flaw({"a": set[int]()})


def test_a_text_over_the_bound_is_refused() -> None:
    assert "too large" in gate.flaw("x" * (gate.LARGEST + 1))


def test_many_small_values_are_refused_for_the_time_that_they_cost() -> None:
    assert "too large" in gate.flaw([0] * (gate.LARGEST // 8))


def test_data_that_holds_itself_many_times_over_is_refused() -> None:
    data: Any = "x"
    for _ in range(gate.DEEPEST):
        data = [data, data]
    assert "too large" in gate.flaw(data)


def test_data_that_holds_itself_is_refused() -> None:
    data: list[Any] = []
    data.append(data)
    assert "nested" in gate.flaw(data)


def test_check_raises_an_error_with_the_reason() -> None:
    with pytest.raises(InvalidArgumentError, match=r"body\.a is nan; numbers must be finite"):
        gate.check({"a": math.nan}, "body")


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


def test_reading_refuses_more_bytes_than_the_bound_before_it_parses_them() -> None:
    with pytest.raises(InvalidArgumentError, match="at most"):
        gate.read("[" * (gate.LARGEST + 1))


_NUMBERS = st.integers() | st.floats() | st.just(10**4000)
_SCALARS = st.none() | st.booleans() | _NUMBERS | st.text(max_size=5) | st.just(LONE)


@st.composite
def _odd_data(draw: st.DrawFn) -> Any:
    """JSON as Python has it: at odd depths, with odd leaves and keys."""
    leaf = draw(st.recursive(_SCALARS, lambda inner: st.lists(inner) | _objects(inner)))
    return nested(draw(st.integers(0, gate.DEEPEST + 2)), leaf)


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(st.text(max_size=3) | st.just(LONE), inner)


@given(_odd_data())
def test_what_passes_survives_every_reader_with_our_envelopes_around_it(data: Any) -> None:
    if gate.flaw(data):
        return
    change = merge_patch.diff({"a": nested(gate.DEEPEST - 1)}, {"a": data})
    enveloped = nested(15, change)
    assert from_json(to_json(enveloped)) == enveloped
    assert json.loads(canonical(enveloped)) == enveloped


def objects(levels: int, leaf: int) -> Any:
    data: Any = leaf
    for _ in range(levels):
        data = {"a": data}
    return data


def test_a_change_of_the_deepest_state_can_be_read_in_all_our_envelopes() -> None:
    change = merge_patch.diff(objects(gate.DEEPEST, 1), objects(gate.DEEPEST, 2))
    enveloped = nested(15, change)
    assert from_json(to_json(enveloped)) == enveloped
