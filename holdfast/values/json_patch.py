"""Exact differences between JSON objects: a patch, its inverse, and several patches merged.

RFC 7396 can neither set null nor tell it from absence, and it repeats a whole list to append one
element. A patch here is a JSON object whose members say what they do; empty ones are left out and
`{}` changes nothing:

    {"set": {key: value}, "drop": [key], "in": {key: patch}, "splice": {key: [at, count, items]}}

`in` goes down into an object. `splice` replaces `count` elements of a list, from index `at`, by
`items`, so that a growing list costs what was appended.

All functions are pure: results share nothing with the arguments. True, 1 and 1.0 are three values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic_core import to_jsonable_python

from holdfast.errors import InvalidArgumentError
from holdfast.values.base import Json, canonical
from holdfast.values.checks import gate
from holdfast.values.checks.gate import is_array
from holdfast.values.text.shown import shown

Patch = dict[str, Json]
"""A patch, as JSON data."""

_ABSENT: Any = object()

OBJECTS = "$objects"
"""Key of a state that only step logic writes: what stands for objects in it is read as such."""


class ObjectState(dict[str, Json]):
    """A state in which step logic of the program has written objects; never JSON from outside."""


def written(data: Any, path: str = "value") -> Json:
    """Return what a user's code made as JSON data, models and dataclasses written out.

    Raises:
        InvalidArgumentError: JSON cannot say it exactly, or it may not enter a task; the text says
            why.
    """
    try:
        made = to_jsonable_python(data)
    except ValueError as cause:  # also pydantic's own, and circles
        hint = " (did you forget await?)" if "'coroutine'" in str(cause) else ""
        raise InvalidArgumentError(f"{cause}{hint}") from cause
    return _entering(plain(made, path), path)


def plain(data: Any, path: str = "state") -> Json:
    """Return a deep copy of `data` as JSON data; tuples become lists.

    Raises:
        InvalidArgumentError: `data` holds something that JSON cannot say exactly; the text names
            where, as seen from `path`.
    """
    try:
        return _plain(data, path)
    except RecursionError:
        msg = f"{path} is nested far too deep, or holds itself. Make it flatter."
        raise InvalidArgumentError(msg) from None


def _plain(data: Any, path: str) -> Json:
    raw: Any = data  # stays Any where the match narrows to list[Unknown]
    match data:
        case None | bool():
            return data
        case str():
            return str.__str__(data)
        case int():
            return int(data)
        case float() if math.isfinite(data):
            return float(data)
        case list() | tuple():
            return [_plain(item, f"{path}[{index}]") for index, item in enumerate(raw)]
        case dict():
            return {_key(key, path): _plain(value, f"{path}.{key}") for key, value in raw.items()}
        case _:
            raise InvalidArgumentError(
                f"{path} holds {shown(data)} ({type(data).__name__}), which JSON cannot say"
                " exactly. Store null, booleans, finite numbers, strings, lists and dicts with"
                " string keys; a pydantic model goes in as model.model_dump(mode='json')."
            )


def _key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise InvalidArgumentError(
            f"{path} has the key {shown(key)} ({type(key).__name__}). JSON keys are strings:"
            f" write {shown(str(key))} instead."
        )
    return str.__str__(key)


def same(left: Json, right: Json) -> bool:
    """Whether two JSON values are exactly equal; the order of keys does not matter."""
    return canonical(left) == canonical(right)


def change(old: Mapping[str, Json], new: Mapping[str, Json]) -> Patch:
    """Return the patch that makes `new`, as a user's code left the state, of `old`.

    Raises:
        InvalidArgumentError: The new state is not JSON data, or may not enter a task.
    """
    if old == new == {}:
        return {}
    return _diff(plain(dict(old)), _entering(plain(dict(new)), "state"))


def _entering(made: Json, path: str) -> Json:
    """Check what a user's code made; lone surrogates in it are replaced."""
    try:
        made = gate.mended(made)
    except RecursionError:
        msg = f"{path} is nested more than {gate.DEEPEST} levels deep. Make it flatter."
        raise InvalidArgumentError(msg) from None
    gate.check(made, path)
    return made


def diff(old: Mapping[str, Json], new: Mapping[str, Json]) -> Patch:
    """Return the patch that makes `new` of `old`.

    Raises:
        InvalidArgumentError: One of them holds something that is not JSON data.
    """
    return _diff(plain(dict(old)), plain(dict(new)))


def _diff(old: dict[str, Json], new: dict[str, Json]) -> Patch:
    patch: Patch = {}
    for key, value in new.items():
        before = old.get(key, _ABSENT)
        if before is _ABSENT:
            patch.setdefault("set", {})[key] = value
        elif isinstance(before, dict) and isinstance(value, dict):
            if nested := _diff(cast("Json", before), cast("Json", value)):
                patch.setdefault("in", {})[key] = nested
        elif not same(before, value):
            splice = _splice(before, value)
            patch.setdefault("splice" if splice else "set", {})[key] = splice or value
    if not old.keys() <= new.keys():
        patch["drop"] = [key for key in old if key not in new]
    return patch


def _splice(old: Json, new: Json) -> list[Json] | None:
    """Return the splice that makes `new` of `old`, or None where nothing stays in place."""
    if not (is_array(old) and is_array(new)):
        return None
    before, after = [canonical(item) for item in old], [canonical(item) for item in new]
    shorter = min(len(before), len(after))
    head = 0
    while head < shorter and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < shorter - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    if old and head == tail == 0:
        return None
    return [head, len(before) - head - tail, new[head : len(new) - tail]]


def apply(old: Mapping[str, Json], patch: Mapping[str, Json]) -> dict[str, Json]:
    """Return `old` changed by `patch`.

    Raises:
        InvalidArgumentError: The patch was made for other data.
    """
    before = plain(dict(old))
    return _apply(before, plain(dict(patch), "patch")) if patch else before


def _apply(old: dict[str, Json], patch: Patch) -> dict[str, Json]:
    new = {**old, **{k: _outcome(old, patch, k, member) for k, member in _touched(patch).items()}}
    return {key: value for key, value in new.items() if value is not _ABSENT}


def _touched(patch: Patch) -> dict[str, str]:
    """Return which member of the patch changes each key that it names."""
    members = ("set", "drop", "in", "splice")
    if unknown := patch.keys() - set(members):
        raise InvalidArgumentError(f"A patch has no member {min(unknown)!r}; it has {members}.")
    return {key: member for member in members for key in patch.get(member, ())}


def _outcome(old: dict[str, Json], patch: Patch, key: str, member: str) -> Json:
    """Return the value of `key` after the patch, or _ABSENT."""
    before = old.get(key, _ABSENT)
    match member, before:
        case "set", _:
            return patch["set"][key]
        case "drop", _ if before is not _ABSENT:
            return _ABSENT
        case "in", dict():
            return _apply(cast("dict[str, Json]", before), patch["in"][key])
        case "splice", _ if is_array(before):
            at, count, inserted = patch["splice"][key]
            if 0 <= at <= at + count <= len(before):
                return [*before[:at], *inserted, *before[at + count :]]
        case _:
            pass
    found = "is absent" if before is _ABSENT else "holds something else"
    raise InvalidArgumentError(
        f"The patch does not fit: it wants to {member!r} the key {key!r}, which {found}."
        " A patch applies to the data that it was made from."
    )


def inverse(old: Mapping[str, Json], patch: Mapping[str, Json]) -> Patch:
    """Return the patch that leads from `apply(old, patch)` back to `old`.

    Raises:
        InvalidArgumentError: The patch was made for other data.
    """
    if not patch:
        return {}
    before, change = plain(dict(old)), plain(dict(patch), "patch")
    _apply(before, change)
    return _inverse(before, change)


def _inverse(old: dict[str, Json], patch: Patch) -> Patch:
    back: Patch = {}
    for key, member in _touched(patch).items():
        if member == "in":
            back.setdefault("in", {})[key] = _inverse(old[key], patch["in"][key])
        elif member == "splice":
            at, count, items = patch["splice"][key]
            back.setdefault("splice", {})[key] = [at, len(items), old[key][at : at + count]]
        elif key in old:
            back.setdefault("set", {})[key] = old[key]
        else:
            back.setdefault("drop", []).append(key)
    return back


def merge(
    old: Mapping[str, Json], patches: Sequence[Mapping[str, Json]]
) -> tuple[dict[str, Json], list[str]]:
    """Apply patches that were all made from `old`, side by side, as if one after the other.

    Where two of them give one place different values, the later patch wins and the place is a
    conflict. Elements appended to one list by several patches are all kept, in the patches' order.
    A list that several patches begin counts as empty before, and so does an object.

    Returns:
        The merged data, and the paths in conflict ("a.b"), sorted.

    Raises:
        InvalidArgumentError: A patch was made for other data.
    """
    conflicts: list[str] = []
    changes: list[Patch] = [plain(dict(patch), "patch") for patch in patches if patch]
    new = plain(dict(old))
    if changes:
        new = _merge(new, changes, "", conflicts)
    return new, sorted(conflicts)


def _merge(
    old: dict[str, Json], patches: list[Patch], prefix: str, conflicts: list[str]
) -> dict[str, Json]:
    new = dict(old)
    touching: dict[str, list[tuple[Patch, str]]] = {}  # key to those who change it, and how
    for patch in patches:
        for key, member in _touched(patch).items():
            touching.setdefault(key, []).append((patch, member))
    for key, rivals in touching.items():
        outcomes = [_outcome(old, patch, key, member) for patch, member in rivals]
        value = outcomes[-1]
        if all(member == "in" for _, member in rivals):
            nested = [patch["in"][key] for patch, _ in rivals]
            value = _merge(old[key], nested, f"{prefix}{key}.", conflicts)
        elif all(_appends(old, patch, key) for patch, _ in rivals):
            value = [*old[key], *(item for patch, _ in rivals for item in patch["splice"][key][2])]
        elif key not in old and len(outcomes) > 1 and all(map(is_array, outcomes)):
            value = [item for begun in outcomes for item in begun]
        elif key not in old and len(outcomes) > 1 and all(isinstance(o, dict) for o in outcomes):
            begun = [_diff({}, outcome) for outcome in outcomes]
            value = _merge({}, begun, f"{prefix}{key}.", conflicts)
        elif any(not _agree(outcome, value) for outcome in outcomes):
            conflicts.append(prefix + key)
        new[key] = value
    return {key: value for key, value in new.items() if value is not _ABSENT}


def _agree(left: Json, right: Json) -> bool:
    if left is _ABSENT or right is _ABSENT:
        return left is right
    return same(left, right)


def _appends(old: dict[str, Json], patch: Patch, key: str) -> bool:
    splice = patch.get("splice", {}).get(key)
    return splice is not None and splice[:2] == [len(old[key]), 0]
