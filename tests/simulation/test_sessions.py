"""Sessions that come to rest, in virtual time: what they remember is never less than was said."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast.archive.session_commits import commit_turn, read_resting
from holdfast.task.data.calls import StandingRule
from holdfast.task.data.state import REVOKE, RULE, CommitRef, SessionState
from tests.simulation.clock import Clock, virtual_time
from tests.simulation.play import SESSION, Schedule, Simulation, payloads
from tests.simulation.run import Run
from tests.simulation.service import client_of

DAY = 86_400.0
TASK = [("run", 0, "r", {"all": True}), ("settle",), ("finalize", 0, "f"), ("settle",)]


def turn(k: int) -> CommitRef:
    return CommitRef(task=f"-{k}", sha256=f"{k:064x}", count=1)


def memory(run: Run | None) -> SessionState:
    """Ask a session."""
    assert run is not None
    return SessionState.model_validate_json(run.query("state").data)


class Played(Simulation):
    """A simulation of a task with a session, and of programs that append to it."""

    def append(self, k: int) -> None:
        """Append a turn, as a program does."""
        client = client_of(self.server)
        self.worker._in_a_loop(commit_turn(client, self.archive, SESSION, "hf-sim", turn(k)))
        self.choose(("settle",))

    def kept(self) -> SessionState | None:
        """Return what the archive has of the session."""
        found: SessionState | None = self.worker._in_a_loop(read_resting(self.archive, SESSION))
        return found

    @property
    def session(self) -> Run:
        found = self.run_of("session")
        assert found is not None
        return found

    def names(self) -> list[str]:
        """Return the names of the turns that the session has."""
        return [each.task for each in memory(self.session).commits]


@contextmanager
def played(choices: list[Any]) -> Generator[Played]:
    """Play a task with a session, and go on from there."""
    clock = Clock()
    with virtual_time(clock):
        simulation = Played(Schedule(plan=["hello"], choices=[], options={"session": True}), clock)
        try:
            for choice in choices:
                simulation.choose(choice)
            yield simulation
        finally:
            simulation.close()


def test_an_unused_session_ends_and_the_next_turn_begins_it_with_its_memory() -> None:
    with played(TASK) as simulation:
        simulation.append(1)
        for k in (2, 4):
            simulation.choose(("wait", DAY - 100))
            simulation.append(k)  # it is used: the day begins anew
            simulation.choose(("wait", DAY - 100))
            assert simulation.session.is_open
            simulation.append(k)  # it is taken once
            before = simulation.names()
            simulation.choose(("wait", DAY + 1))
            simulation.choose(("settle",))
            assert simulation.session.status == "completed"
            simulation.append(k + 1)
            assert simulation.session.is_open
            assert simulation.names() == [*before, f"-{k + 1}"]
        assert simulation.names() == ["t", "-1", "-2", "-3", "-4", "-5"]


@pytest.mark.parametrize("steps", range(8))
def test_a_turn_that_comes_while_a_session_comes_to_rest_is_kept(steps: int) -> None:
    with played(TASK) as simulation:
        simulation.append(1)
        simulation.choose(("fate", "rest", "late"))
        simulation.choose(("wait", DAY + 1))
        for _ in range(steps):
            simulation.choose(("go", 0))
        if steps % 2:
            simulation.choose(("release",))
        simulation.append(2)
        simulation.choose(("release",))
        simulation.choose(("settle",))
        state = memory(simulation.session) if simulation.session.is_open else simulation.kept()
        assert state is not None
        assert [each.task for each in state.commits][-2:] == ["-1", "-2"]
        simulation.choose(("wait", DAY + 1))
        simulation.choose(("settle",))
        simulation.choose(("release",))
        simulation.choose(("settle",))
        kept = simulation.kept()
        assert not simulation.session.is_open
        assert kept is not None
        assert [each.task for each in kept.commits][-2:] == ["-1", "-2"]


def test_a_task_whose_session_rests_before_its_turn_arrives_commits_it_all_the_same() -> None:
    with played([("run", 0, "r", {"all": True}), ("settle",)]) as simulation:
        simulation.append(1)
        simulation.choose(("fate", "close", "late"))  # it has seen that the session is open
        simulation.choose(("finalize", 0, "f"))
        simulation.choose(("settle",))
        simulation.choose(("wait", DAY + 1))
        simulation.choose(("settle",))
        assert simulation.session.status == "completed"
        simulation.choose(("release",))
        simulation.choose(("settle",))
        task = simulation.run_of(0)
        assert task is not None
        assert task.status == "completed"
        assert not task.code.core.ending.failures
        assert simulation.names() == ["-1", "t"]


def test_a_session_with_a_rule_that_stands_does_not_rest() -> None:
    rule = StandingRule(id="t:1", tool="pay", agent="boss", verb="approve", by="ann")
    with played(TASK) as simulation:
        simulation.server.signal(SESSION, RULE, payloads(rule))
        simulation.choose(("settle",))
        for _ in range(3):
            simulation.choose(("wait", DAY + 1))
            simulation.choose(("settle",))
            assert simulation.session.is_open
        ended = rule.model_copy(update={"revoked": "ann"})
        simulation.server.signal(SESSION, REVOKE, payloads(ended))
        simulation.choose(("settle",))
        simulation.choose(("wait", DAY + 1))
        simulation.choose(("settle",))
        kept = simulation.kept()
        assert not simulation.session.is_open
        assert kept is not None
        assert [each.revoked for each in kept.rules] == ["ann"]


@pytest.mark.parametrize("fate", ["lost", "dead", "stalled", "fails", "breaks", "twice"])
def test_a_worker_lost_while_a_session_comes_to_rest_costs_nothing(fate: str) -> None:
    with played(TASK) as simulation:
        simulation.choose(("fate", "rest", fate))
        for _ in range(3):
            simulation.choose(("wait", DAY + 1))
            simulation.choose(("settle",))
        assert simulation.session.status == "completed"
        simulation.append(9)
        assert simulation.names() == ["t", "-9"]
        simulation.choose(("evict", "session"))
        assert simulation.names() == ["t", "-9"]
