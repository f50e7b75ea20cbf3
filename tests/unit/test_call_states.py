"""The states of a tool call: from every state, each event that can come leads to the next."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import pytest

from holdfast.task import waits
from holdfast.task.data.calls import LONG_CALL, Approval, LongCall, Outcome, StandingRule, Wait
from holdfast.task.data.children import ChildState, child_ids, secret_of_child
from holdfast.task.data.commands import Command, RunRequest
from holdfast.task.data.head import (
    AGENTS_SDK,
    IGNORED,
    RunRules,
    SessionRef,
    TaskHead,
    ToolPolicy,
    transfer_message,
)
from holdfast.task.data.records import StepResult
from holdfast.task.data.state import Described, TaskInput
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.people import approvals, decisions, standing
from holdfast.task.tool_calls import Call, CallState, add_long, drop_long, tools_to_find
from holdfast.task.undo import effects_of_open, leave_open_steps
from holdfast.values.messages import ToolCall
from holdfast.values.runs.approval_rules import ApprovalRule
from holdfast.values.runs.status import TaskStatus
from holdfast.values.runs.verbs import Verb
from holdfast.workflows.tools.tool_runs import leave_calls

N, AT = 1, 0
PLACE = (0, N, 0, AT)


def make(policy: ToolPolicy | None, rules: RunRules) -> tuple[Ledger, Call]:
    """Make a task whose first step has one open call."""
    head = TaskHead(agent="a", run=rules, dialect=AGENTS_SDK)
    ledger = Ledger(TaskInput(head=head, input="q"), task_id="t", now=1.0)
    policies = {} if policy is None else {"pay": policy}
    ledger.described(Described(snapshot="s", policies=policies))
    ledger.begin(RunRequest(), now=2.0)
    asked = ToolCall(id="c", name="pay", arguments='{"sum": 1}')
    ledger.s.opens = (ledger.at(N).model_copy(update={"calls": (asked,)}),)
    return ledger, Call(ledger, N, AT)


Event = Callable[[Ledger, Call], None]


def asks(ledger: Ledger, call: Call) -> None:
    approvals.ask(ledger, N, AT, "tool", now=3.0)


def asks_for_a_while(ledger: Ledger, call: Call) -> None:
    approvals.ask(ledger, N, AT, "tool", now=3.0, seconds=5)


def asks_if_it_happened(ledger: Ledger, call: Call) -> None:
    approvals.ask(ledger, N, AT, "unknown", now=3.0, text="lost")


def asked_of(ledger: Ledger, i: int = AT) -> Approval:
    """Return the newest question about a call."""
    found = approvals.latest(ledger, N, i)
    assert found is not None
    return found


def decided(ledger: Ledger, verb: Verb, i: int = AT, *, at: float = 4.0, **body: Any) -> None:
    """Let a person decide that question."""
    given = {"approval": asked_of(ledger, i).id, **body}
    refused = approvals.decide(ledger, Command(id="x", verb=verb, by="ann", body=given), now=at)
    assert not refused, refused


def decides(verb: Verb, **body: Any) -> Event:
    return lambda ledger, _: decided(ledger, verb, **body)


def check_says(refused: str) -> Event:
    return lambda ledger, _: decisions.checked(ledger, asked_of(ledger), refused, now=5.0)


def check_fails(ledger: Ledger, call: Call) -> None:
    decisions.open_again(ledger, asked_of(ledger), "there is no such tool", now=5.0)


def gated(ledger: Ledger, call: Call) -> None:
    call.is_gated = True


def not_gated(ledger: Ledger, call: Call) -> None:
    ledger.calls.clear(N, AT)


def screened(ledger: Ledger, call: Call) -> None:
    call.is_screened = True


def rule_stands(verb: Literal["approve", "reject"], *, branch: int = 0) -> Event:
    rule = StandingRule(verb=verb, by="ann", branch=branch, id="t:0", tool="pay")

    def event(ledger: Ledger, call: Call) -> None:
        ledger.s.standing = {rule.id: rule}

    return event


def in_session(ledger: Ledger, call: Call) -> None:
    head = ledger.given.head.model_copy(update={"session": SessionRef(id="s", name="s")})
    ledger.given = ledger.given.model_copy(update={"head": head})


def session_says(*rules: StandingRule) -> Event:
    def event(ledger: Ledger, call: Call) -> None:
        call.recalled = rules

    return event


def of_session(agent: str) -> StandingRule:
    return StandingRule(verb="approve", by="ann", id="u:1", tool="pay", session="s", agent=agent)


def applied(ledger: Ledger, call: Call) -> None:
    standing.stands(ledger, N, AT, call.policy, now=3.0)


def rejection_is_worded(ledger: Ledger, call: Call) -> None:
    decisions.rejected(ledger, N, AT, "no")


def time_is_up(ledger: Ledger, call: Call) -> None:
    approvals.expire(ledger, now=100.0)


def is_done(ledger: Ledger, call: Call) -> None:
    ledger.calls.outcome(N, AT, Outcome(content="paid"))


def fails_for_certain(ledger: Ledger, call: Call) -> None:
    ledger.calls.begins(N, AT, now=3.0)
    ledger.calls.failed(N, AT, "refused", now=4.0)


def end_fails(ledger: Ledger, call: Call) -> None:
    approvals.close_open(ledger, now=4.0)


def is_undone(ledger: Ledger, call: Call) -> None:
    leave_open_steps(ledger, now=4.0, by="ann")


def child_is(status: TaskStatus, *, closed: bool = False, is_over: bool = False) -> Event:
    def event(ledger: Ledger, call: Call) -> None:
        name = next(iter(child_ids("t", PLACE)))
        child = ChildState(place=PLACE, status=status, closed=closed)
        ledger.put_child(name, child)
        assert child.is_over is is_over

    return event


def runs_long(ledger: Ledger, call: Call) -> None:
    add_long(ledger, LongCall(id="l", branch=0, n=N, i=AT))


def long_attempt_is_over(ledger: Ledger, call: Call) -> None:
    drop_long(ledger, 0, N, AT)


PLAIN = RunRules()
SCREENS = RunRules(guards_before_approval=True)
WORDS = RunRules(tool_error_formatter="module:words")

FREE = ToolPolicy()
YES = ToolPolicy(needs_approval="yes")
ASK = ToolPolicy(needs_approval="ask")
GUARDED = ToolPolicy(needs_approval="yes", guarded=True)


def waits_outside(ledger: Ledger, call: Call) -> None:
    over = Outcome(content="late", asks=Wait(waits="sleep", until=9.0))
    waits.begin(ledger, call.n, call.i, over)


def wait_is_over(ledger: Ledger, call: Call) -> None:
    del call
    waits.end_due(ledger, now=9.0)


def came_early(ledger: Ledger, call: Call) -> None:
    ledger.calls.wait(call.n, call.i, Outcome(content="early"))


AGENT = ToolPolicy(agent="b")
APPROVED_AGENT = ToolPolicy(agent="b", needs_approval="yes")

approve = decides("approve")
edit = decides("approve", arguments={"sum": 2})
reject = decides("reject")
respond = decides("respond", result="paid by hand")

# Name, policy, rules of the run, events in order, and the state that they lead to.
ROWS: list[tuple[str, ToolPolicy | None, RunRules, list[Event], CallState]] = [
    ("fresh, nobody has to decide", FREE, PLAIN, [], "to_run"),
    ("fresh, a person decides", YES, PLAIN, [], "to_ask"),
    ("fresh, the predicate decides", ASK, PLAIN, [], "gating"),
    ("fresh, of an agent", AGENT, PLAIN, [], "to_nest"),
    ("fresh, no such tool", None, PLAIN, [], "unknown_tool"),
    ("gated: a person decides", ASK, PLAIN, [gated], "to_ask"),
    ("gated: nobody has to", ASK, PLAIN, [not_gated], "to_run"),
    ("gated, a rule stands", ASK, PLAIN, [rule_stands("approve"), gated], "standing"),
    ("not gated, a rule stands", ASK, PLAIN, [rule_stands("approve")], "standing"),
    ("not gated, a rule approves", ASK, PLAIN, [rule_stands("approve"), applied], "to_run"),
    ("not gated, a rule rejects", ASK, PLAIN, [rule_stands("reject"), applied], "over"),
    ("a rule stands", YES, PLAIN, [rule_stands("approve")], "standing"),
    ("a rule of another branch", YES, PLAIN, [rule_stands("approve", branch=1)], "to_ask"),
    ("a rule approves", YES, PLAIN, [rule_stands("approve"), applied], "to_run"),
    ("a rule rejects, in its own words", YES, WORDS, [rule_stands("reject"), applied], "rejected"),
    ("a rule rejects", YES, PLAIN, [rule_stands("reject"), applied], "over"),
    ("a rule is no matter where nobody decides", FREE, PLAIN, [rule_stands("reject")], "to_run"),
    ("of a session", YES, PLAIN, [in_session], "recalling"),
    ("of a session, not gated", ASK, PLAIN, [in_session], "recalling"),
    ("of a session, not gated, no rule", ASK, PLAIN, [in_session, session_says()], "gating"),
    (
        "of a session, a rule of the task",
        YES,
        PLAIN,
        [in_session, rule_stands("approve")],
        "standing",
    ),
    ("of a session, no rule", YES, PLAIN, [in_session, session_says()], "to_ask"),
    ("of a session, its rule", YES, PLAIN, [in_session, session_says(of_session("a"))], "standing"),
    (
        "of a session, for another agent",
        YES,
        PLAIN,
        [in_session, session_says(of_session("b"))],
        "to_ask",
    ),
    ("guards come first", GUARDED, SCREENS, [], "screening"),
    ("guards come later", GUARDED, PLAIN, [], "to_ask"),
    ("guards let it pass", GUARDED, SCREENS, [screened], "to_ask"),
    ("guards stop it", GUARDED, SCREENS, [is_done], "over"),
    ("asked", YES, PLAIN, [asks], "asked"),
    ("asked, approved", YES, PLAIN, [asks, approve], "to_run"),
    ("asked, edited", YES, PLAIN, [asks, edit], "checking"),
    ("edited, refused", YES, PLAIN, [asks, edit, check_says("no sum")], "asked"),
    ("edited, not to be checked", YES, PLAIN, [asks, edit, check_fails], "asked"),
    ("edited, accepted", YES, PLAIN, [asks, edit, check_says("")], "to_run"),
    ("edited, refused, approved", YES, PLAIN, [asks, edit, check_says("no"), approve], "to_run"),
    ("asked, rejected", YES, PLAIN, [asks, reject], "over"),
    ("asked, rejected in the words of the run", YES, WORDS, [asks, reject], "rejected"),
    ("rejected, worded", YES, WORDS, [asks, reject, rejection_is_worded], "over"),
    ("asked, answered", YES, PLAIN, [asks, respond], "over"),
    ("asked, too late", YES, PLAIN, [asks_for_a_while, time_is_up], "over"),
    ("asked, an end fails", YES, PLAIN, [asks, end_fails], "to_ask"),
    ("asked of a gated call, an end fails", ASK, PLAIN, [asks, end_fails], "gating"),
    ("approved, done", YES, PLAIN, [asks, approve, is_done], "over"),
    ("approved, certain to have failed", YES, PLAIN, [asks, approve, fails_for_certain], "to_run"),
    ("done", FREE, PLAIN, [is_done], "over"),
    ("certain to have failed", FREE, PLAIN, [fails_for_certain], "to_run"),
    ("lost", FREE, PLAIN, [asks_if_it_happened], "asked"),
    ("lost, it did not happen", FREE, PLAIN, [asks_if_it_happened, approve], "to_run"),
    ("lost, it happened", FREE, PLAIN, [asks_if_it_happened, respond], "over"),
    ("runs long", FREE, PLAIN, [runs_long], "runs_on"),
    ("approved, runs long", YES, PLAIN, [asks, approve, runs_long], "runs_on"),
    ("its long attempt is over", FREE, PLAIN, [runs_long, long_attempt_is_over], "to_run"),
    ("runs long, undone", FREE, PLAIN, [runs_long, is_undone], "over"),
    ("of an agent, a person decides", APPROVED_AGENT, PLAIN, [], "to_ask"),
    ("of an agent, approved", APPROVED_AGENT, PLAIN, [asks, approve], "to_nest"),
    ("child runs", AGENT, PLAIN, [child_is("running")], "in_child"),
    ("child waits for a person", AGENT, PLAIN, [child_is("waiting")], "in_child"),
    ("child has its answer", AGENT, PLAIN, [child_is("answered", is_over=True)], "to_run"),
    ("child was ended", AGENT, PLAIN, [child_is("abandoned", closed=True, is_over=True)], "to_run"),
    ("child is collected", AGENT, PLAIN, [child_is("answered", is_over=True), is_done], "over"),
    ("waits outside", FREE, PLAIN, [waits_outside], "outside"),
    ("approved, waits outside", YES, PLAIN, [asks, approve, waits_outside], "outside"),
    ("waits outside, its time is over", FREE, PLAIN, [waits_outside, wait_is_over], "over"),
    ("waits outside, undone", FREE, PLAIN, [waits_outside, is_undone], "over"),
    ("its outcome came before its tool had ended", FREE, PLAIN, [came_early], "to_run"),
    ("undone", FREE, PLAIN, [is_undone], "over"),
    ("asked, undone", YES, PLAIN, [asks, is_undone], "over"),
]


@pytest.mark.parametrize(
    ("policy", "rules", "events", "state"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_events_lead_to_a_state(
    policy: ToolPolicy | None, rules: RunRules, events: list[Event], state: CallState
) -> None:
    ledger, call = make(policy, rules)
    for event in events:
        event(ledger, call)
    assert call.state == state


def test_a_call_of_a_server_of_the_provider_is_passed_on_once_it_is_approved() -> None:
    ledger, call = make(None, RunRules())
    described = Described(snapshot="s", policies={"crm.*": YES})
    ledger.s.described = described
    asked = ToolCall(id="c", name="crm.pay", arguments="{}", server="crm")
    ledger.s.opens = (ledger.at(N).model_copy(update={"calls": (asked,)}),)
    found = [call.state]
    for event in (asks, decides("approve")):
        event(ledger, call)
        found.append(call.state)
    assert found == ["to_ask", "asked", "to_pass"]


def test_every_state_has_a_row() -> None:
    assert {row[4] for row in ROWS} | {"to_pass"} == set(get_args(CallState))


# ---- which calls of an answer are looked up before any of them begins
POLICIES = {
    "pay": ToolPolicy(needs_approval="yes"),
    "look": ToolPolicy(),
    "go": ToolPolicy(handoff="other"),
}


def with_calls(*names: str, **rules: Any) -> Ledger:
    """Make a task whose first step has these open calls."""
    head = TaskHead(agent="a", run=RunRules(**rules), dialect=AGENTS_SDK)
    ledger = Ledger(TaskInput(head=head, input="q"), task_id="t", now=1.0)
    ledger.described(Described(snapshot="s", policies=POLICIES))
    ledger.begin(RunRequest(), now=2.0)
    calls = [ToolCall(id=f"{name}{i}", name=name) for i, name in enumerate(names)]
    put(ledger, calls=tuple(calls))
    return ledger


def put(ledger: Ledger, **changes: Any) -> None:
    ledger.s.opens = (ledger.at(N).model_copy(update=changes),)


def asks_a_person(ledger: Ledger, *positions: int) -> None:
    for i in positions:
        approvals.ask(ledger, N, i, "tool", now=3.0)


def wanted(
    ledger: Ledger, *ready: int, begun: Sequence[int] = (), found: Sequence[int] = ()
) -> Any:
    """Return the positions that are looked up, and the name of the handoff."""
    given = tools_to_find(ledger, N, ready, begun=begun, found=found)
    if given is None:
        return None
    return [each.i for each in given.calls], given.handoff and given.handoff.name


def test_a_decision_for_later_calls_that_stood_before_looks_nothing_up() -> None:
    ledger = with_calls("pay", "look")
    asks_a_person(ledger, 0)
    decided(ledger, "approve", 0, at=3.0)
    assert wanted(ledger, 0, 1) is None


def test_an_approved_call_has_all_open_calls_of_its_answer_looked_up() -> None:
    ledger = with_calls("pay", "look", "pay")
    asks_a_person(ledger, 0, 2)
    decided(ledger, "approve", 2)
    assert wanted(ledger, 1, 2) == ([0, 1, 2], None)
    assert wanted(ledger, 1) is None


def test_calls_that_are_over_rejected_or_begun_are_not_looked_up() -> None:
    ledger = with_calls("pay", "look", "pay", "look")
    asks_a_person(ledger, 0, 2)
    decided(ledger, "approve", 0)
    decided(ledger, "reject", 2)
    ledger.calls.outcome(N, 1, Outcome(content="seen"))
    assert wanted(ledger, 0, begun=[3]) is None
    assert wanted(ledger, 0) == ([0, 3], None)


def test_calls_that_were_looked_up_are_not_again_until_another_one_is_approved() -> None:
    ledger = with_calls("pay", "pay", "look")
    asks_a_person(ledger, 0, 1)
    decided(ledger, "approve", 0)
    assert wanted(ledger, 0, 2, found=[0, 2]) is None
    decided(ledger, "approve", 1)
    assert wanted(ledger, 1, 2, found=[0, 2], begun=[0]) == ([1, 2], None)


@pytest.mark.parametrize(
    ("told", "handoff"), [(transfer_message("other"), "go"), (IGNORED, None), ("not found", None)]
)
def test_the_handoff_that_a_step_has_settled_is_looked_up(told: str, handoff: str | None) -> None:
    ledger = with_calls("pay", "go", "look")
    put(ledger, result=StepResult())
    ledger.calls.outcome(N, 1, Outcome(content=told, is_error=told == "not found"))
    asks_a_person(ledger, 0)
    decided(ledger, "approve", 0)
    assert wanted(ledger, 0, 2) == ([0, 2], handoff)


def test_a_run_that_tells_the_model_has_a_single_call_looked_up_once_it_is_approved() -> None:
    ledger = with_calls("pay", "pay", tool_not_found="return_error_to_model")
    asks_a_person(ledger, 0, 1)
    decided(ledger, "approve", 1)
    assert wanted(ledger, 1) == ([1], None)


# ---- what is known of a call that waits or was cut off: how it ran, and whose it was to decide

EventOf = Callable[[Ledger], None]
EDITED = '{"sum": 2}'
RULE = ApprovalRule(by=("ann",))


def running() -> Ledger:
    """Make a task whose call a person has edited and approved, and that runs now."""
    ledger, call = make(ToolPolicy(), RunRules())
    ledger.given = ledger.given.model_copy(update={"secret": "s"})
    approvals.ask(ledger, N, AT, "tool", now=3.0, rule=RULE)
    for event in (edit, check_says("")):
        event(ledger, call)
    ledger.calls.begins(N, AT, now=5.0, edited=EDITED)
    return ledger


def complete(ledger: Ledger) -> None:
    """Give the call its outcome from outside."""
    secret = secret_of_child("s", LONG_CALL)
    token = waits.token_of(secret, "t", PLACE, ledger.at(N).calls[AT])
    said = Command(id="y", verb="complete", body={"token": token, "result": "paid"})
    assert not waits.obey(ledger, said, now=6.0)


def waiting(text: str = "", **wait: Any) -> EventOf:
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
def test_an_outcome_from_outside_is_that_of_the_call_as_it_ran(events: tuple[EventOf, ...]) -> None:
    ledger = running()
    for event in events:
        event(ledger)
    found = ledger.at(N).outcomes[AT]
    assert (found.content, found.edited, found.asks) == ("paid", EDITED, None)
    assert not ledger.at(N).waiting


@pytest.mark.parametrize("until", [lambda _ledger: None, waits_for_it, complete])
def test_an_undo_meanwhile_takes_back_the_call_as_it_ran_by_its_rule(until: EventOf) -> None:
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
    before: EventOf, content: str, status: str
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
