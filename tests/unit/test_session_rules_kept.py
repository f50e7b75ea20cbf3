"""Which decisions for later calls a session keeps."""

from pathlib import Path

from holdfast.archive.archive import Archive
from holdfast.archive.session_commits import read_resting, write_resting
from holdfast.task.data.calls import StandingRule
from holdfast.task.data.state import SessionState
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


async def test_who_can_write_to_the_archive_gives_a_session_that_rests_no_rule(
    tmp_path: Path,
) -> None:
    archive, ended = Archive(tmp_path), (rule(1, revoked="ben"), rule(2, until=50.0))
    state = SessionState(rules=(*ended, rule(3)), base=7)
    await write_resting(archive, "s", state)
    assert await read_resting(archive, "s") == state.model_copy(update={"rules": ended})
