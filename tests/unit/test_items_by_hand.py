"""Items of a run that code of the user's makes, of dicts and of objects of the API."""

import gc
import weakref
from typing import Any

import pytest
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage

from holdfast import Agent, RunResult, Usage, UserError
from holdfast.agents.guardrails import GuardrailFunctionOutput, InputGuardrail, InputGuardrailResult
from holdfast.agents.handoffs.filters import HandoffInputData, next_input, remove_all_tools
from holdfast.agents.items.run_items import (
    HandoffCallItem,
    HandoffOutputItem,
    MessageOutputItem,
    RunItem,
    ToolApprovalItem,
    ToolCallItem,
    ToolCallOutputItem,
)
from holdfast.agents_sdk import ItemHelpers, ModelResponse

ANN = Agent("Ann")
CALL: dict[str, Any] = {
    "type": "function_call",
    "call_id": "c1",
    "name": "pay",
    "arguments": '{"to": "Kim"}',
}
SAID: dict[str, Any] = {
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


@pytest.mark.parametrize("raw", forms(CALL, ResponseFunctionToolCall))
def test_a_call_is_read_whatever_its_form(raw: Any) -> None:
    item = ToolCallItem(agent=ANN, raw_item=raw, title="Pay")
    assert (item.type, item.tool_name, item.call_id) == ("tool_call_item", "pay", "c1")
    assert item.raw_item is raw
    assert item.to_input_item() == CALL
    assert HandoffCallItem(ANN, raw).call_id == "c1"
    asked = ToolApprovalItem(agent=ANN, raw_item=raw)
    assert (asked.name, asked.tool_name, asked.qualified_name) == ("pay", "pay", "pay")
    assert (asked.arguments, asked.call_id) == (CALL["arguments"], "c1")
    named = ToolApprovalItem(agent=ANN, raw_item=raw, tool_name="give", tool_namespace="bank")
    assert (named.name, named.qualified_name) == ("give", "bank.give")


@pytest.mark.parametrize("raw", forms(SAID, ResponseOutputMessage))
def test_a_message_is_read_whatever_its_form(raw: Any) -> None:
    item = MessageOutputItem(agent=ANN, raw_item=raw)
    assert item.to_input_item() == SAID
    assert ItemHelpers.text_message_outputs([item]) == ItemHelpers.extract_text(raw) == "Hello"
    assert ItemHelpers.extract_last_content(raw) == ItemHelpers.extract_last_text(raw) == "lo"
    assert ItemHelpers.extract_refusal(raw) == "no"
    assert ModelResponse([raw], Usage(), None).to_input_items() == [SAID]


def test_an_approval_is_no_input() -> None:
    asked = ToolApprovalItem(ANN, CALL)
    with pytest.raises(UserError, match="not input"):
        asked.to_input_item()
    assert asked != ToolApprovalItem(ANN, CALL)
    said = MessageOutputItem(ANN, SAID)
    data = HandoffInputData("q", (asked, said), (asked,))
    assert next_input(data) == ([{"role": "user", "content": "q"}], [SAID])
    assert remove_all_tools(data).pre_handoff_items == (said,)
    assert remove_all_tools(data).new_items == ()


def test_a_released_agent_lives_as_long_as_something_else_has_it() -> None:
    kept, gone = Agent("kept"), Agent("gone")
    item: Any = HandoffOutputItem(ANN, {}, source_agent=kept, target_agent=gone)
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
    message = ResponseOutputMessage.model_validate(SAID)
    listed: Any = [message]
    assert ItemHelpers.input_to_new_input_list(listed) == [SAID]


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
    said: list[RunItem] = [MessageOutputItem(ANN, SAID)]
    asked = ToolApprovalItem(agent=ANN, raw_item=CALL)
    checked = InputGuardrailResult(InputGuardrail(passes, "g"), FINE)
    result = RunResult(
        "q" * 9000,
        said * 300,
        [ModelResponse([SAID], Usage(), None)],
        "done\n \x1b[31m" + "x" * 9000,
        [checked],
        last_agent=ANN,
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
