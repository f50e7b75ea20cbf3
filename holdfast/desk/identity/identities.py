"""Identities, their roles, and the verbs that each role allows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, cast, get_args

from holdfast.client.agent_runner.base import check_role
from holdfast.errors import HoldfastError, InvalidArgumentError
from holdfast.values.checks.ids import check_name
from holdfast.values.runs import verbs
from holdfast.values.runs.verbs import VERBS
from holdfast.values.text.shown import shown

Role = Literal["viewer", "operator", "approver"]
"""What a person may do: read, run and steer, decide approvals."""

ROLES = cast("tuple[Role, ...]", get_args(Role))

Verb = Literal[
    verbs.Verb,
    "read",
    "create",
    "run",
    "finalize",
    "undo",
    "rewind",
    "fork",
    "approve_always",
    "edit",
    "reject_always",
]
"""What can be done with the desk."""

READ: Verb = "read"

NEAR = 0.85
"""How like a role's name is that of a group which is taken for a typing error."""


def _of_role(role: Role, *more: Verb) -> frozenset[Verb]:
    return frozenset({*(verb for verb, each in VERBS.items() if each.role == role), READ, *more})


ALLOWED: Mapping[Role, frozenset[Verb]] = {
    "viewer": frozenset((READ,)),
    "operator": _of_role("operator", "create", "run", "finalize", "undo", "rewind", "fork"),
    "approver": _of_role("approver", "approve_always", "edit", "reject_always"),
}
"""The verbs that each role allows. Every role may read."""


class NotAuthenticatedError(HoldfastError):
    """No one is known to have sent a request: it has no valid token and no trusted header."""


class NotAllowedError(HoldfastError):
    """The sender of a request is known, and may not do this."""


@dataclass(frozen=True)
class Identity:
    """A person or program that uses the desk.

    Attributes:
        name: The name that is recorded as `by`.
        roles: What it may do, and its groups: other names, as an ApprovalRule has them behind
            "role:".
        source: How it is known: "local", "token" or "proxy".
    """

    name: str
    roles: frozenset[str] = frozenset({"viewer"})
    source: Literal["local", "token", "proxy"] = "token"

    def can(self, verb: Verb) -> bool:
        """Whether one of the roles allows a verb."""
        return any(verb in each for role, each in ALLOWED.items() if role in self.roles)

    @property
    def groups(self) -> frozenset[str]:
        """The roles that rules of tools ask for."""
        return self.roles - {*ROLES}


May = Callable[[Identity, str, str], bool | Awaitable[bool]]
"""Decides whether an identity may do something: called with the identity, the verb, and the id of
the task or approval (empty for none). It is asked besides the roles: both must agree."""


def check_identity(name: object) -> str:
    """Return the name of an identity.

    Raises:
        InvalidArgumentError: It is not text of printable characters, or too long to be recorded.
    """
    return check_name("The name of an identity", name)


def check_roles(given: Iterable[str]) -> frozenset[str]:
    """Return roles and names of groups, checked.

    Raises:
        InvalidArgumentError: There is no role, or one is misspelt.
    """
    roles = frozenset(given)
    groups = roles - {*ROLES}
    for each in sorted(groups):
        check_role(each)
        if near := get_close_matches(each.casefold(), ROLES, n=1, cutoff=NEAR):
            raise InvalidArgumentError(f"There is no role {each!r}. Did you mean {near[0]!r}?")
    if roles == groups:
        what = ", ".join(map(shown, sorted(groups))) or "no role"
        msg = (
            f"Roles are {', '.join(ROLES)}; {what} was given. Give one of them, and names of groups"
            " as well: those are for the people of an ApprovalRule."
        )
        raise InvalidArgumentError(msg)
    return roles
