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
from tests.simulation.play import HOME, LOOK, RUN, SETTLE, Choice, Played, held, say

APPROVE, REJECT = (say(verb, approval="open") for verb in ("approve", "reject"))
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
    return held([[LOOK], [LOOK], "done"], RUN, SETTLE, *choices, real=True, **options)


def counts(played: Played) -> tuple[int, int]:
    """Count the completed steps, and the approvals that were asked for."""
    return len(played.steps), sum('"asked"' in entry for entry in played.ledger)


@pytest.mark.parametrize(
    "between", [[], [("evict", 0)], [("lose", 0)], [say("feedback", text="on")]], ids=str
)
def test_it_goes_on_by_itself_when_the_next_day_begins(
    monkeypatch: pytest.MonkeyPatch, between: list[Choice]
) -> None:
    assert counts(played(monkeypatch, *between, SETTLE)) == (0, 1)
    after = (("wait", 1005), SETTLE)
    assert counts(played(monkeypatch, *between, SETTLE, *after)) == (STEPS, 1)


def test_a_person_lets_it_go_on_with_an_amount_or_call_by_call_or_finish(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_call = [APPROVE, SETTLE] * STEPS
    assert counts(played(monkeypatch, *by_call, of_dollars=False)) == (STEPS, STEPS)
    assert counts(played(monkeypatch, *by_call[:2])) == (STEPS, 1)
    assert counts(played(monkeypatch, REJECT, SETTLE)) == (1, 1)


def test_it_waits_over_rollovers_and_may_be_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    said = [say("feedback", text=str(k)) for k in range(30)]
    rolled = played(monkeypatch, *said, SETTLE, ("wait", 1005), SETTLE, roll_events=50)
    assert counts(rolled) == (STEPS, 1)
    assert counts(played(monkeypatch, say("abandon"), SETTLE, HOME)) == (0, 1)
