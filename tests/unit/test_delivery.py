"""Who gets which output: the table of requests and outcomes, row by row."""

from typing import get_args

import pytest

from holdfast.task.data.commands import RunReply, RunRequest
from holdfast.task.data.failures import Failure
from holdfast.task.data.head import TaskHead
from holdfast.task.data.state import Carried, Delivery, TaskInput
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.requests.delivery import GETS, KINDS, Kind, Outcome, Pending, RunRequests

ASKED: dict[Kind, RunRequest] = {
    "step": RunRequest(),
    "join": RunRequest(),
    "round": RunRequest(round=True),
    "all": RunRequest(all=True),
}
IDS: dict[Kind, str] = {kind: f"aaaaaa{k}~00000000" for k, kind in enumerate(KINDS)}
REPLY, FAILURE = RunReply(n=1), Failure(type="NoNextStepError", message="none")
WANTED = """
answered  -       -       -       output
over      failure failure failure output
closed    failure failure failure output
waits     output  output  output  output
moved     output  output  output  output
idle      failure failure failure failure
failed    later   later   later   later
ended     failure failure failure failure
"""


def a_task() -> tuple[Ledger, RunRequests, dict[Kind, Pending]]:
    """Begin a task with one step, begun for a caller that is gone, and a request of each kind."""
    ledger = Ledger(TaskInput(head=TaskHead(agent="a"), input="q"), task_id="t", now=1.0)
    requests = RunRequests(ledger)
    ledger.begin(RunRequest(), now=2.0)
    waiting: dict[Kind, Pending] = {}
    for kind, asked in ASKED.items():
        ledger.disown()
        if kind == "join":
            ledger.own("bbbbbbb~00000000")
        waiting[kind] = Pending(IDS[kind], asked)
        requests.add(waiting[kind])
    return ledger, requests, waiting


@pytest.mark.parametrize("row", WANTED.strip().splitlines(), ids=lambda row: row.split()[0])
def test_each_request_gets_what_the_table_says(row: str) -> None:
    outcome, *wanted = row.split()
    _, requests, waiting = a_task()
    named: Outcome = next(each for each in GETS if each == outcome)
    requests.tell(named, REPLY, FAILURE)
    got = {True: "output", False: "failure"}
    assert {kind: pending.kind for kind, pending in waiting.items()} == {k: k for k in KINDS}
    for pending, expected in zip(waiting.values(), wanted, strict=True):
        found = got[pending.reply == REPLY] if pending.done else "-"
        assert found == ("-" if expected == "later" else expected)
    requests.tell_failures()
    assert [p.parked for p in waiting.values()] == [each == "later" for each in wanted]


def test_the_table_has_every_outcome() -> None:
    assert set(GETS) == set(get_args(Outcome))
    assert {outcome for outcome in GETS if outcome != "done"} == {
        row.split()[0] for row in WANTED.strip().splitlines()
    }


def test_the_parts_of_a_carried_state_are_flat_on_the_wire_as_they_always_were() -> None:
    delivery = Delivery(undelivered=(2,), given=((1, ("c",)),), seen={"r": REPLY})
    wire = Carried(steps=2, delivery=delivery).wire()
    assert wire == {"steps": 2, "undelivered": [2], "given": [[1, ["c"]]], "seen": {"r": {"n": 1}}}
    assert Carried.model_validate(wire).delivery == delivery
    assert Carried().wire() == {}
