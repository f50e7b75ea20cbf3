"""Which decisions for later calls a session keeps."""

from __future__ import annotations

from holdfast.task.data.calls import StandingRule
from holdfast.workflows.session import RULES_KEPT, kept_rules


def rule(number: int, *, revoked: str = "", until: float = 0.0) -> StandingRule:
    return StandingRule(
        verb="approve", by="ann", id=f"t:{number}", tool="pay", revoked=revoked, until=until
    )


def test_ended_rules_take_no_room_from_those_that_stand() -> None:
    standing = [rule(n) for n in range(5)]
    revoked = [rule(n, revoked="ben") for n in range(10, 10 + RULES_KEPT)]
    late = [rule(n, until=50.0) for n in range(1000, 1003)]
    kept = kept_rules([*standing, *revoked, *late], now=60.0)
    assert [each for each in kept if each.stands(60.0)] == standing
    assert kept == (*standing, *revoked[3:], *late)


def test_of_more_rules_the_newest_stand() -> None:
    given = [rule(n) for n in range(RULES_KEPT + 2)]
    assert kept_rules(given, now=0.0) == tuple(given[2:])
