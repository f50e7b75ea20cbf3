"""Handoffs as values: names, checks, what models and tasks are told, and folding histories."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import Agent, UserError, tool
from holdfast.agents.handoffs.filters import (
    END,
    PREAMBLE,
    START,
    HandoffInputData,
    conversation,
    default_handoff_history_mapper,
    nest_handoff_history,
    next_input,
    remove_all_tools,
    unfolded,
)
from holdfast.agents.handoffs.handoff import default_tool_name, handoff
from holdfast.agents.items.run_items import (
    HandoffCallItem,
    HandoffOutputItem,
    InputItem,
    MessageOutputItem,
    RawItem,
    RunItem,
    ToolCallItem,
    ToolCallOutputItem,
)
from holdfast.agents.runs.teams import check_agents
from holdfast.archive.archive import Archive
from holdfast.serving.plugin import HoldfastPlugin
from holdfast.task.data.head import IGNORED, called_handoff, handed_to, transfer_message
from holdfast.values.messages import Message, ToolCall

BOB = Agent(name="bob", model="offline")


class Reason(BaseModel):
    """Why."""

    text: str
    level: int = 1


def takes_one(_ctx: Any) -> None:
    """Be called without an input."""


def takes_two(_ctx: Any, _input: Any) -> None:
    """Be called with an input."""


# ---- names and what is told


def test_a_worker_process_warns_of_tools_of_one_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def transfer_to_bob() -> None:
        """Do something else."""

    ann = Agent(name="ann", tools=[transfer_to_bob], handoffs=[BOB])
    with caplog.at_level(logging.WARNING, logger="holdfast"):
        HoldfastPlugin(archive=Archive(tmp_path), agents=[ann])
        HoldfastPlugin(archive=Archive(tmp_path), agents=[BOB])
    [record] = caplog.records
    assert "'ann' has more than one tool or handoff named 'transfer_to_bob'" in record.message


@pytest.mark.parametrize(("one", "other"), [("客服", "退款"), ("A/B", "A?B")])
@pytest.mark.parametrize("how", ["handoffs", "tools"])
def test_two_agents_that_fold_to_one_name_are_refused_by_both_names(
    how: str, one: str, other: str
) -> None:
    led = [Agent(name=one), Agent(name=other)]
    tools = [each.as_tool(None, "Ask.") for each in led]
    ann = Agent(name="ann", handoffs=led) if how == "handoffs" else Agent(name="ann", tools=tools)
    with pytest.raises(UserError, match="leads to agents") as refused:
        check_agents([ann], "warn")
    assert repr(one) in str(refused.value)
    assert repr(other) in str(refused.value)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("Bob", "transfer_to_bob"),
        ("Billing agent", "transfer_to_billing_agent"),
        ("R&D (Zürich)", "transfer_to_r_d__z_rich_"),
        ("a-b.c", "transfer_to_a_b_c"),
    ],
)
def test_a_default_name_is_snake_case_without_what_models_refuse(name: str, wanted: str) -> None:
    assert default_tool_name(name) == handoff(Agent(name=name)).tool_name == wanted


def test_a_snapshot_tells_of_handoffs_beside_the_tools() -> None:
    @tool(effect="read")
    def look() -> str:
        """Look."""
        return ""

    made = handoff(BOB, on_handoff=takes_two, input_type=Reason)
    snapshot = Agent(name="ann", tools=[look], handoffs=[BOB.clone(name="carl"), made]).snapshot(
        "m"
    )
    assert [spec.name for spec in snapshot.tools] == ["look"]
    assert [spec.name for spec in snapshot.handoffs] == ["transfer_to_carl", "transfer_to_bob"]
    carl, bob = (snapshot.policies[spec.name] for spec in snapshot.handoffs)
    assert (carl.handoff, carl.effect) == ("carl", "read")
    assert (bob.handoff, bob.effect) == ("bob", "irreversible")
    schema = snapshot.handoffs[1].parameters
    assert schema["required"] == ["text", "level"]
    assert schema["additionalProperties"] is False


# ---- checks


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: handoff(BOB, input_type=Reason), "must provide on_handoff"),
        (lambda: handoff(BOB, on_handoff=takes_two), "must take \\(ctx\\)"),
        (lambda: handoff(BOB, on_handoff=takes_one, input_type=Reason), "\\(ctx, input\\)"),
        (lambda: handoff(BOB, on_handoff="no"), "on_handoff must be callable.*that of handoff"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: handoff(BOB, input_filter="no"), "input_filter must be callable.*that of handoff"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: handoff(BOB, is_enabled="no"), "is_enabled must be callable.*that of handoff"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: handoff(BOB, on_handoff=takes_two, input_type=int), "must be an object"),
        (lambda: handoff(BOB, "a name"), "letters, digits"),
        (lambda: handoff(Agent(name="x" * 60)), "tool_name_override"),
        (lambda: handoff("bob"), "goes to an Agent"),  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
        (lambda: Agent(name="ann", handoffs=["bob"]), "goes to an Agent"),  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    ],
)
def test_what_does_not_go_together_is_refused(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(UserError, match=text):
        make()


@pytest.mark.parametrize(
    "people", [[Agent(name="bob"), BOB], [Agent(name="a b"), Agent(name="a_b")]]
)
def test_of_two_handoffs_of_one_name_the_last_is_offered(people: list[Agent]) -> None:
    ann = Agent(name="ann", handoffs=people)
    [offered] = ann.made_handoffs
    assert offered.agent is people[-1]
    with pytest.raises(UserError, match=r"is used by multiple tools|leads to agents"):
        check_agents([ann], "error")


def test_what_is_never_offered_clashes_with_nothing() -> None:
    off = handoff(Agent(name="bob"), is_enabled=False)
    ann = Agent(name="ann", handoffs=[BOB, off])
    assert (ann.name_clashes, [each.agent for each in ann.made_handoffs]) == ([], [BOB])


# ---- recognising them


def test_calls_and_results_of_handoffs_are_recognised() -> None:
    policies = Agent(name="ann", handoffs=[BOB]).snapshot("m").policies
    call, other = ToolCall(id="1", name="transfer_to_bob"), ToolCall(id="2", name="look")
    done = Message(role="tool", call_id="1", content=transfer_message("bob"))
    assert called_handoff(call, policies) == handed_to(call, done, policies) == "bob"
    assert called_handoff(other, policies) == handed_to(other, done, policies) == ""
    ignored = done.model_copy(update={"content": IGNORED})
    given_up = done.model_copy(update={"is_error": True})
    assert handed_to(call, ignored, policies) == handed_to(call, given_up, policies) == ""


# ---- filters


ANN = Agent(name="ann")


def item(kind: str, **raw: Any) -> RunItem:
    made = RawItem(raw)
    match kind:
        case "tool_call_item":
            return ToolCallItem(ANN, made)
        case "tool_call_output_item":
            return ToolCallOutputItem(ANN, made, raw["output"])
        case "handoff_call_item":
            return HandoffCallItem(ANN, made)
        case "handoff_output_item":
            return HandoffOutputItem(ANN, made, ANN, BOB)
        case "message_output_item":
            return MessageOutputItem(ANN, made)
        case _:
            return InputItem(ANN, made)


CALL = {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "1", "output": "seen"}
HANDOFF = {"type": "function_call", "call_id": "2", "name": "transfer_to_bob", "arguments": "{}"}
HANDED = {"type": "function_call_output", "call_id": "2", "output": transfer_message("bob")}
SAID = {"role": "assistant", "content": "over to Bob"}
ASKED = {"role": "user", "content": "and\nquickly"}

DATA = HandoffInputData(
    input_history="hi",
    pre_handoff_items=(
        item("tool_call_item", **CALL),
        item("tool_call_output_item", **RESULT),
        item("input_item", **ASKED),
    ),
    new_items=(
        item("message_output_item", **SAID),
        item("handoff_call_item", **HANDOFF),
        item("handoff_output_item", **HANDED),
    ),
)


def test_the_next_agent_sees_all_three_parts_or_input_items_in_place_of_the_new_ones() -> None:
    first = {"role": "user", "content": "hi"}
    assert next_input(DATA) == ([first], [CALL, RESULT, ASKED, SAID, HANDOFF, HANDED])
    assert next_input(DATA.clone(input_items=())) == ([first], [CALL, RESULT, ASKED])


def test_remove_all_tools_leaves_messages() -> None:
    reasoning: dict[str, Any] = {"type": "reasoning", "id": "r", "summary": []}
    searched = {"type": "web_search_call", "id": "w"}
    given: tuple[dict[str, Any], ...] = (
        {"role": "user", "content": "hi"},
        CALL,
        RESULT,
        reasoning,
        searched,
        SAID,
    )
    data = remove_all_tools(DATA.clone(input_history=given, input_items=DATA.new_items))
    assert data.input_history == (given[0], SAID)
    assert [each.raw_item for each in data.pre_handoff_items] == [ASKED]
    assert [each.raw_item for each in data.new_items] == [SAID]
    assert (data.input_items, remove_all_tools(DATA).input_history) == (data.new_items, "hi")


def test_a_nested_history_folds_around_what_was_said_last() -> None:
    (before, asked, said, after), rest = next_input(nest_handoff_history(DATA))
    assert rest == []
    assert (asked, said) == (ASKED, SAID)
    assert before["content"].split("\n")[:3] == [PREAMBLE, START, "1. user: hi"]
    assert unfolded([before, after]) == [
        {"role": "user", "content": "hi"},
        CALL,
        RESULT,
        HANDOFF,
        HANDED,
    ]


def test_items_that_a_nested_history_has_word_for_word_are_known_by_their_places() -> None:
    whole = nest_handoff_history(DATA)
    assert whole.moved_from(DATA) == (1, 2)
    history = whole.input_history
    assert not isinstance(history, str)
    assert whole.clone(input_history=(history[2], history[1])).moved_from(DATA) == (0, 1)
    assert whole.clone(new_items=()).moved_from(DATA) == (1,)
    assert HandoffInputData(history, (), whole.new_items, input_items=()).moved_from(DATA) == ()


def test_a_folded_history_unfolds_to_the_same_items() -> None:
    items = conversation(DATA)
    [message] = default_handoff_history_mapper(items)
    assert message["content"].endswith(f"\n{END}")
    assert (unfolded([message]), unfolded(default_handoff_history_mapper([]))) == (items, [])


@pytest.mark.parametrize("made", [None, "text", [1]])
def test_a_mapper_must_give_items(made: Any) -> None:
    with pytest.raises(UserError, match="list of items"):
        nest_handoff_history(DATA, history_mapper=lambda _: made)
