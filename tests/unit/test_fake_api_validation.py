"""The fake API refuses what the real one refuses."""

from typing import Any

import openai
import pytest

from holdfast.testing import FakeOpenAI
from holdfast.testing.fake_api.checks.requests import find_problem, strict_problem
from holdfast.testing.fake_api.requests import FakeRequest

USER = {"role": "user", "content": "x"}
CALL = {"type": "function_call", "call_id": "1", "name": "add", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "1", "output": "7"}
CHAT_CALL = {"id": "1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
CHAT_TURN = {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL]}
CHAT_RESULT = {"role": "tool", "tool_call_id": "1", "content": "7"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]}
TOOL = {"type": "function", "name": "add", "parameters": SCHEMA}
CHAT_TOOL = {"type": "function", "function": {"name": "add", "parameters": SCHEMA}}
PICTURE = {"type": "input_image", "image_url": "https://example.com/cat.png"}
CHAT_PICTURE = {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}
REASONING: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": []}


def problem_of(endpoint: Any, body: dict[str, Any]) -> str:
    problem = find_problem(FakeRequest(1, endpoint, "/", body))
    return "" if problem is None else problem.message


@pytest.mark.parametrize(
    "items",
    [
        [USER],
        [USER, CALL, RESULT],
        [USER, CALL, {**CALL, "call_id": "2"}, {**RESULT, "call_id": "2"}, RESULT],
        [USER, REASONING, CALL, RESULT],
        [USER, REASONING, {"role": "assistant", "content": "x"}],
        [{"role": "developer", "content": [{"type": "input_text", "text": "x"}]}],
        [{"type": "web_search_call", "id": "ws_1", "status": "completed"}],
        [{"role": "user", "content": [PICTURE, {"type": "input_image", "file_id": "file_1"}]}],
        [USER, CALL, {**RESULT, "output": [{"type": "input_text", "text": "x"}, PICTURE]}],
    ],
)
def test_good_response_items_pass(items: list[Any]) -> None:
    assert problem_of("responses", {"model": "m", "input": items}) == ""


BAD_ITEMS: list[tuple[list[Any], str]] = [
    ([USER, RESULT], "No tool call found for function call output with call_id 1"),
    ([RESULT, CALL], "No tool call found"),
    ([USER, CALL], "No tool output found for function call 1"),
    ([CALL, CALL, RESULT], "Duplicate function call"),
    ([CALL, RESULT, RESULT], "Duplicate function call output"),
    ([{"role": "robot", "content": "x"}], "Invalid value: 'robot'"),
    ([{"role": "tool", "content": "x"}], "Invalid value: 'tool'"),
    ([{"role": "user"}], "Missing required parameter: 'input[0].content'"),
    ([{"role": "user", "content": [{"type": "text"}]}], "Invalid value: 'text'"),
    ([{"type": "chat.call"}], "Invalid value: 'chat.call'"),
    ([{**CALL, "arguments": {}}, RESULT], "expected a string, but got dict"),
    ([{"type": "function_call", "call_id": "1"}, RESULT], "Missing required parameter"),
    ([CALL, {"type": "function_call_output", "call_id": "1"}], "input[1].output"),
    (
        [USER, CALL, {**RESULT, "output": [{"type": "output_text", "text": "x"}]}],
        "value: 'output_text'",
    ),
    ([{"role": "user", "content": [{"type": "input_text"}]}], "input[0].content[0].text"),
    ([{"role": "user", "content": [{"type": "input_image"}]}], "content[0].image_url'"),
    ([{"role": "user", "content": [{**PICTURE, "image_url": "x"}]}], "Expected a valid URL"),
    ([USER, CALL, {**RESULT, "output": [{**PICTURE, "detail": "x"}]}], "Invalid value: 'x'"),
    ([USER, REASONING], "without its required following item"),
    ([USER, REASONING, USER], "without its required following item"),
]


@pytest.mark.parametrize(("items", "reason"), BAD_ITEMS)
def test_bad_response_items_are_refused(items: list[Any], reason: str) -> None:
    assert reason in problem_of("responses", {"model": "m", "input": items})


@pytest.mark.parametrize(
    "messages",
    [
        [USER],
        [USER, CHAT_TURN, CHAT_RESULT],
        [USER, CHAT_TURN, CHAT_RESULT, USER],
        [{"role": "system", "content": "x"}, USER, {"role": "assistant", "content": "x"}],
        [{"role": "user", "content": [{"type": "text", "text": "x"}, CHAT_PICTURE]}],
    ],
)
def test_good_chat_messages_pass(messages: list[Any]) -> None:
    assert problem_of("chat", {"model": "m", "messages": messages}) == ""


BAD_MESSAGES: list[tuple[Any, str]] = [
    (None, "at least one message"),
    ([], "at least one message"),
    ([USER, CHAT_RESULT], "must be a response to a preceding message"),
    ([CHAT_TURN], "did not have response messages: 1"),
    ([CHAT_TURN, USER, CHAT_RESULT], "did not have response messages: 1"),
    ([CHAT_TURN, CHAT_RESULT, CHAT_RESULT], "must be a response to a preceding"),
    ([CHAT_TURN, CHAT_RESULT, CHAT_TURN, CHAT_RESULT], "Duplicate value"),
    ([{"role": "assistant", "tool_calls": [CHAT_CALL, CHAT_CALL]}], "Duplicate value"),
    ([{"role": "assistant", "content": "x", "tool_calls": []}], "Invalid 'tool_calls'"),
    ([{"role": "robot", "content": "x"}], "Invalid value: 'robot'"),
    ([{"role": "user", "content": None}], "Invalid value for 'content'"),
    (
        [CHAT_TURN, {**CHAT_RESULT, "content": [{"type": "image_url"}]}],
        "Invalid content of a tool message",
    ),
    ([{"role": "assistant", "tool_calls": [{"id": "1"}]}], ".function'"),
    ([{"role": "user", "content": [PICTURE]}], "Invalid value: 'input_image'"),
    ([{"role": "system", "content": [CHAT_PICTURE]}], "Invalid value: 'image_url'"),
    ([{"role": "assistant", "content": [CHAT_PICTURE]}], "Invalid value: 'image_url'"),
    ([{"role": "user", "content": [{"type": "text"}]}], "content[0].text'"),
    ([{"role": "user", "content": [{"type": "image_url"}]}], "image_url.url'"),
]


@pytest.mark.parametrize(("messages", "reason"), BAD_MESSAGES)
def test_bad_chat_messages_are_refused(messages: Any, reason: str) -> None:
    assert reason in problem_of("chat", {"model": "m", "messages": messages})


@pytest.mark.parametrize(
    ("endpoint", "more", "reason"),
    [
        ("responses", {"model": ""}, "Missing required parameter: 'model'"),
        ("chat", {"model": None}, "Missing required parameter: 'model'"),
        ("responses", {"tool_choice": "required"}, "only allowed when 'tools' are specified"),
        ("chat", {"tool_choice": "none"}, "only allowed when 'tools' are specified"),
        ("chat", {"parallel_tool_calls": True}, "only allowed when 'tools' are specified"),
        ("responses", {"tools": [{**TOOL, "name": "a b"}]}, "Invalid 'tools[0].name'"),
        ("responses", {"tools": [{**TOOL, "name": "x" * 65}]}, "Invalid 'tools[0].name'"),
        ("responses", {"tools": [{**TOOL, "parameters": {}}]}, "Invalid schema for function"),
        ("responses", {"tools": [{**TOOL, "strict": True}]}, "'additionalProperties' is required"),
        ("chat", {"tools": [TOOL]}, "Invalid 'tools[0].function.name'"),
        ("responses", {"tools": [CHAT_TOOL]}, "Invalid 'tools[0].name'"),
        (
            "responses",
            {"tools": [TOOL], "tool_choice": {"type": "function", "name": "sub"}},
            "Tool choice 'sub' not found",
        ),
        ("chat", {"tools": [CHAT_TOOL], "tool_choice": "add"}, "Invalid value: 'add'"),
        ("responses", {"messages": []}, "Unknown parameter: 'messages'"),
        ("responses", {"presence_penalty": 1}, "Unknown parameter"),
        ("chat", {"instructions": "x"}, "Unknown parameter"),
        (
            "responses",
            {"text": {"format": {"type": "json_schema", "name": "a b", "schema": {}}}},
            "Invalid 'text.format.name'",
        ),
        (
            "chat",
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "ab", "schema": SCHEMA, "strict": True},
                }
            },
            "Invalid schema for response_format 'ab'",
        ),
    ],
)
def test_bad_parameters_are_refused(endpoint: str, more: dict[str, Any], reason: str) -> None:
    content: dict[str, Any] = {"input": "x"} if endpoint == "responses" else {"messages": [USER]}
    assert reason in problem_of(endpoint, {"model": "m", **content, **more})


def test_strict_rules_reach_inner_schemas() -> None:
    inner: dict[str, Any] = {"type": "object", "properties": {"b": {"type": "string"}}}
    strict = {"additionalProperties": False, "required": ["a"]}
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": inner}}, **strict}
    assert "('properties', 'a', 'items')" in strict_problem(schema)
    inner |= {"additionalProperties": False, "required": []}
    assert "Missing 'b'" in strict_problem(schema)
    inner["required"] = ["b"]
    assert strict_problem(schema) == ""


async def test_the_client_gets_the_problem_and_the_test_fails() -> None:
    items: Any = [USER, RESULT]
    async with FakeOpenAI(strict=False) as api, api.client() as client:
        with pytest.raises(openai.BadRequestError, match="No tool call found") as caught:
            await client.responses.create(model="m", input=items)
        assert caught.value.param == "input"
    with pytest.raises(AssertionError, match="the real API would refuse it: No tool call found"):
        api.assert_done()
