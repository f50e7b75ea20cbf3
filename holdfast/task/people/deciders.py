"""Who may decide an approval, and how many of them: the rule of a tool, applied. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from holdfast.task.data.calls import Approval, ApprovalKind, Vote
from holdfast.values.runs.approval_rules import ROLE, ApprovalRule, are_one, person_key

ROLES = "roles"
"""Argument of a decision: the roles of the person who decides, as the client knows them."""


@dataclass(frozen=True)
class Person:
    """Who may have something to decide.

    Attributes:
        name: The name with which decisions are recorded.
        roles: The person's roles, for the rules of tools.
    """

    name: str
    roles: Collection[str] = ()


def of_rule(
    rule: ApprovalRule | None, kind: ApprovalKind, *, asker: str, now: float
) -> dict[str, object]:
    """Return what a rule says of an approval, as changes of its fields.

    It holds for every question about a call of the tool. Only for the call itself more than one
    person is needed: what has happened is a fact, and one person can know it.
    """
    if rule is None or kind == "limit":
        return {}
    after = rule.escalate_after_seconds
    return {
        "who": tuple(rule.by),
        "quorum": rule.quorum if kind == "tool" else 1,
        "not_asker": rule.not_asker,
        "asker": asker if rule.not_asker else "",
        "escalates": now + after if after else 0.0,
        "escalate_to": tuple(rule.escalate_to),
    }


def refused(approval: Approval, by: str, roles: Collection[str]) -> str:
    """Return why a person may not decide an approval, or empty."""
    if approval.not_asker:
        if not approval.asker:
            return (
                f"Who created the task may not decide {approval.id!r}, and the task does not record"
                " who that is. Create it with by=, or fork it with by=."
            )
        if are_one(by, approval.asker):
            return f"{by} created the task and may not decide {approval.id!r}: somebody else must."
    names = approval.may_decide
    if not names or _is_among(names, by, roles):
        return ""
    can = ", ".join(names)
    own = f" (roles: {', '.join(sorted(roles))})" if roles else " (no roles)"
    later = ""
    if _is_among(approval.escalate_to, by, roles):
        later = " It has not been escalated yet."
    return f"{by}{own} may not decide {approval.id!r}; these may: {can}.{later}"


def cannot_decide(approval: Approval, person: Person) -> str:
    """Return why an approval waits for others than a person; empty when it waits for them."""
    if any(are_one(vote.by, person.name) for vote in approval.votes):
        return f"{person.name} has approved {approval.id!r}: somebody else must as well."
    return refused(approval, person.name, person.roles)


def voted(approval: Approval, by: str, *, now: float, note: str) -> tuple[Vote, ...]:
    """Return the votes with that of a person; one person's second vote changes nothing."""
    if any(are_one(vote.by, by) for vote in approval.votes):
        return approval.votes
    return (*approval.votes, Vote(by=by, at=now, note=note))


def voters(votes: Sequence[Vote]) -> str:
    """Return the names of the people who have approved."""
    return ", ".join(vote.by for vote in votes)


def _is_among(names: Collection[str], by: str, roles: Collection[str]) -> bool:
    keys = {person_key(role) for role in roles}
    for name in names:
        if name.startswith(ROLE):
            if person_key(name.removeprefix(ROLE)) in keys:
                return True
        elif person_key(name) == person_key(by):
            return True
    return False
