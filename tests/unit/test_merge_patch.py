"""Merge patches: exact for every JSON object."""

from __future__ import annotations

import copy
import enum
import json
from typing import Any

import pytest
from hypothesis import given
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


@given(OBJECTS, OBJECTS)
def test_applying_a_diff_gives_the_new_object(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert same(apply(old, diff(old, new)), new)


@given(OBJECTS, OBJECTS)
def test_the_inverse_restores_the_old_object(old: dict[str, Any], new: dict[str, Any]) -> None:
    patch = diff(old, new)
    assert same(apply(apply(old, patch), inverse(old, patch)), old)


@given(OBJECTS)
def test_equal_objects_differ_by_the_empty_patch(data: dict[str, Any]) -> None:
    assert diff(data, copy.deepcopy(data)) == {}
    assert same(apply(data, {}), data)
    assert inverse(data, {}) == {}


@given(OBJECTS, OBJECTS)
def test_patches_survive_json(old: dict[str, Any], new: dict[str, Any]) -> None:
    patch = json.loads(json.dumps(diff(old, new)))
    assert same(apply(old, patch), new)
    assert same(apply(new, json.loads(json.dumps(inverse(old, patch)))), old)


@given(OBJECTS, OBJECTS)
def test_arguments_are_not_changed(old: dict[str, Any], new: dict[str, Any]) -> None:
    old_before, new_before = copy.deepcopy(old), copy.deepcopy(new)
    patch = diff(old, new)
    patch_before = copy.deepcopy(patch)
    apply(old, patch)
    inverse(old, patch)
    merge(old, [patch, patch])
    assert same(old, old_before)
    assert same(new, new_before)
    assert same(patch, patch_before)


@given(OBJECTS, OBJECTS)
def test_merging_one_patch_applies_it(old: dict[str, Any], new: dict[str, Any]) -> None:
    merged, conflicts = merge(old, [diff(old, new)])
    assert same(merged, new)
    assert conflicts == []


@given(OBJECTS, OBJECTS, OBJECTS)
def test_a_merged_object_is_reached_by_a_patch_that_can_be_undone(
    old: dict[str, Any], left: dict[str, Any], right: dict[str, Any]
) -> None:
    merged, _ = merge(old, [diff(old, left), diff(old, right)])
    patch = diff(old, merged)
    assert same(apply(merged, inverse(old, patch)), old)


@given(OBJECTS, OBJECTS, OBJECTS)
def test_what_only_one_patch_touches_is_as_that_patch_says(
    old: dict[str, Any], left: dict[str, Any], right: dict[str, Any]
) -> None:
    merged, _ = merge(old, [diff(old, left), diff(old, right)])
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


def test_they_are_told_apart_inside_lists_too() -> None:
    assert diff({"a": [0, 1]}, {"a": [0, True]}) == {"splice": {"a": [1, 1, [True]]}}


def test_null_is_a_value_and_not_absence() -> None:
    assert diff({}, {"a": None}) == {"set": {"a": None}}
    assert diff({"a": None}, {}) == {"drop": ["a"]}
    assert apply({"a": None}, {"drop": ["a"]}) == {}


def test_a_nested_change_says_only_what_changed() -> None:
    old = {"trip": {"city": "Oslo", "nights": 2}, "notes": "long"}
    new = {"trip": {"city": "Oslo", "nights": 3}, "notes": "long"}
    assert diff(old, new) == {"in": {"trip": {"set": {"nights": 3}}}}


def test_appending_to_a_long_list_costs_what_was_appended() -> None:
    old = {"log": list(range(1000))}
    new = {"log": [*range(1000), "new"]}
    patch = diff(old, new)
    assert patch == {"splice": {"log": [1000, 0, ["new"]]}}
    assert inverse(old, patch) == {"splice": {"log": [1000, 1, []]}}


def test_an_emptied_object_is_not_a_dropped_one() -> None:
    assert apply({"a": {"b": 1}}, diff({"a": {"b": 1}}, {"a": {}})) == {"a": {}}


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


def test_different_values_at_one_place_are_a_conflict_and_the_later_wins() -> None:
    old = {"a": {"b": 1, "c": 1}}
    patches: list[dict[str, Any]] = [
        {"in": {"a": {"set": {"b": 2, "c": 2}}}},
        {"in": {"a": {"set": {"b": 3}}}, "set": {"d": 1}},
    ]
    assert merge(old, patches) == ({"a": {"b": 3, "c": 2}, "d": 1}, ["a.b"])


def test_the_same_change_twice_is_no_conflict() -> None:
    assert merge({"a": 1, "b": 1}, [{"set": {"a": 2}, "drop": ["b"]}] * 3) == ({"a": 2}, [])


def test_one_and_true_conflict() -> None:
    assert merge({}, [{"set": {"a": 1}}, {"set": {"a": True}}])[1] == ["a"]


def test_dropping_against_setting_is_a_conflict() -> None:
    assert merge({"a": 1}, [{"set": {"a": 2}}, {"drop": ["a"]}]) == ({}, ["a"])
    assert merge({"a": 1}, [{"drop": ["a"]}, {"set": {"a": 2}}]) == ({"a": 2}, ["a"])


def test_changing_inside_what_another_replaces_is_a_conflict() -> None:
    old = {"a": {"b": 1}}
    patches: list[dict[str, Any]] = [{"set": {"a": 0}}, {"in": {"a": {"set": {"c": 2}}}}]
    assert merge(old, patches) == ({"a": {"b": 1, "c": 2}}, ["a"])


@pytest.mark.parametrize("start", [[], [0]])
def test_elements_appended_side_by_side_are_all_kept_in_order(start: list[int]) -> None:
    old = {"log": start}
    patches = [diff(old, {"log": [*start, item]}) for item in ("x", "y")]
    assert merge(old, patches) == ({"log": [*start, "x", "y"]}, [])


def test_other_changes_of_one_list_are_a_conflict() -> None:
    old = {"log": [1, 2]}
    patches = [diff(old, {"log": [1, 2, 3]}), diff(old, {"log": [2]})]
    assert merge(old, patches) == ({"log": [2]}, ["log"])


def test_merging_nothing_copies() -> None:
    assert merge({"a": 1}, []) == ({"a": 1}, [])


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


def test_a_list_that_two_patches_begin_keeps_what_both_put_in() -> None:
    begun = [diff({}, {"trips": [city]}) for city in ("rome", "oslo", "rome")]
    assert merge({}, begun) == ({"trips": ["rome", "oslo", "rome"]}, [])


def test_an_object_that_two_patches_begin_keeps_what_both_put_in() -> None:
    begun = [
        diff({}, {"by": {city: [k], "all": [city]}}) for k, city in enumerate(("rome", "oslo"))
    ]
    merged = {"by": {"rome": [0], "oslo": [1], "all": ["rome", "oslo"]}}
    assert merge({}, begun) == (merged, [])


def test_different_kinds_of_beginnings_are_a_conflict() -> None:
    begun = [diff({}, {"trips": ["rome"]}), diff({}, {"trips": "oslo"})]
    assert merge({}, begun) == ({"trips": "oslo"}, ["trips"])
