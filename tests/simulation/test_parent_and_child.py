"""Signals in the name of a task, or of one that works for it, from who does not know its secret."""

import json

import pytest

from holdfast.task.data.children import REPORTS, SAYS
from tests.simulation.play import RUN, SETTLE, TASK, WORLD, Choice, held, nested, say

CHILD = f"{TASK}~0.1.0.0"


def forged(who: int, signal: str, **said: object) -> Choice:
    return ("raw", who, signal, [json.dumps(said)])


@pytest.mark.parametrize(("of", "who"), [(TASK, "that task."), (CHILD, "a task that this one")])
def test_signals_in_the_name_of_parent_and_child_are_refused_and_change_nothing(
    of: str, who: str
) -> None:
    report = {"id": CHILD, "status": "failed", "closed": True, "heard": 99}
    forgeries = [
        forged(1, SAYS, number=99, end="abandon", by="mallory"),
        forged(1, SAYS, number=99, undo="do", secret="guessed"),
        forged(1, SAYS, number=99, paused="mallory", secret=CHILD),
        forged(0, REPORTS, **report, secret=""),
        forged(0, REPORTS, **report, secret="guessed"),
        forged(0, SAYS, number=1, end="abandon", secret=""),
    ]
    plan, after = (
        [[nested([["pay", {"amount": 2}]], "done")], "done"],
        say("approve", approval="open"),
    )
    played = held(plan, RUN, SETTLE, *forgeries, SETTLE, after, SETTLE, of=of)
    refused = [entry for entry in played.ledger if '"kind": "refused"' in entry]
    assert len(refused) == 3
    assert f"did not come from {who}" in refused[0]
    assert sum(WORLD.done.values()) == 1
    assert len(played.steps) == 2
