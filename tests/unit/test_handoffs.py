"""Handoffs as values: names, checks, what models and tasks are told, and folding histories."""

import gc
import logging
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage
from pydantic import BaseModel

from holdfast import (
    Agent,
    ModelBehaviorError,
    RunContextWrapper,
    RunResult,
    RunState,
    Usage,
    UserError,
    tool,
)
from holdfast.agents.guardrails import GuardrailFunctionOutput, InputGuardrail, InputGuardrailResult
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
from holdfast.agents.runs.state_form import VERSION
from holdfast.agents.runs.teams import check_agents
from holdfast.agents_sdk import ItemHelpers, ModelResponse, ToolApprovalItem
from holdfast.archive.archive import Archive
from holdfast.serving.plugin import HoldfastPlugin
from holdfast.task.data.head import IGNORED, called_handoff, handed_to, transfer_message
from holdfast.values.messages import Message, ToolCall
from tests.support.there import there

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


# ---- items of a run that code of the user's makes, of dicts and of objects of the API

OF_ANN = Agent("Ann")
CALL_BY_HAND: dict[str, Any] = {
    "type": "function_call",
    "call_id": "c1",
    "name": "pay",
    "arguments": '{"to": "Kim"}',
}
SAID_BY_HAND: dict[str, Any] = {
    "id": "m1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [
        {"type": "output_text", "text": "Hel", "annotations": []},
        {"type": "refusal", "refusal": "no"},
        {"type": "output_text", "text": "lo", "annotations": []},
    ],
}


def forms(raw: dict[str, Any], kind: Any) -> list[Any]:
    return [raw, kind.model_validate(raw)]


@pytest.mark.parametrize("raw", forms(CALL_BY_HAND, ResponseFunctionToolCall))
def test_a_call_is_read_whatever_its_form(raw: Any) -> None:
    item = ToolCallItem(agent=OF_ANN, raw_item=raw, title="Pay")
    assert (item.type, item.tool_name, item.call_id) == ("tool_call_item", "pay", "c1")
    assert item.raw_item is raw
    assert item.to_input_item() == CALL_BY_HAND
    assert HandoffCallItem(OF_ANN, raw).call_id == "c1"
    asked = ToolApprovalItem(agent=OF_ANN, raw_item=raw)
    assert (asked.name, asked.tool_name, asked.qualified_name) == ("pay", "pay", "pay")
    assert (asked.arguments, asked.call_id) == (CALL_BY_HAND["arguments"], "c1")
    named = ToolApprovalItem(agent=OF_ANN, raw_item=raw, tool_name="give", tool_namespace="bank")
    assert (named.name, named.qualified_name) == ("give", "bank.give")


@pytest.mark.parametrize("raw", forms(SAID_BY_HAND, ResponseOutputMessage))
def test_a_message_is_read_whatever_its_form(raw: Any) -> None:
    item = MessageOutputItem(agent=OF_ANN, raw_item=raw)
    assert item.to_input_item() == SAID_BY_HAND
    assert ItemHelpers.text_message_outputs([item]) == ItemHelpers.extract_text(raw) == "Hello"
    assert ItemHelpers.extract_last_content(raw) == ItemHelpers.extract_last_text(raw) == "lo"
    assert ItemHelpers.extract_refusal(raw) == "no"
    assert ModelResponse([raw], Usage(), None).to_input_items() == [SAID_BY_HAND]


def test_an_approval_is_no_input() -> None:
    asked = ToolApprovalItem(OF_ANN, CALL_BY_HAND)
    with pytest.raises(UserError, match="not input"):
        asked.to_input_item()
    assert asked != ToolApprovalItem(OF_ANN, CALL_BY_HAND)
    said = MessageOutputItem(OF_ANN, SAID_BY_HAND)
    data = HandoffInputData("q", (asked, said), (asked,))
    assert next_input(data) == ([{"role": "user", "content": "q"}], [SAID_BY_HAND])
    assert remove_all_tools(data).pre_handoff_items == (said,)
    assert remove_all_tools(data).new_items == ()


def test_a_released_agent_lives_as_long_as_something_else_has_it() -> None:
    kept, gone = Agent("kept"), Agent("gone")
    item: Any = HandoffOutputItem(OF_ANN, {}, source_agent=kept, target_agent=gone)
    item.release_agent()
    assert (item.source_agent, item.target_agent) == (kept, gone)
    ref = weakref.ref(gone)
    del gone
    gc.collect()
    assert ref() is item.target_agent is None
    assert item.source_agent is kept
    with pytest.raises(AttributeError, match="nothing"):
        _ = item.nothing


def test_an_input_list_is_a_copy_that_json_takes() -> None:
    given: list[Any] = [{"role": "user", "content": iter([{"type": "input_text", "text": "hi"}])}]
    made = ItemHelpers.input_to_new_input_list(given)
    assert made == [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]
    assert made[0] is not given[0]
    assert ItemHelpers.input_to_new_input_list("hi") == [{"role": "user", "content": "hi"}]
    message = ResponseOutputMessage.model_validate(SAID_BY_HAND)
    listed: Any = [message]
    assert ItemHelpers.input_to_new_input_list(listed) == [SAID_BY_HAND]


def test_what_is_of_output_only_is_not_sent_back() -> None:
    shell = {
        "type": "shell_call_output",
        "created_by": "a",
        "output": [{"stdout": "hi", "created_by": "b"}],
    }
    made = ModelResponse([shell], Usage(), None).to_input_items()
    assert made == [{"type": "shell_call_output", "output": [{"stdout": "hi"}]}]
    assert shell["created_by"] == "a"
    item = ToolCallOutputItem(agent=Agent("a"), raw_item=shell, output="hi")
    assert item.to_input_item() == made[0]


FINE = GuardrailFunctionOutput(None, tripwire_triggered=False)


def passes(*_: Any) -> GuardrailFunctionOutput:
    return FINE


def test_a_printed_result_is_a_short_summary() -> None:
    said: list[RunItem] = [MessageOutputItem(OF_ANN, SAID_BY_HAND)]
    asked = ToolApprovalItem(agent=OF_ANN, raw_item=CALL_BY_HAND)
    checked = InputGuardrailResult(InputGuardrail(passes, "g"), FINE)
    result = RunResult(
        "q" * 9000,
        said * 300,
        [ModelResponse([SAID_BY_HAND], Usage(), None)],
        "done\n \x1b[31m" + "x" * 9000,
        [checked],
        last_agent=OF_ANN,
        task_id="t1",
        interruptions=[asked],
        waiting_for=("pay " + "y" * 900,) * 7,
    )
    lines = str(result).splitlines()
    assert lines[:3] == ["RunResult:", "  task: t1", "  last agent: Ann"]
    assert lines[3].startswith("  final output (str): done \\x1b[31mxxx")
    assert lines[3].endswith("… [9011 characters]")
    assert lines[4:8] == [
        "  new items: 300",
        "  raw responses: 1",
        "  guardrail results: 1 input",
        "  interruptions: 1",
    ]
    assert [line.split("y")[0] for line in lines[8:13]] == ["  waits for: pa"] * 5
    assert lines[13:] == ["  waits for: 2 more"]
    assert len(str(result)) < 2500
    assert repr(result).startswith("RunResult(input='qqq")


# ---- states of runs that have not begun, their JSON form, and decisions on a run's context

ANN_BY_HAND = Agent("Ann")


def asked(call_id: str, name: str = "pay", **more: Any) -> ToolApprovalItem:
    raw = {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}", **more}
    return ToolApprovalItem(agent=ANN_BY_HAND, raw_item=raw)


def on_server(call_id: str, server: str) -> ToolApprovalItem:
    raw = {"type": "mcp_approval_request", "id": call_id, "name": "pay", "server_label": server}
    return ToolApprovalItem(agent=ANN_BY_HAND, raw_item=raw)


@dataclass
class Desk:
    paid: int = 0


class Shelf(BaseModel):
    books: int = 0


# ---- decisions


def test_a_decision_is_on_one_call() -> None:
    ctx = RunContextWrapper(None)
    ctx.approve_tool(asked("c1"))
    ctx.reject_tool(asked("c2"), rejection_message="too much")
    assert [ctx.is_tool_approved("pay", each) for each in ("c1", "c2", "c3")] == [True, False, None]
    assert ctx.get_rejection_message("pay", "c2") == "too much"
    assert ctx.is_tool_approved("look", "c1") is None
    ctx.approve_tool(asked("c2"))
    assert ctx.is_tool_approved("pay", "c2") is True
    assert ctx.get_rejection_message("pay", "c2") is None


def test_a_decision_on_a_call_stands_beside_one_on_all() -> None:
    ctx = RunContextWrapper(None)
    ctx.reject_tool(asked("c1"), always_reject=True, rejection_message="")
    ctx.approve_tool(asked("c2"))
    said = [ctx.is_tool_approved("pay", each) for each in ("c1", "c2", "c3")]
    assert said == [False, True, False]
    assert ctx.get_rejection_message("pay", "c3") == ""
    ctx.approve_tool(asked("c1"), always_approve=True)
    assert ctx.is_tool_approved("pay", "c1") is ctx.is_tool_approved("pay", "c9") is True


@pytest.mark.parametrize("other", [asked("c1", "look"), asked("c1", arguments='{"a": 1}')])
def test_a_decision_is_none_on_another_call_of_its_id(other: ToolApprovalItem) -> None:
    ctx = RunContextWrapper(None)
    ctx.approve_tool(asked("c1"))
    ctx.approve_tool(asked("c2", "look"), always_approve=True)
    assert ctx.get_approval_status("pay", "c1", current_invocation=asked("c1")) is True
    with pytest.raises(ModelBehaviorError, match="unique call ID"):
        ctx.get_approval_status(other.tool_name or "", "c1", current_invocation=other)


def test_a_tool_on_a_server_is_another_one_on_another_server() -> None:
    ctx = RunContextWrapper(None)
    ctx.approve_tool(on_server("c1", "a"), always_approve=True)
    assert ctx.is_tool_approved("pay", "c1") is True
    assert ctx.is_tool_approved("pay", "c2") is None
    status = [
        ctx.get_approval_status("pay", "c2", existing_pending=on_server("c2", server))
        for server in ("a", "b")
    ]
    assert status == [True, None]
    with pytest.raises(UserError, match="non-empty server_label and tool name"):
        ctx.reject_tool(on_server("c1", ""), always_reject=True)


# ---- states of a task


async def test_a_state_of_a_task_keeps_its_context_only_with_a_serializer() -> None:
    state: RunState[Desk] = RunState.of("task")
    state.context = RunContextWrapper(Desk(5))
    assert state.to_json()["context"] is None
    data = state.to_json(context_serializer=lambda desk: {"n": desk.paid})
    again = await RunState.from_json(
        ANN_BY_HAND, data, context_deserializer=lambda each: Desk(each["n"])
    )
    assert there(again.context).context == Desk(5)
    other = await RunState.from_json(ANN_BY_HAND, state.to_json(), context_override=Desk(7))
    assert there(other.context).context == Desk(7)


# ---- states of runs that have not begun


def new(context: Any = None, given: Any = "q", **more: Any) -> RunState[Any, Any]:
    return RunState(RunContextWrapper(context), given, ANN_BY_HAND, **more)


async def test_a_state_survives_its_text() -> None:
    state = new({"a": 1}, [{"role": "user", "content": "q"}], max_turns=3, conversation_id="c")
    state.add_input("and then?")
    again = await RunState.from_string(ANN_BY_HAND, state.to_string())
    assert again.to_json() == state.to_json()
    context = there(again.context).context
    assert (context, again.max_turns, again.is_new) == ({"a": 1}, 3, True)
    assert again.whole_input == [
        {"role": "user", "content": "q"},
        {"role": "user", "content": "and then?"},
    ]
    assert again.get_interruptions() == []


@pytest.mark.parametrize(
    ("context", "via", "lost"),
    [
        (None, "none", False),
        ({"a": 1}, "mapping", False),
        (Desk(1), "asdict", True),
        (Shelf(books=1), "model_dump", True),
    ],
)
async def test_a_context_says_how_it_was_written(
    context: Any, via: str, lost: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    data = new(context).to_json()
    meta = data["context"]["context_meta"]
    assert (meta["serialized_via"], meta["requires_deserializer"]) == (via, lost)
    caplog.clear()
    await RunState.from_json(ANN_BY_HAND, data)
    assert ("context_deserializer" in caplog.text) is lost
    if lost:
        with pytest.raises(UserError, match="context_serializer"):
            new(context).to_json(strict_context=True)
        with pytest.raises(UserError, match="context_deserializer"):
            await RunState.from_json(ANN_BY_HAND, data, strict_context=True)


# ---- what is no state, and what a state cannot take


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ([{"key": "sk-secret"}], "must be an object"),
        ({"id": "s", "key": "sk-secret"}, "is missing schema version"),
        ({VERSION: {"key": "sk-secret"}}, "schema version has an invalid type"),
        ({VERSION: "sk-secret"}, "schema version is not supported"),
        ({VERSION: "1", "id": ["sk-secret"]}, "id: Input should be a valid string"),
    ],
)
async def test_data_that_are_no_state_are_refused_without_showing_them(
    data: Any, text: str
) -> None:
    with pytest.raises(UserError, match=text) as refused:
        await RunState.from_json(ANN_BY_HAND, data)
    assert "sk-secret" not in str(refused.value)


def decide(_ctx: Any, _results: Any) -> None:
    """Decide nothing."""


@pytest.mark.parametrize(
    ("behavior", "refused"),
    [
        ("run_llm_again", False),
        ({"stop_at_tool_names": ["look"]}, False),
        ("stop_on_first_tool", True),
        ({"stop_at_tool_names": ["pay"]}, True),
        (decide, True),
    ],
)
def test_input_is_refused_when_a_waiting_call_may_end_the_run(
    behavior: Any, *, refused: bool
) -> None:
    agent = Agent("Ann", tool_use_behavior=behavior)
    raw = {"type": "function_call", "call_id": "c1", "name": "pay", "arguments": "{}"}
    waiting = ToolApprovalItem(agent=agent, raw_item=raw, approval_id="t:1")
    state = RunState.of("t", [waiting])
    if refused:
        with pytest.raises(UserError, match="tool result may end the run"):
            state.add_input("More.")
        assert state.pending_input == []
        return
    state.add_input("More.")
    assert [each["content"] for each in state.pending_input] == ["More."]
