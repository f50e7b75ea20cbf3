"""The roles of people: an app's own map of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from holdfast.errors import InvalidArgumentError
from holdfast.values.runs.approval_rules import ROLE, person_key
from holdfast.values.text.shown import shown

Roles = Mapping[str, Iterable[str]]
"""Role to the people who have it: {"finance": ["anna", "ben"]}."""


def check_roles(given: Roles | None) -> dict[str, tuple[str, ...]]:
    """Copy a map of roles.

    Raises:
        InvalidArgumentError: It is not one.
    """
    found: dict[str, tuple[str, ...]] = {}
    plain = cast("object", {} if given is None else given)
    if not isinstance(plain, Mapping):
        msg = f'roles must be a dict as {{"finance": ["anna"]}}; it was {shown(plain)}.'
        raise InvalidArgumentError(msg)
    for role, people in cast("Mapping[object, object]", plain).items():
        name = check_role(role)
        if isinstance(people, str) or not isinstance(people, Iterable):
            msg = f"roles[{name!r}] must be a list of people; it was {shown(people)}."
            raise InvalidArgumentError(msg)
        members = tuple(cast("Iterable[object]", people))
        odd = [each for each in members if not isinstance(each, str) or not each.strip()]
        if odd:
            msg = f"roles[{name!r}] must name people; {shown(odd[0])} is not a name."
            raise InvalidArgumentError(msg)
        found[name] = cast("tuple[str, ...]", members)
    return found


def check_own(given: Iterable[str]) -> list[str]:
    """Return the roles of one person, checked.

    Raises:
        InvalidArgumentError: They are no list of roles.
    """
    plain = cast("object", given)
    if isinstance(plain, str | bytes | Mapping) or not isinstance(plain, Iterable):
        was = shown(plain)  # pyright: ignore[reportUnknownArgumentType]  anything is shown
        msg = f"roles must be a list as ['finance']; it was {was}."
        raise InvalidArgumentError(msg)
    return [check_role(each) for each in cast("Iterable[object]", plain)]


def check_role(given: object) -> str:
    """Return the name of a role.

    Raises:
        InvalidArgumentError: It is not one, or begins with "role:", as only rules write it.
    """
    if not isinstance(given, str) or not given.strip() or given.startswith(ROLE):
        msg = f"A role is a name as 'finance', without {ROLE!r}; this is {shown(given)}."
        raise InvalidArgumentError(msg)
    return given


def roles_of(known: Mapping[str, tuple[str, ...]], person: str) -> list[str]:
    """List the roles of a person by a map, sorted."""
    key = person_key(person)
    return sorted(role for role, people in known.items() if key in map(person_key, people))


def people_of(known: Mapping[str, tuple[str, ...]], name: str) -> tuple[str, ...]:
    """Return whom a name in a rule means: the people of a role that is known, else itself."""
    key = person_key(name.removeprefix(ROLE)) if name.startswith(ROLE) else ""
    return next((people for role, people in known.items() if person_key(role) == key), (name,))
