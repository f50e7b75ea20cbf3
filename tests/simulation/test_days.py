"""A step whose tenant has used its day waits for a person, or for the next day."""

import time
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast.activities.data.registry import Registry
from holdfast.errors import ModelUnavailableError
from holdfast.models.base import ModelAnswer, ModelRequest
from holdfast.task.data.wire import UsedDay
from tests.simulation.clock import EPOCH
from tests.simulation.play import Choice, Played, Schedule, play

LOOK = ["look", {"what": "1"}]
RUN: Choice = ("run", 0, "r1", {"all": True})
APPROVE: Choice = ("say", 0, "approve", {"approval": "open", "by": "ann"})
REJECT: Choice = ("say", 0, "reject", {"approval": "open", "by": "ann"})
ENDS = EPOCH + 1000
STEPS = 3
KNOWN = Registry.model_of_run


@dataclass
class Spent:
    """A model whose governor makes no call before the next day."""

    of_dollars: bool
    name: str = "spent"

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Make no call."""
        error = ModelUnavailableError("It waits.", is_limit=True)
        error.is_unasked = True
        error.used_day = UsedDay(what="all is used up", ends=ENDS, of_dollars=self.of_dollars)
        raise error


def played(
    monkeypatch: pytest.MonkeyPatch, *choices: Choice, of_dollars: bool = True, **options: Any
) -> Played:
    """Play a task whose tenant has used its day."""

    async def model_of_run(self: Registry, agent: Any, snapshot: Any, head: Any, limit: str) -> Any:
        if limit in ("past", "finish") or time.time() >= ENDS:
            return await KNOWN(self, agent, snapshot, head)
        return Spent(of_dollars)

    monkeypatch.setattr(Registry, "model_of_run", model_of_run)
    schedule = Schedule([[LOOK], [LOOK], "done"], [RUN, ("settle",), *choices], real=True)
    schedule.options = options
    found = play(schedule)
    assert not found.violation, "\n".join([*found.trace, found.violation])
    return found


def counts(played: Played) -> tuple[int, int]:
    """Count the completed steps, and the approvals that were asked for."""
    steps = sum(entry.startswith('{"step"') for entry in played.ledger)
    return steps, sum('"asked"' in entry for entry in played.ledger)


@pytest.mark.parametrize(
    "between",
    [[], [("evict", 0)], [("lose", 0)], [("say", 0, "feedback", {"text": "on", "by": "ann"})]],
    ids=["nothing", "eviction", "lost task", "feedback"],
)
def test_it_goes_on_by_itself_when_the_next_day_begins(
    monkeypatch: pytest.MonkeyPatch, between: list[Choice]
) -> None:
    assert counts(played(monkeypatch, *between, ("settle",))) == (0, 1)
    after = (("wait", 1005), ("settle",))
    assert counts(played(monkeypatch, *between, ("settle",), *after)) == (STEPS, 1)


def test_a_person_lets_it_go_on_with_an_amount_or_call_by_call_or_finish(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_call = [APPROVE, ("settle",)] * STEPS
    assert counts(played(monkeypatch, *by_call, of_dollars=False)) == (STEPS, STEPS)
    assert counts(played(monkeypatch, *by_call[:2])) == (STEPS, 1)
    assert counts(played(monkeypatch, REJECT, ("settle",))) == (1, 1)


def test_it_waits_over_rollovers_and_may_be_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    said = [("say", 0, "feedback", {"text": str(k), "by": "ann"}) for k in range(30)]
    rolled = played(monkeypatch, *said, ("settle",), ("wait", 1005), ("settle",), roll_events=50)
    assert counts(rolled) == (STEPS, 1)
    abandoned = played(monkeypatch, ("say", 0, "abandon", {"by": "ann"}), ("settle",), ("home",))
    assert counts(abandoned) == (0, 1)
