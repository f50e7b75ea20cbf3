"""Who may decide a call, and how many of them: the rule of a tool, applied to decisions."""

from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any

import pytest

from holdfast import Always, ApprovalRule, tool
from holdfast.agents.tools.decorator import Tool
from holdfast.errors import InvalidArgumentError
from holdfast.reading.inbox import InboxFilter
from holdfast.task.data.calls import Approval, ApprovalKind
from holdfast.task.data.commands import Command, RunRequest
from holdfast.task.data.head import TaskHead, ToolPolicy
from holdfast.task.data.state import Described, TaskInput
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.people import approvals, decisions, standing
from holdfast.task.requests.command_effects import obey
from holdfast.values.base import Json
from holdfast.values.checks.ids import check_by
from holdfast.values.messages import ToolCall
from holdfast.values.runs.verbs import Verb

N = 1
PROPOSED = '{"sum": 1}'
ESCALATES: dict[str, Any] = {"escalate_after_seconds": 5, "escalate_to": ["ben"]}


class Desk:
    """A task whose first step has calls that wait under a rule, and people who decide them."""

    def __init__(
        self,
        rule: ApprovalRule,
        *,
        asker: str = "",
        calls: int = 1,
        sums: tuple[int, ...] = (),
        servers: tuple[str, ...] = (),
    ) -> None:
        head = TaskHead(agent="a", asker=asker)
        self.ledger = Ledger(TaskInput(head=head, input="q"), task_id="t", now=1.0)
        policy = ToolPolicy(needs_approval="yes", approval=rule)
        self.ledger.described(Described(snapshot="s", policies={"pay": policy}))
        self.ledger.begin(RunRequest(), now=2.0)
        texts = [f'{{"sum": {each}}}' for each in sums] or [PROPOSED] * calls
        asked = tuple(
            ToolCall(id=f"c{i}", name="pay", arguments=t, server=server)
            for i, (t, server) in enumerate(zip_longest(texts, servers, fillvalue=""))
        )
        self.ledger.s.opens = (self.ledger.at(N).model_copy(update={"calls": asked}),)
        seconds = rule.expires_seconds or 0
        for i in range(len(asked)):
            approvals.ask(self.ledger, N, i, "tool", now=3.0, seconds=seconds)

    def decide(
        self, by: str, verb: Verb = "approve", *, i: int = 0, now: float = 4.0, **body: Any
    ) -> str:
        """Decide; return why it is refused."""
        given = {"approval": self.at(i).id, **body}
        return obey(self.ledger, Command(id="", verb=verb, by=by, body=given), now=now)

    def edit(self, by: str, arguments: str, refused: str = "") -> str:
        """Edit the arguments, and check them as the worker process would."""
        reason = self.decide(by, arguments=arguments)
        if self.at().status == "checking":
            decisions.checked(self.ledger, self.at(), refused, now=5.0)
        return reason

    def at(self, i: int = 0) -> Approval:
        """Return the approval of a call."""
        found = approvals.latest(self.ledger, N, i)
        assert found is not None
        return found


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"quorum": 0}, "quorum"),
        ({"by": ["ann"], "quorum": 2}, "cannot be reached by 1"),
        ({"by": ["ann", "Ann "], "quorum": 2}, "Ann "),
        ({"by": ["ann", "ANN"], "quorum": 2}, "cannot be reached by 1"),
        ({"by": ["role:"]}, "neither"),
        ({"by": [""]}, "neither"),
        ({"by": ["roles:finance"]}, "a role is written 'role:finance'"),
        ({"by": ["ann"], "escalate_to": ["Role: boss"]}, "a role is written 'role:boss'"),
        ({"expires_seconds": 0}, "expires_seconds"),
        ({"escalate_after_seconds": 5}, "need each other"),
        ({"by": ["ann"], "escalate_to": ["ben"]}, "need each other"),
        (ESCALATES, "anybody may decide already"),
        ({**ESCALATES, "by": ["ann"], "expires_seconds": 5}, "expire before it escalates"),
    ],
)
def test_a_rule_that_cannot_work_is_refused_where_it_is_made(
    given: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        ApprovalRule(**given)


def paying(**options: Any) -> Tool:
    """Make a tool."""

    @tool(**options)
    def pay() -> None: ...

    return pay


def test_a_rule_is_part_of_the_policy_and_its_deadline_that_of_the_tool() -> None:
    rule = ApprovalRule(by="role:finance", quorum=2, expires_seconds=60)
    policy = paying(needs_approval=rule).policy()
    assert (policy.needs_approval, policy.approval_seconds, policy.approval) == ("yes", 60, rule)
    assert ToolPolicy.model_validate(policy.wire()) == policy


@pytest.mark.parametrize(("by", "roles"), [("Ann", []), ("ben", ["finance"])])
def test_a_person_who_may_not_decide_is_refused_and_one_who_is_named_or_has_the_role_decides(
    by: str, roles: list[str]
) -> None:
    desk = Desk(ApprovalRule(by=("ann", "role:finance")))
    for verb in ("approve", "reject", "respond"):
        reason = desk.decide("eve", verb, result="x", roles=["sales"])
        assert reason == ("eve (roles: sales) may not decide 't:1'; these may: ann, role:finance.")
    assert desk.at().status == "open"
    assert desk.at().who == ("ann", "role:finance")
    assert not desk.decide(by, roles=roles)
    assert desk.at().status == "approved"


def test_a_role_is_not_a_name() -> None:
    desk = Desk(ApprovalRule(by="role:finance"))
    assert desk.decide("role:finance")
    assert desk.decide("finance")
    assert desk.decide("eve", roles="finance")
    assert desk.at().status == "open"


def test_a_decision_on_one_edit_is_refused_for_another_whose_digest_begins_alike() -> None:
    desk = Desk(ApprovalRule(quorum=2))
    desk.edit("mallory", '{"sum": 1, "ref": 29182}')
    seen = desk.at().bound
    desk.edit("mallory", '{"sum": 9000, "ref": 2100}')
    assert desk.at().bound[:8] == seen[:8]  # found by trying, in a second
    assert "other arguments" in desk.decide("ben", digest=seen)
    assert desk.at().status == "open"


@pytest.mark.parametrize(("name", "again"), [("anna", "Anna"), ("Zo\u00eb", "Zoe\u0308")])
def test_the_first_of_two_is_recorded_once_however_it_is_written_and_the_second_decides(
    name: str, again: str
) -> None:
    desk = Desk(ApprovalRule(quorum=2))
    assert not desk.decide(name, note="ok")
    assert (desk.at().status, desk.at().progress) == ("open", f"1 of 2: {name}")
    assert not desk.decide(again, now=5.0)
    assert (desk.at().status, desk.at().progress) == ("open", f"1 of 2: {name}")
    assert not desk.decide("ben")
    assert (desk.at().status, desk.at().by) == ("approved", f"{name}, ben")


@pytest.mark.parametrize("name", ["\u0430nna", "Anna Sm\u0456th", "ann\u0251\u03b1"])
def test_a_name_whose_letters_look_like_those_of_another_alphabet_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="may not mix alphabets in a word"):
        check_by(name)


def test_names_of_one_alphabet_a_word_may_act() -> None:
    anna, yamada = "\u0410\u043d\u043d\u0430 Smith", "\u5c71\u7530Taro"
    for name in (anna, yamada, "\xc5ngstr\xf6m-2", "mcp:ann", ""):
        assert check_by(name) == name


@pytest.mark.parametrize("hidden", ["\ufe0f", "\u034f", "\u200d", "\u3164", "\U000e0061", "\xad"])
def test_a_character_that_nothing_shows_makes_no_other_person(hidden: str) -> None:
    desk = Desk(ApprovalRule(quorum=2))
    desk.decide("anna")
    for name in (f"an{hidden}na", f"{hidden}anna", f"anna{hidden}"):
        desk.decide(name)
        assert (desk.at().status, desk.at().progress) == ("open", "1 of 2: anna")
        with pytest.raises(InvalidArgumentError, match="nothing shows"):
            check_by(name)


def test_a_vote_says_which_arguments_it_is_for_once_they_were_edited() -> None:
    desk = Desk(ApprovalRule(quorum=2))
    seen = desk.at().digest
    assert not desk.edit("anna", '{"sum": 2}')
    assert "anna has edited the arguments" in desk.decide("ben")
    assert "other arguments" in desk.decide("ben", digest=seen)
    assert [vote.by for vote in desk.at().votes] == ["anna"]
    assert not desk.decide("ben", digest=desk.at().bound)
    assert (desk.at().status, desk.at().by) == ("approved", "anna, ben")


def test_an_edit_that_does_not_fit_keeps_what_others_approved() -> None:
    desk = Desk(ApprovalRule(quorum=3))
    desk.edit("anna", '{"sum": 2}')
    desk.decide("ben", digest=desk.at().bound)
    desk.edit("cleo", '{"sum": "x"}', refused="sum is no number")
    kept = desk.at()
    assert (kept.progress, kept.effective) == ("2 of 3: anna, ben", '{"sum": 2}')
    assert "sum is no number" in kept.text


def test_votes_after_an_edit_was_taken_back_are_for_what_they_name() -> None:
    desk = Desk(ApprovalRule(quorum=3))
    before = desk.at().digest
    desk.edit("anna", '{"sum": 2}')
    edited = desk.at().bound
    assert "other arguments" in desk.decide("cleo", digest=before)
    assert not desk.edit("ben", PROPOSED)
    assert "other arguments" in desk.decide("cleo", digest=edited)
    assert "taken an edit back" in desk.decide("cleo")  # it may have meant the edited ones
    assert desk.at().progress == "1 of 3: ben"
    assert not desk.decide("cleo", digest=before)
    assert not desk.edit("anna", PROPOSED)
    assert (desk.at().status, desk.at().by) == ("approved", "ben, cleo, anna")


def test_who_created_the_task_does_not_decide_and_nobody_where_that_is_not_recorded() -> None:
    desk, unknown = (Desk(ApprovalRule(not_asker=True), asker=asker) for asker in ("Anna", ""))
    assert "created the task" in desk.decide("anna")
    assert "does not record who" in unknown.decide("ben")
    assert (desk.at().status, unknown.at().status) == ("open", "open")
    assert not desk.decide("ben")


def test_no_one_person_gives_a_result_or_decides_later_calls_for_several() -> None:
    desk = Desk(ApprovalRule(quorum=2))
    assert "2 people" in desk.decide("anna", "respond", result="x")
    assert "2 people" in desk.decide("anna", always=True)
    assert desk.at().status == "open"
    assert not desk.ledger.s.standing


def test_more_people_may_decide_once_it_is_escalated() -> None:
    rule = ApprovalRule(by="ann", escalate_after_seconds=10, escalate_to="role:boss")
    desk = Desk(rule)
    assert approvals.deadline(desk.ledger) == 13.0
    assert "not been escalated" in desk.decide("cy", now=12.0, roles=["boss"])
    approvals.escalate(desk.ledger, now=13.0)
    assert (desk.at().escalated, approvals.deadline(desk.ledger)) == (13.0, 0)
    assert desk.at().may_decide == ("ann", "role:boss")
    events = [e.event.kind for e in desk.ledger.log.entries if e.event is not None]
    assert events.count("escalated") == 1
    assert not desk.decide("cy", now=14.0, roles=["boss"])


@pytest.mark.parametrize(
    ("one", "twin"),
    [
        *(("copa", "\u0441\u043e\u0440\u0430"), ("TOM", "\u0422\u041e\u041c")),
        *(("ka", "\u03ba\u03b1"), ("nu", "\u0578\u057d"), ("Al", "AI"), ("bo", "b0")),
    ],
)
def test_a_name_that_looks_like_another_is_no_second_person_and_is_not_named_by_its_rule(
    one: str, twin: str
) -> None:
    desk = Desk(ApprovalRule(quorum=2))
    for name in (one, twin):
        desk.decide(check_by(name))
    assert desk.at().progress == f"1 of 2: {one}"
    assert "has approved" in decisions.cannot_decide(desk.at(), decisions.Person(twin))
    desk.decide("ben")
    assert desk.at().status == "approved"
    assert "may not decide" in Desk(ApprovalRule(by=[one])).decide(twin)
    assert "created the task" in Desk(ApprovalRule(not_asker=True), asker=one).decide(twin)
    with pytest.raises(ValueError, match="cannot be reached by 1"):
        ApprovalRule(by=[one, twin], quorum=2)


def test_a_standing_decision_is_about_the_calls_of_one_agent() -> None:
    desk = Desk(ApprovalRule())
    desk.decide("ann", always=True)
    [rule] = standing.rules(desk.ledger)
    assert rule.agent == desk.at().agent
    opened = desk.ledger.at(N).open
    step = opened.step.model_copy(update={"agent": "another"})
    handed = opened.model_copy(update={"step": step})
    desk.ledger.s.opens = (desk.ledger.at(N).model_copy(update={"open": handed}),)
    assert not of_time(desk, 5.0)


def of_time(desk: Desk, now: float) -> bool:
    """Whether a standing rule decides the first call if it is made at a time."""
    return standing.stands(desk.ledger, N, 0, ToolPolicy(needs_approval="yes"), now=now)


def test_a_standing_rule_holds_for_calls_with_the_same_values_and_for_its_time() -> None:
    desk = Desk(ApprovalRule(), sums=(1, 2, 1))
    assert not desk.decide("ann", always={"same": ["sum"], "until": 100.0})
    assert [desk.at(i).status for i in range(3)] == ["approved", "open", "approved"]
    [rule] = standing.rules(desk.ledger)
    assert (rule.id, rule.tool, rule.values, rule.until) == ("t:1", "pay", {"sum": 1}, 100.0)
    used = [e.event for e in desk.ledger.log.entries if e.event and e.event.kind == "standing"]
    assert [(event.by, event.body["rule"], event.body["id"]) for event in used] == [
        ("ann", "t:1", "t:3")
    ]
    assert of_time(desk, 99.0)
    assert not of_time(desk, 100.0)
    assert standing.rules(desk.ledger) == []


def test_a_standing_rule_is_revoked_by_its_id() -> None:
    desk = Desk(ApprovalRule())
    desk.decide("ann", always=True)
    assert "there are: t:1" in desk.decide("ben", "revoke", rule="t:9")
    assert not desk.decide("ben", "revoke", rule="t:1")
    assert not of_time(desk, 5.0)
    assert "none" in desk.decide("ben", "revoke", rule="t:1")


@pytest.mark.parametrize(
    ("always", "said"),
    [
        ({"same": ["to"]}, "no argument 'to'"),
        ({"until": 4.0}, "over already"),
        ({"until": "nan"}, "no time"),
        ({"until": "inf"}, "no time"),
        ({"until": 1e300}, "no time"),
        ({"untill": 9.0}, "no field 'untill'"),
        ({"same": 5}, "Always"),
    ],
)
def test_a_standing_rule_that_cannot_hold_is_refused_and_nothing_is_decided(
    always: dict[str, Any], said: str
) -> None:
    desk = Desk(ApprovalRule())
    assert said in desk.decide("ann", always=always)
    assert desk.at().status == "open"
    assert not desk.ledger.s.standing


@pytest.mark.parametrize("kind", ["limit", "undo", "unknown", "question"])
@pytest.mark.parametrize("verb", ["approve", "reject"])
@pytest.mark.parametrize("always", [True, {"same": ["sum"]}, {"scope": "session"}])
def test_a_decision_on_what_is_no_tool_call_holds_once(
    kind: ApprovalKind, verb: Verb, always: Json
) -> None:
    desk = Desk(ApprovalRule())
    asked = approvals.ask(desk.ledger, N, -1, kind, now=3.0)
    body: dict[str, Json] = {"approval": asked.id, "always": always}
    command = Command(verb=verb, by="ann", body=body)
    assert "cannot hold for later" in obey(desk.ledger, command, now=4.0)
    assert asked in approvals.pending(desk.ledger)
    assert not desk.ledger.s.standing
    plain = command.model_copy(update={"body": {"approval": asked.id, "always": False}})
    assert "later" not in obey(desk.ledger, plain, now=5.0)


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="time zone"):
        Always(until=datetime(2030, 1, 1))  # noqa: DTZ001  the claim
    assert Always(until=datetime(1970, 1, 2, tzinfo=UTC)).until == 86_400


def test_a_decision_on_one_servers_tool_is_none_on_anothers_of_its_name() -> None:
    desk = Desk(ApprovalRule(), calls=3, servers=("sandbox", "sandbox", "prod"))
    assert desk.decide("ann", always=True) == ""
    assert [desk.at(i).status for i in range(3)] == ["approved", "approved", "open"]
    policy = ToolPolicy(needs_approval="yes")
    known = [standing.standing_rule(desk.ledger, N, i, policy) for i in range(3)]
    assert [rule is not None for rule in known] == [True, True, False]


def test_a_snooze_ends_at_its_time_by_a_vote_and_when_it_escalates() -> None:
    rule = ApprovalRule(by=("ann", "ben"), quorum=2, escalate_after_seconds=50, escalate_to="boss")
    desk = Desk(rule)
    assert "may not decide" in desk.decide("eve", "snooze", until=30.0)
    for wrong in ("noon", None, "2027-01-31T14:00:00", [1]):
        assert "until must be a time" in desk.decide("ann", "snooze", until=wrong)
    assert not desk.decide("ann", "snooze", until=30.0, now=4.0)
    assert approvals.deadline(desk.ledger) == 30.0
    assert (InboxFilter().takes(desk.at(), now=29.0), desk.at().stage) == (False, "asked")
    assert InboxFilter(snoozed=True).takes(desk.at(), now=29.0)
    assert InboxFilter().takes(desk.at(), now=30.0)  # before any worker process is up
    assert approvals.messages(desk.ledger) == {}
    approvals.escalate(desk.ledger, now=30.5)
    assert (desk.at().stage, desk.at().stage_began, desk.at().snoozed_by) == ("returned", 30.5, "")
    assert not desk.decide("ann", "snooze", until=300.0, now=31.0)
    desk.decide("ben", now=32.0)
    assert (desk.at().progress, desk.at().snoozed_until) == ("1 of 2: ben", 0.0)
    assert not desk.decide("ann", "snooze", until=300.0, now=33.0)
    approvals.escalate(desk.ledger, now=90.0)
    assert (desk.at().stage, desk.at().snoozed_until) == ("escalated", 0.0)


def test_an_approval_is_not_snoozed_past_its_deadline() -> None:
    desk = Desk(ApprovalRule(expires_seconds=60))
    late = desk.decide("ann", "snooze", until=desk.at().expires)
    assert "expires at 1970-01-01" in late
    assert "say a time before that" in late
    assert not desk.decide("ann", "snooze", until=desk.at().expires - 1)
