"""Merge patches: exact for every JSON object."""

import copy
import enum
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InvalidArgumentError
from holdfast.values.json_patch import apply, diff, inverse, merge, plain, same

# Few keys and few values, so that drawn objects often meet at the same place.
KEYS = st.sampled_from(["a", "b", "set", "drop", "in", "splice", "", "a.b"])
LEAVES = st.sampled_from([None, True, False, 0, 1, 1.0, 0.0, -0.0, "", "x", "\ud800"]) | st.floats(
    allow_nan=False, allow_infinity=False
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=5)


@settings(max_examples=60)
@given(OBJECTS, OBJECTS)
def test_a_patch_leads_to_the_new_object_and_back_as_json_and_changes_no_argument(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    before = copy.deepcopy([old, new])
    patch = json.loads(json.dumps(diff(old, new)))
    back = json.loads(json.dumps(inverse(old, patch)))
    kept = copy.deepcopy(patch)
    assert same(apply(old, patch), new)
    assert same(apply(new, back), old)
    merged, conflicts = merge(old, [patch])
    assert same(merged, new)
    assert conflicts == []
    merge(old, [patch, patch])
    assert same([old, new], before)
    assert same(patch, kept)
    assert diff(old, copy.deepcopy(old)) == inverse(old, {}) == {}
    assert same(apply(old, {}), old)


@settings(max_examples=60)
@given(OBJECTS, OBJECTS, OBJECTS)
def test_what_only_one_patch_touches_is_as_that_patch_says(
    old: dict[str, Any], left: dict[str, Any], right: dict[str, Any]
) -> None:
    merged, _ = merge(old, [diff(old, left), diff(old, right)])
    assert same(apply(merged, inverse(old, diff(old, merged))), old)
    for key in {*old, *left, *right}:
        before, one, other, now = ([d[key]] if key in d else [] for d in (old, left, right, merged))
        if same(before, one):
            assert same(now, other)
        if same(before, other):
            assert same(now, one)


@pytest.mark.parametrize(
    ("old", "new"),
    [(True, 1), (1, 1.0), (True, 1.0), (0, False), (0.0, -0.0), (None, False), ("1", 1)],
)
def test_values_that_python_confuses_are_told_apart(old: Any, new: Any) -> None:
    assert diff({"a": old}, {"a": new}) == {"set": {"a": new}}
    restored = apply({"a": new}, inverse({"a": old}, {"set": {"a": new}}))["a"]
    assert repr(restored) == repr(old)


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        ({"a": [0, 1]}, {"a": [0, True]}, {"splice": {"a": [1, 1, [True]]}}),
        ({}, {"a": None}, {"set": {"a": None}}),
        ({"a": None}, {}, {"drop": ["a"]}),
        ({"a": {"b": 1}}, {"a": {}}, {"in": {"a": {"drop": ["b"]}}}),
        (
            {"trip": {"city": "Oslo", "nights": 2}, "notes": "long"},
            {"trip": {"city": "Oslo", "nights": 3}, "notes": "long"},
            {"in": {"trip": {"set": {"nights": 3}}}},
        ),
    ],
)
def test_a_patch_says_only_what_changed(
    old: dict[str, Any], new: dict[str, Any], patch: dict[str, Any]
) -> None:
    assert diff(old, new) == patch
    assert apply(old, patch) == new


def test_results_share_nothing_with_the_arguments() -> None:
    inner = [1]
    patch = diff({}, {"a": inner})
    new = apply({"b": inner}, patch)
    merged, _ = merge({"b": inner}, [patch])
    inner.append(2)
    patch["set"]["a"].append(3)
    assert new == merged == {"a": [1], "b": [1]}


@pytest.mark.parametrize(
    "patch",
    [
        {"drop": ["a"]},
        {"in": {"a": {"set": {"b": 1}}}},
        {"in": {"n": {"set": {"b": 1}}}},
        {"splice": {"n": [0, 0, ["x"]]}},
        {"splice": {"l": [0, 2, ["x"]]}},
        {"splice": {"l": [2, 0, ["x"]]}},
        {"splice": {"l": [-1, 0, ["x"]]}},
        {"unheard": {"a": 1}},
    ],
)
def test_a_patch_for_other_data_is_refused(patch: dict[str, Any]) -> None:
    old = {"n": 1, "l": [1]}
    with pytest.raises(InvalidArgumentError):
        apply(old, patch)
    with pytest.raises(InvalidArgumentError):
        inverse(old, patch)


def begun(*trips: Any) -> list[dict[str, Any]]:
    """Make patches that each begin a value at the same place."""
    return [diff({}, {"trips": each}) for each in trips]


def appended(start: list[int], *ends: list[Any]) -> list[dict[str, Any]]:
    """Make patches of one list."""
    return [diff({"log": start}, {"log": end}) for end in ends]


BOTH: dict[str, Any] = {"in": {"a": {"set": {"b": 2, "c": 2}}}}
LATER: dict[str, Any] = {"in": {"a": {"set": {"b": 3}}}, "set": {"d": 1}}


@pytest.mark.parametrize(
    ("old", "patches", "merged", "conflicts"),
    [
        ({"a": {"b": 1, "c": 1}}, [BOTH, LATER], {"a": {"b": 3, "c": 2}, "d": 1}, ["a.b"]),
        ({"a": 1, "b": 1}, [{"set": {"a": 2}, "drop": ["b"]}] * 3, {"a": 2}, []),
        ({}, [{"set": {"a": 1}}, {"set": {"a": True}}], {"a": True}, ["a"]),
        ({"a": 1}, [{"set": {"a": 2}}, {"drop": ["a"]}], {}, ["a"]),
        ({"a": 1}, [{"drop": ["a"]}, {"set": {"a": 2}}], {"a": 2}, ["a"]),
        (
            {"a": {"b": 1}},
            [{"set": {"a": 0}}, {"in": {"a": {"set": {"c": 2}}}}],
            {"a": {"b": 1, "c": 2}},
            ["a"],
        ),
        ({"log": []}, appended([], ["x"], ["y"]), {"log": ["x", "y"]}, []),
        ({"log": [0]}, appended([0], [0, "x"], [0, "y"]), {"log": [0, "x", "y"]}, []),
        ({"log": [1, 2]}, appended([1, 2], [1, 2, 3], [2]), {"log": [2]}, ["log"]),
        ({"a": 1}, [], {"a": 1}, []),
        ({}, begun(["rome"], ["oslo"], ["rome"]), {"trips": ["rome", "oslo", "rome"]}, []),
        (
            {},
            begun({"rome": [0], "all": ["rome"]}, {"oslo": [1], "all": ["oslo"]}),
            {"trips": {"rome": [0], "oslo": [1], "all": ["rome", "oslo"]}},
            [],
        ),
        ({}, begun(["rome"], "oslo"), {"trips": "oslo"}, ["trips"]),
    ],
)
def test_patches_side_by_side_are_merged_and_their_conflicts_named(
    old: dict[str, Any], patches: list[dict[str, Any]], merged: dict[str, Any], conflicts: list[str]
) -> None:
    assert same(list(merge(old, patches)), [merged, conflicts])


class Colour(enum.StrEnum):
    RED = "red"


def test_subclasses_become_the_plain_values_that_json_holds() -> None:
    class Level(enum.IntEnum):
        HIGH = 3

    copied = plain({"colour": Colour.RED, "level": Level.HIGH, "pair": (1, 2), Colour.RED: 1.5})
    assert copied == {"colour": "red", "level": 3, "pair": [1, 2], "red": 1.5}
    assert [type(value) for value in copied.values()] == [str, int, list, float]


@pytest.mark.parametrize(
    ("state", "named"),
    [
        ({"a": {"b": [1, object()]}}, r"state\.a\.b\[1\]"),
        ({"a": float("nan")}, r"state\.a"),
        ({"a": {1, 2}}, "set"),
        ({"a": b"x"}, "bytes"),
        ({"a": {1: 2}}, "key 1"),
    ],
)
def test_a_value_that_json_cannot_say_is_refused_by_its_place(
    state: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=named):
        diff({}, state)
