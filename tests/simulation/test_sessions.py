"""Sessions that come to rest, in virtual time: what they remember is never less than was said."""

import pytest

from holdfast.archive.session_commits import commit_turn, read_resting
from holdfast.task.data.calls import StandingRule
from holdfast.task.data.state import REVOKE, RULE, CommitRef, SessionState
from tests.simulation.play import RUN, SESSION, SETTLE, Choice, Schedule, Simulation, payloads
from tests.simulation.run import Run
from tests.simulation.service import client_of
from tests.support.there import there

DAY = 86_400.0


def turn(k: int) -> CommitRef:
    return CommitRef(task=f"-{k}", sha256=f"{k:064x}", count=1)


TASK: list[Choice] = [RUN, SETTLE, ("finalize", 0, "f"), SETTLE]
ONE = Schedule(plan=["hello"], choices=[], options={"session": True})
REST: list[Choice] = [("wait", DAY + 1), SETTLE]
"""Time enough for a session to come to rest."""


def names_in(state: SessionState | None) -> list[str]:
    return [each.task for each in there(state).commits]


class Played(Simulation):
    """A simulation of a task with a session, and of programs that append to it."""

    def append(self, k: int) -> None:
        """Append a turn, as a program does."""
        client = client_of(self.server)
        self.worker._in_a_loop(commit_turn(client, self.archive, SESSION, "hf-sim", turn(k)))
        self.choose(SETTLE)

    def kept(self) -> SessionState | None:
        """Return what the archive has of the session."""
        found: SessionState | None = self.worker._in_a_loop(read_resting(self.archive, SESSION))
        return found

    @property
    def run(self) -> Run:
        """The newest run of the session."""
        return there(self.run_of("session"))

    def names(self) -> list[str]:
        """Return the names of the turns that the session has."""
        return names_in(self.session())


def test_an_unused_session_ends_and_the_next_turn_begins_it_with_its_memory() -> None:
    with Played.playing(ONE) as simulation:
        simulation.choose(*TASK)
        simulation.append(1)
        for k in (2, 4):
            simulation.choose(("wait", DAY - 100))
            simulation.append(k)  # it is used: the day begins anew
            simulation.choose(("wait", DAY - 100))
            assert simulation.run.is_open
            simulation.append(k)  # it is taken once
            before = simulation.names()
            simulation.choose(*REST)
            assert simulation.run.status == "completed"
            simulation.append(k + 1)
            assert simulation.run.is_open
            assert simulation.names() == [*before, f"-{k + 1}"]
        assert simulation.names() == ["t", "-1", "-2", "-3", "-4", "-5"]


@pytest.mark.parametrize("steps", range(8))
def test_a_turn_that_comes_while_a_session_comes_to_rest_is_kept(steps: int) -> None:
    with Played.playing(ONE) as simulation:
        simulation.choose(*TASK)
        simulation.append(1)
        simulation.choose(("fate", "rest", "late"), ("wait", DAY + 1), *[("go", 0)] * steps)
        if steps % 2:
            simulation.choose(("release",))
        simulation.append(2)
        simulation.choose(("release",), SETTLE)
        state = simulation.session() if simulation.run.is_open else simulation.kept()
        assert names_in(state)[-2:] == ["-1", "-2"]
        simulation.choose(*REST, ("release",), SETTLE)
        assert not simulation.run.is_open
        assert names_in(simulation.kept())[-2:] == ["-1", "-2"]


def test_a_task_whose_session_rests_before_its_turn_arrives_commits_it_all_the_same() -> None:
    with Played.playing(ONE) as simulation:
        simulation.choose(*TASK[:2])
        simulation.append(1)
        seen_as_open = ("fate", "close", "late")
        simulation.choose(seen_as_open, *TASK[2:], *REST)
        assert simulation.run.status == "completed"
        simulation.choose(("release",), SETTLE)
        task = there(simulation.run_of(0))
        assert task.status == "completed"
        assert not task.code.core.ending.failures
        assert simulation.names() == ["-1", "t"]


def test_a_session_with_a_rule_that_stands_does_not_rest() -> None:
    rule = StandingRule(id="t:1", tool="pay", agent="boss", verb="approve", by="ann")
    with Played.playing(ONE) as simulation:
        simulation.choose(*TASK)
        simulation.server.signal(SESSION, RULE, payloads(rule))
        simulation.choose(SETTLE)
        for _ in range(3):
            simulation.choose(*REST)
            assert simulation.run.is_open
        ended = rule.model_copy(update={"revoked": "ann"})
        simulation.server.signal(SESSION, REVOKE, payloads(ended))
        simulation.choose(SETTLE, *REST)
        assert not simulation.run.is_open
        assert [each.revoked for each in there(simulation.kept()).rules] == ["ann"]


@pytest.mark.parametrize("fate", ["lost", "dead", "stalled", "fails", "breaks", "twice"])
def test_a_worker_lost_while_a_session_comes_to_rest_costs_nothing(fate: str) -> None:
    with Played.playing(ONE) as simulation:
        simulation.choose(*TASK)
        simulation.choose(("fate", "rest", fate), *REST * 3)
        assert simulation.run.status == "completed"
        simulation.append(9)
        assert simulation.names() == ["t", "-9"]
        simulation.choose(("evict", "session"))
        assert simulation.names() == ["t", "-9"]
