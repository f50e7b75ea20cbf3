"""Values copy, compare, hash and dump as pydantic's models do, only faster."""

from __future__ import annotations

import copy
import enum
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr
from pydantic_core import from_json, to_json

from holdfast.errors import InvalidArgumentError
from holdfast.task.data.state import Carried
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import Json, Value, canonical
from holdfast.values.checks import gate
from holdfast.values.checks.gate import pointed_at
from holdfast.values.json_patch import apply, diff, inverse, merge, plain, same
from tests.support.drawn import FINITE, json_of


class Plain(Value):
    """A value with the usual kinds of fields."""

    number: float = 0
    many: tuple[int, ...] = ()
    data: dict[str, Any] = Field(default_factory=dict[str, Any])


class Child(Plain):
    """The same fields, another class."""


class Counting(Value):
    """A value with a private attribute."""

    number: float = 0
    _seen: list[int] = PrivateAttr(default_factory=list[int])

    def seeing(self, number: int) -> Counting:
        """Note a number, and return this value."""
        self._seen.append(number)
        return self


class Open(Value):
    """A value that takes fields of any name."""

    model_config = ConfigDict(extra="allow")
    number: float = 0


VALUES = [
    Plain(),
    Plain(number=0),
    Plain(number=1, many=(1, 2)),
    Plain(number=1, many=(1, 2), data={"a": [1]}),
    Plain(number=float("nan")),
    Plain.model_construct(number=1),
    Plain.model_construct(number=1, other=2),  # type: ignore[call-arg]
    Plain.model_construct(),
    Child(),
    Child(number=1, many=(1, 2)),
    Counting(number=1),
    Counting(number=1).seeing(1),
    Open(number=1),
    Open.model_validate({"number": 1, "more": 2}),
]


def parts(value: BaseModel) -> tuple[object, ...]:
    """Return all that makes a model's state, in a form that compares NaN with itself."""
    return (
        type(value),
        repr(value.__dict__),
        value.model_fields_set,
        value.__pydantic_extra__,
        value.__pydantic_private__,
    )


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_copy_is_the_one_that_pydantic_makes(value: Value) -> None:
    for update in (None, {}, {"number": 5}):
        own, pydantics = value.model_copy(update=update), BaseModel.model_copy(value, update=update)
        assert parts(own) == parts(pydantics)
    assert parts(value.model_copy(deep=True)) == parts(BaseModel.model_copy(value, deep=True))


def test_a_misspelt_field_is_an_error_in_a_copy_and_in_a_part() -> None:
    with pytest.raises(TypeError, match="Plain has no field nubmer"):
        Plain().model_copy(update={"nubmer": 1, "data": {}})
    with pytest.raises(ValueError, match="has no field"):
        Carried().ntoes = ()  # type: ignore[attr-defined]


@pytest.mark.parametrize("one", VALUES, ids=repr)
@pytest.mark.parametrize("other", [*VALUES, None, 1], ids=repr)
def test_values_are_equal_where_pydantics_are(one: Value, other: object) -> None:
    if one is other:
        assert one == other
        return
    assert (one == other) is (BaseModel.__eq__(one, other) is True)


@pytest.mark.parametrize("value", VALUES[:5], ids=repr)
def test_the_wire_form_has_what_is_not_a_default(value: Value) -> None:
    assert repr(value.wire()) == repr(value.model_dump(mode="json", exclude_defaults=True))


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("#/$defs/Box%5Bint%5D", {"type": "integer"}),
        ("#/$defs/Box[int]", {"type": "integer"}),
        ("#/$defs/a~1b", {"type": "null"}),
        ("#/$defs/a%7E0b", {"type": "array"}),
        ("#/anyOf/1", {"type": "string"}),
        ("#/anyOf/2", None),
        pytest.param("#/anyOf/" + "9" * 5000, None, id="a number of 5,000 digits"),
        ("#/$defs/nothing/more", None),
        ("other.json#/$defs/a", None),
        (7, None),
    ],
)
def test_a_reference_within_a_schema_is_a_json_pointer_in_a_uri(
    reference: object, found: Json
) -> None:
    root = {
        "$defs": {
            "Box[int]": {"type": "integer"},
            "a/b": {"type": "null"},
            "a~b": {"type": "array"},
        },
        "anyOf": [{}, {"type": "string"}],
    }
    assert pointed_at(root, reference) == found
    assert pointed_at(root, "#") is root


# ---- the gate for data that enters: what it refuses, and that everything behind reads the rest

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


# ---- merge patches: exact for every JSON object

# Few keys and few values, so that drawn objects often meet at the same place.
KEYS = st.sampled_from(["a", "b", "set", "drop", "in", "splice", "", "a.b"])
LEAVES = st.sampled_from([None, True, False, 0, 1, 1.0, 0.0, -0.0, "", "x", "\ud800"]) | FINITE
OBJECTS = st.dictionaries(KEYS, json_of(LEAVES, KEYS, 12), max_size=5)


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
