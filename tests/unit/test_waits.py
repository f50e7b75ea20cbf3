"""What is known of a call that waits or was cut off: how it ran, and whose it was to decide."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.task import waits
from holdfast.task.data.calls import LONG_CALL, Outcome, Wait
from holdfast.task.data.children import secret_of_child
from holdfast.task.data.commands import Command
from holdfast.task.data.head import RunRules, ToolPolicy
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.people import approvals, decisions
from holdfast.task.undo import effects_of_open
from holdfast.values.runs.approval_rules import ApprovalRule
from holdfast.workflows.tools.tool_runs import leave_calls
from tests.unit.test_call_states import AT, PLACE, N, make

Event = Callable[[Ledger], None]
EDITED = '{"sum": 2}'
RULE = ApprovalRule(by=("ann",))


def running() -> Ledger:
    """Make a task whose call a person has edited and approved, and that runs now."""
    ledger, call = make(ToolPolicy(), RunRules())
    ledger.given = ledger.given.model_copy(update={"secret": "s"})
    asked = approvals.ask(ledger, N, AT, "tool", now=3.0, rule=RULE)
    body = {"approval": asked.id, "arguments": {"sum": 2}}
    said = Command(id="x", verb="approve", by="ann", body=body)
    assert not approvals.decide(ledger, said, now=4.0)
    assert call.approval is not None
    decisions.checked(ledger, call.approval, "", now=4.5)
    ledger.calls.begins(N, AT, now=5.0, edited=EDITED)
    return ledger


def complete(ledger: Ledger) -> None:
    """Give the call its outcome from outside."""
    secret = secret_of_child("s", LONG_CALL)
    token = waits.token_of(secret, "t", PLACE, ledger.at(N).calls[AT])
    said = Command(id="y", verb="complete", body={"token": token, "result": "paid"})
    assert not waits.obey(ledger, said, now=6.0)


def waiting(text: str = "", **wait: Any) -> Event:
    """Let its tool end, and the call wait."""
    return lambda it: waits.begin(it, N, AT, Outcome(content=text, asks=Wait(**wait)))


waits_for_it = waiting(waits="answer")
waits_for_a_while = waiting("None has come in 94 seconds.", waits="answer", until=99.0)
sleeps = waiting("look again", waits="sleep", until=99.0)


def is_unknown(ledger: Ledger) -> None:
    """Lose the worker of its tool."""
    approvals.ask(ledger, N, AT, "unknown", now=5.5, text="lost")


@pytest.mark.parametrize(
    "events", [(waits_for_it, complete), (is_unknown, complete), (complete, waits_for_it)]
)
def test_an_outcome_from_outside_is_that_of_the_call_as_it_ran(events: tuple[Event, ...]) -> None:
    ledger = running()
    for event in events:
        event(ledger)
    found = ledger.at(N).outcomes[AT]
    assert (found.content, found.edited, found.asks) == ("paid", EDITED, None)
    assert not ledger.at(N).waiting


@pytest.mark.parametrize("until", [lambda _ledger: None, waits_for_it, complete])
def test_an_undo_meanwhile_takes_back_the_call_as_it_ran_by_its_rule(until: Event) -> None:
    ledger = running()
    until(ledger)
    [effect] = effects_of_open(ledger.at(N), {AT})
    assert (effect.call.arguments, effect.rule, effect.ran) == (EDITED, RULE, True)


ENDED = "The wait for its outcome was ended before there was one."


@pytest.mark.parametrize(
    ("before", "content", "status"),
    [
        (complete, "paid", "done"),
        (sleeps, "look again", "done"),
        (waits_for_it, ENDED, "unknown"),
        (waits_for_a_while, ENDED, "unknown"),
    ],
)
def test_the_end_of_a_task_leaves_what_is_known_of_a_call_that_waits(
    before: Event, content: str, status: str
) -> None:
    ledger = running()
    before(ledger)
    leave_calls(ledger, {(N, AT)}, at=9.0)
    found = ledger.at(N).outcomes[AT]
    assert (found.content, found.status, found.edited) == (content, status, EDITED)


def test_a_call_is_told_whether_its_time_was_over_or_a_person_ended_the_wait() -> None:
    woken, late = running(), running()
    waits_for_a_while(woken)
    waits_for_a_while(late)
    assert not waits.obey(woken, Command(id="z", verb="wake", by="ann"), now=9.0)
    waits.end_due(late, now=99.0)
    found = [ledger.at(N).outcomes[AT].content for ledger in (woken, late)]
    assert found == [ENDED, "None has come in 94 seconds."]
