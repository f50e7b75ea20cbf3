"""Cards of the desk's inbox: what a person sees before a decision, and what each button says."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.desk.views.cards import Card, Context, card_of, differences, fields_of, parsed
from holdfast.errors import InvalidArgumentError
from holdfast.models.base import ToolSpec
from holdfast.reading.inbox import InboxFilter, choices
from holdfast.task.data.calls import Approval, Vote, call_digest
from holdfast.task.data.head import AgentSnapshot, ToolPolicy
from holdfast.task.people.choices import choices_of
from holdfast.task.people.decisions import Person
from holdfast.values.messages import ToolCall, assistant, user
from holdfast.values.steps import Task

ANN = Person("ann", ["finance"])
PAY = ToolCall(id="c1", name="pay", arguments='{"to": "Kim", "euros": 930}')
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "to": {"type": "string", "description": "Who gets it."},
        "euros": {"type": "integer"},
        "mode": {"$ref": "#/$defs/Mode"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
    },
    "required": ["to", "euros"],
    "$defs": {"Mode": {"enum": ["wire", "card"], "type": "string"}},
}


def approval(**changes: Any) -> Approval:
    fields: dict[str, Any] = {
        "id": "t1:4",
        "agent": "clerk",
        "tool": "pay",
        "effect": "irreversible",
        "call_id": "c1",
        "arguments": PAY.arguments,
        "digest": call_digest(PAY),
        "n": 2,
        "asked": 100.0,
    }
    return Approval(**{**fields, **changes})


def snapshot(**policy: Any) -> AgentSnapshot:
    return AgentSnapshot(
        name="clerk",
        tools=(ToolSpec(name="pay", parameters=SCHEMA),),
        policies={"pay": ToolPolicy(**policy)},
    )


def card(asked: Approval | None = None, **policy: Any) -> Card:
    messages = (user("pay it"), assistant("The receipt is there.", calls=(PAY,)))
    task = Task(task_id="t1", input="Pay Kim.", agent="clerk")
    context = Context(task=task, snapshot=snapshot(**policy), messages=messages)
    return card_of(asked or approval(), context, now=160.0)


def test_a_card_has_the_call_as_its_schema_says_and_why_the_agent_makes_it() -> None:
    shown = card()
    assert [(f.name, f.kind, f.text, f.is_required) for f in shown.fields] == [
        ("to", "text", "Kim", True),
        ("euros", "integer", "930", True),
        ("mode", "choice", "", False),
        ("note", "text", "", False),
    ]
    assert shown.fields[0].description == "Who gets it."
    assert shown.fields[2].choices == ("wire", "card")
    assert shown.fields[3].is_nullable
    assert (shown.why, shown.goal) == ("The receipt is there.", "Pay Kim.")
    assert shown.asker == ("agent clerk", "step 2")
    assert shown.is_whole


def test_an_argument_that_does_not_fit_its_schema_is_shown_as_data() -> None:
    [to, *_] = fields_of('{"to": {"name": "Kim"}, "more": [1]}', SCHEMA)
    assert (to.kind, to.value) == ("json", {"name": "Kim"})
    *_, more = fields_of('{"more": [1]}', SCHEMA)
    assert (more.name, more.kind, more.text) == ("more", "json", "[\n  1\n]")


def test_a_card_says_how_the_call_would_be_undone() -> None:
    assert card().undo == "The tool declares no undo: what it does stays."
    reversible = approval(effect="reversible")
    assert "calls the tool's own undo." in card(reversible, has_undo=True).undo
    assert "after a person approves it" in (
        card(reversible, has_undo=True, undo_needs_approval=True).undo
    )


def test_a_deadline_says_what_happens_then() -> None:
    shown = card(approval(expires=400.0))
    assert shown.deadline == "in 4 min"
    assert "rejected" in shown.after
    assert card().deadline == card().after == ""


def test_buttons_say_what_they_do_in_the_case() -> None:
    labels = {
        kind: [(b.key, b.verb, b.label) for b in choices_of(approval(kind=kind)) if b.key != "z"]
        for kind in ("tool", "unknown", "limit", "undo")
    }
    assert labels["unknown"] == [
        ("a", "approve", "It did not happen: pay now"),
        ("v", "respond", "It happened: enter the result"),
        ("r", "reject", "Give it up"),
    ]
    assert labels["tool"][0] == ("a", "approve", "Run pay")
    assert [verb for _, verb, _ in labels["tool"]] == [
        "approve",
        "edit",
        "always",
        "reject",
        "respond",
    ]
    assert [label for *_, label in labels["limit"]] == ["Allow one more model call", "Finish now"]
    money = approval(kind="limit", arguments='{"max_dollars": "0.40"}')
    assert [(b.verb, b.label) for b in choices_of(money)] == [
        ("approve", "Raise the budget to $0.40"),
        ("edit", "Raise it to another amount"),
        ("reject", "Finish now"),
        ("snooze", "Snooze"),
    ]
    assert labels["undo"][0] == ("a", "approve", "Undo pay")


def test_secrets_are_not_on_a_card() -> None:
    key = "sk-proj-abcdefgh12345678"
    shown = card(approval(arguments=f'{{"to": "{key}"}}', text=f"with {key}"))
    assert key not in f"{shown.fields[0].text} {shown.raw} {shown.known}"


def test_typed_values_are_read_by_their_kind() -> None:
    to, euros, *_ = fields_of(PAY.arguments, SCHEMA)
    assert (parsed("93", to), parsed("93", euros)) == ("93", 93)
    with pytest.raises(InvalidArgumentError, match="euros must be a whole number"):
        parsed("many", euros)


def test_an_edit_is_shown_as_its_differences() -> None:
    old, new = {"to": "Kim", "euros": 930, "x": 1}, {"to": "Kim", "euros": 93, "y": True}
    assert [(d.name, d.old, d.new) for d in differences(old, new)] == [
        ("euros", "930", "93"),
        ("x", "1", ""),
        ("y", "", "true"),
    ]


def test_the_filter_of_the_inbox_is_its_url() -> None:
    query = {"agent": "clerk", "tool": "pay", "kind": "tool", "older": "60", "q": "kim"}
    wanted = InboxFilter.read(query)
    assert wanted.query == query
    assert wanted.takes(approval(), ANN, now=160.0)
    assert not wanted.takes(approval(), ANN, now=159.0)
    assert not wanted.takes(approval(agent="other"), ANN, now=160.0)
    assert InboxFilter.read({"kind": "<script>", "older": "-1"}).query == {}
    assert choices([approval(), approval(tool="", agent="b")], "tool") == ["pay"]


@pytest.mark.parametrize(
    ("fields", "is_mine"),
    [
        ({}, True),
        ({"who": ("ann",)}, True),
        ({"who": ("role:finance",)}, True),
        ({"who": ("ben", "role:board")}, False),
        ({"who": ("ben",), "escalate_to": ("Ann",)}, False),
        ({"who": ("ben",), "escalate_to": ("Ann",), "escalated": 150.0}, True),
        ({"not_asker": True, "asker": "Ann"}, False),
        ({"quorum": 2, "votes": (Vote(by="ANN", at=1.0),)}, False),
        ({"quorum": 2, "votes": (Vote(by="ben", at=1.0),)}, True),
    ],
)
def test_mine_is_what_a_person_can_decide(fields: dict[str, Any], is_mine: bool) -> None:
    wanted = InboxFilter.read({"mine": "1"})
    assert wanted.query == {"mine": "1"}
    assert wanted.takes(approval(**fields), ANN, now=160.0) is is_mine
    assert InboxFilter.read({"mine": "perhaps"}).takes(approval(**fields), ANN, now=160.0)


def test_later_calls_are_approved_where_one_person_decides_alone() -> None:
    [later] = [each for each in choices_of(approval()) if each.verb == "always"]
    assert (later.key, later.label, later.asks) == ("w", "Run pay, and later calls", "later")
    assert later.warning == "pay cannot be undone."
    for other in (approval(quorum=2), approval(kind="unknown"), approval(kind="limit")):
        assert "always" not in [each.verb for each in choices_of(other)]


def test_three_decisions_are_shown_at_once_and_those_that_are_barred_have_no_key() -> None:
    shown = card()
    assert [each.verb for each in shown.first_buttons] == ["approve", "edit", "reject"]
    unknown = card(approval(kind="unknown")).first_buttons
    assert [each.verb for each in unknown] == ["approve", "respond", "reject"]
    off = tuple(replace(each, barred=f"not {each.verb[:2]}") for each in shown.buttons[:2])
    barred = replace(shown, buttons=(*off, *shown.buttons[2:]))
    assert barred.barred == ("not ap", "not ed")
    assert (barred.button("a"), barred.button("r")) == (None, shown.buttons[3])


def test_a_call_that_the_provider_runs_is_approved_as_it_stands_or_rejected() -> None:
    hosted = approval(tool="crm.pay", server="crm")
    assert [each.verb for each in choices_of(hosted)] == ["approve", "always", "reject", "snooze"]
    shown = card(hosted)
    assert (shown.button("e"), shown.button("v")) == (None, None)
    same_name = card(approval(server="crm"), has_undo=True)  # of a namespace that is called so
    assert (same_name.fields[0].description, same_name.undo) == ("", "")
    assert {each.verb for each in choices_of(approval())} > {"edit", "respond"}
