"""Which calls of an answer are looked up before any of them begins."""

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.task.data.calls import Outcome
from holdfast.task.data.commands import Command, RunRequest
from holdfast.task.data.head import (
    AGENTS_SDK,
    IGNORED,
    RunRules,
    TaskHead,
    ToolPolicy,
    transfer_message,
)
from holdfast.task.data.records import StepResult
from holdfast.task.data.state import Described, TaskInput
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.people import approvals
from holdfast.task.tool_calls import tools_to_find
from holdfast.values.messages import ToolCall
from holdfast.values.runs.verbs import Verb

N = 1
POLICIES = {
    "pay": ToolPolicy(needs_approval="yes"),
    "look": ToolPolicy(),
    "go": ToolPolicy(handoff="other"),
}


def call(name: str, i: int) -> ToolCall:
    return ToolCall(id=f"{name}{i}", name=name, arguments="{}")


def make(*names: str, **rules: Any) -> Ledger:
    """Make a task whose first step has these open calls."""
    head = TaskHead(agent="a", run=RunRules(**rules), dialect=AGENTS_SDK)
    ledger = Ledger(TaskInput(head=head, input="q"), task_id="t", now=1.0)
    ledger.described(Described(snapshot="s", policies=POLICIES))
    ledger.begin(RunRequest(), now=2.0)
    calls = tuple(call(name, i) for i, name in enumerate(names))
    put(ledger, calls=calls)
    return ledger


def put(ledger: Ledger, **changes: Any) -> None:
    ledger.s.opens = (ledger.at(N).model_copy(update=changes),)


def asks(ledger: Ledger, *positions: int) -> None:
    for i in positions:
        approvals.ask(ledger, N, i, "tool", now=3.0)


def decides(ledger: Ledger, verb: Verb, i: int, *, at: float = 4.0) -> None:
    approval = approvals.latest(ledger, N, i)
    assert approval is not None
    command = Command(id="x", verb=verb, by="ann", body={"approval": approval.id, "reason": "no"})
    assert not approvals.decide(ledger, command, now=at)


def wanted(
    ledger: Ledger, *ready: int, begun: Sequence[int] = (), found: Sequence[int] = ()
) -> Any:
    """Return the positions that are looked up, and the name of the handoff."""
    given = tools_to_find(ledger, N, ready, begun=begun, found=found)
    if given is None:
        return None
    return [each.i for each in given.calls], given.handoff and given.handoff.name


def test_a_decision_for_later_calls_that_stood_before_looks_nothing_up() -> None:
    ledger = make("pay", "look")
    asks(ledger, 0)
    decides(ledger, "approve", 0, at=3.0)
    assert wanted(ledger, 0, 1) is None


def test_an_approved_call_has_all_open_calls_of_its_answer_looked_up() -> None:
    ledger = make("pay", "look", "pay")
    asks(ledger, 0, 2)
    decides(ledger, "approve", 2)
    assert wanted(ledger, 1, 2) == ([0, 1, 2], None)
    assert wanted(ledger, 1) is None


def test_calls_that_are_over_rejected_or_begun_are_not_looked_up() -> None:
    ledger = make("pay", "look", "pay", "look")
    asks(ledger, 0, 2)
    decides(ledger, "approve", 0)
    decides(ledger, "reject", 2)
    ledger.calls.outcome(N, 1, Outcome(content="seen"))
    assert wanted(ledger, 0, begun=[3]) is None
    assert wanted(ledger, 0) == ([0, 3], None)


def test_calls_that_were_looked_up_are_not_again_until_another_one_is_approved() -> None:
    ledger = make("pay", "pay", "look")
    asks(ledger, 0, 1)
    decides(ledger, "approve", 0)
    assert wanted(ledger, 0, 2, found=[0, 2]) is None
    decides(ledger, "approve", 1)
    assert wanted(ledger, 1, 2, found=[0, 2], begun=[0]) == ([1, 2], None)


@pytest.mark.parametrize(
    ("told", "handoff"), [(transfer_message("other"), "go"), (IGNORED, None), ("not found", None)]
)
def test_the_handoff_that_a_step_has_settled_is_looked_up(told: str, handoff: str | None) -> None:
    ledger = make("pay", "go", "look")
    put(ledger, result=StepResult())
    ledger.calls.outcome(N, 1, Outcome(content=told, is_error=told == "not found"))
    asks(ledger, 0)
    decides(ledger, "approve", 0)
    assert wanted(ledger, 0, 2) == ([0, 2], handoff)


def test_a_run_that_tells_the_model_has_a_single_call_looked_up_once_it_is_approved() -> None:
    ledger = make("pay", "pay", tool_not_found="return_error_to_model")
    asks(ledger, 0, 1)
    decides(ledger, "approve", 1)
    assert wanted(ledger, 1) == ([1], None)
