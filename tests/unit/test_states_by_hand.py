"""States of runs that have not begun, their JSON form, and decisions on a run's context."""

import logging
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import Agent, ModelBehaviorError, RunContextWrapper, RunState, UserError
from holdfast.agents.runs.state_form import VERSION
from holdfast.agents_sdk import ToolApprovalItem
from tests.support.there import there

ANN = Agent("Ann")


def asked(call_id: str, name: str = "pay", **more: Any) -> ToolApprovalItem:
    raw = {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}", **more}
    return ToolApprovalItem(agent=ANN, raw_item=raw)


def on_server(call_id: str, server: str) -> ToolApprovalItem:
    raw = {"type": "mcp_approval_request", "id": call_id, "name": "pay", "server_label": server}
    return ToolApprovalItem(agent=ANN, raw_item=raw)


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
    again = await RunState.from_json(ANN, data, context_deserializer=lambda each: Desk(each["n"]))
    assert there(again.context).context == Desk(5)
    other = await RunState.from_json(ANN, state.to_json(), context_override=Desk(7))
    assert there(other.context).context == Desk(7)


# ---- states of runs that have not begun


def new(context: Any = None, given: Any = "q", **more: Any) -> RunState[Any, Any]:
    return RunState(RunContextWrapper(context), given, ANN, **more)


async def test_a_state_survives_its_text() -> None:
    state = new({"a": 1}, [{"role": "user", "content": "q"}], max_turns=3, conversation_id="c")
    state.add_input("and then?")
    again = await RunState.from_string(ANN, state.to_string())
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
    await RunState.from_json(ANN, data)
    assert ("context_deserializer" in caplog.text) is lost
    if lost:
        with pytest.raises(UserError, match="context_serializer"):
            new(context).to_json(strict_context=True)
        with pytest.raises(UserError, match="context_deserializer"):
            await RunState.from_json(ANN, data, strict_context=True)


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
        await RunState.from_json(ANN, data)
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
