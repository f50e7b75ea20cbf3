"""The fake API, as the real client sees it."""

import asyncio
import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import openai
import pytest

from holdfast.testing import FakeOpenAI, hang
from holdfast.testing.fake_api.checks.requests import find_problem, strict_problem
from holdfast.testing.fake_api.requests import FakeRequest
from tests.support.there import there


def say(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


TOOL: Any = {
    "type": "function",
    "name": "add",
    "parameters": {"type": "object", "properties": {}},
    "strict": False,
}


async def test_call_ids_count_up_over_both_endpoints(api: FakeOpenAI) -> None:
    api.calls([("add", {"a": 1}), ("add", {"a": 2})], text="Working")
    api.call("add", '{"a": ')
    async with api.client() as client:
        first = await client.responses.create(model="m", input="x", tools=[TOOL])
        second = await client.chat.completions.create(model="m", messages=say("x"))
    calls = [item for item in first.output if item.type == "function_call"]
    assert first.output_text == "Working"
    assert [(each.call_id, each.arguments) for each in calls] == [
        ("call_1", '{"a": 1}'),
        ("call_2", '{"a": 2}'),
    ]
    chat = there(second.choices[0].message.tool_calls)
    assert chat[0].id == "call_3"
    assert chat[0].type == "function"
    assert chat[0].function.arguments == '{"a": '


async def test_held_request_whose_client_goes_away_uses_no_reply(api: FakeOpenAI) -> None:
    api.add(hang(), "for the second attempt")
    async with api.client() as client:
        asked = asyncio.create_task(client.responses.create(model="m", input="x"))
        await api.until_held()
        asked.cancel()
        await api.until_held(0)
        answer = await client.responses.create(model="m", input="x")
    assert answer.output_text == "for the second attempt"


async def test_exhausted_script_is_told_recorded_and_fails_the_test() -> None:
    async def run() -> None:
        async with FakeOpenAI() as api, api.client() as client:
            with pytest.raises(openai.InternalServerError, match="exhausted"):
                await client.responses.create(model="m", input="x")
            assert len(api.requests) == 1

    with pytest.raises(AssertionError, match="request 1 to /v1/responses: the script was exha"):
        await run()


def test_unused_replies_fail_the_test() -> None:
    def run() -> None:
        with FakeOpenAI() as api:
            api.reply("never asked for")

    with pytest.raises(AssertionError, match="1 replies of the script were not used"):
        run()


async def test_rules_go_before_the_script(api: FakeOpenAI) -> None:
    api.reply("scripted")
    api.when(lambda request: "sum" in request.last_user, "three", times=1)
    async with api.client() as client:
        inputs = ("hello", "a sum")
        texts = [
            (await client.responses.create(model="m", input=each)).output_text
            for each in reversed(inputs)
        ]
    assert texts == ["three", "scripted"]


async def test_both_endpoints_are_seen_in_one_form(api: FakeOpenAI) -> None:
    api.add("a", "b")
    call_part: Any = {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    chat: Any = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "go"}]},
        {"role": "assistant", "content": None, "tool_calls": [call_part]},
        {"role": "tool", "tool_call_id": "c", "content": "7"},
    ]
    items: Any = [
        {"role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "7"},
    ]
    parameters = TOOL["parameters"]
    tool: Any = {"type": "function", "function": {"name": "add", "parameters": parameters}}
    async with api.client() as client:
        await client.chat.completions.create(model="m", messages=chat, tools=[tool])
        await client.responses.create(
            model="m", input=items, instructions="Be brief.", tools=[TOOL]
        )
    first, second = api.requests
    assert (first.messages, first.tools) == (second.messages, second.tools)
    assert first.instructions == second.instructions == "Be brief."
    assert first.headers["authorization"] == second.headers["authorization"] == "[redacted]"
    assert "fake-key" not in repr(api.requests)


def http(url: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"authorization": "Bearer k"})
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read())


def test_serves_from_a_process_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    late = '{"kind": "slow", "seconds": 0, "then": "first"}'
    script.write_text(f'[{late}, {{"kind": "answer", "calls": [{{"name": "add"}}]}}]')
    command = [sys.executable, "-m", "holdfast.testing.fake_api", "--script", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            started = json.loads(there(process.stdout).readline())
            root = started["base_url"].removesuffix("/v1")
            assert root.endswith(f":{started['port']}")
            assert started["pid"] == process.pid
            body = {"model": "m", "input": "hello"}
            texts = [http(f"{root}/v1/responses", body)["output"][0] for _ in range(2)]
            assert (texts[0]["content"][0]["text"], texts[1]["call_id"]) == ("first", "call_1")
            assert http(f"{root}/_fake/script", ["third"]) == {"left": 1}
            seen = http(f"{root}/_fake/calls")
            assert [each["body"] for each in seen["requests"]] == [body, body]
            assert seen["requests"][0]["headers"]["authorization"] == "[redacted]"
            assert (seen["left"], seen["held"], seen["problems"]) == (1, 0, [])
            http(f"{root}/_fake/release", {})
            http(f"{root}/_fake/reset", {})
            assert http(f"{root}/_fake/calls")["left"] == 0
            with pytest.raises(urllib.error.HTTPError, match="400"):
                http(f"{root}/_fake/script", [{"kind": "nonsense"}])
        finally:
            process.terminate()


# ---- the fake API refuses what the real one refuses

USER = {"role": "user", "content": "x"}
CALL = {"type": "function_call", "call_id": "1", "name": "add", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "1", "output": "7"}
CHAT_CALL = {"id": "1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
CHAT_TURN = {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL]}
CHAT_RESULT = {"role": "tool", "tool_call_id": "1", "content": "7"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]}
TOLD = {"type": "function", "name": "add", "parameters": SCHEMA}
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
        ("responses", {"tools": [{**TOLD, "name": "a b"}]}, "Invalid 'tools[0].name'"),
        ("responses", {"tools": [{**TOLD, "name": "x" * 65}]}, "Invalid 'tools[0].name'"),
        ("responses", {"tools": [{**TOLD, "parameters": {}}]}, "Invalid schema for function"),
        ("responses", {"tools": [{**TOLD, "strict": True}]}, "'additionalProperties' is required"),
        ("chat", {"tools": [TOLD]}, "Invalid 'tools[0].function.name'"),
        ("responses", {"tools": [CHAT_TOOL]}, "Invalid 'tools[0].name'"),
        (
            "responses",
            {"tools": [TOLD], "tool_choice": {"type": "function", "name": "sub"}},
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


# ---- batches of the fake API, asked by the real client


def lines(*texts: str) -> bytes:
    """Write the file of a batch."""
    head = {"method": "POST", "url": "/v1/responses"}
    each = [
        {"custom_id": text, **head, "body": {"model": "gpt-5-mini", "input": text}}
        for text in texts
    ]
    return b"\n".join(json.dumps(line).encode() for line in each)


async def begun(client: openai.AsyncOpenAI, file: str) -> Any:
    return await client.batches.create(
        input_file_id=file, endpoint="/v1/responses", completion_window="24h"
    )


async def test_the_lines_of_a_batch_are_answered_by_the_script() -> None:
    async with FakeOpenAI() as api, api.client() as client:
        api.reply("One.", match="first")
        api.fail(429, message="slow down", match="second")
        file = await client.files.create(
            file=("b.jsonl", lines("first", "second")), purpose="batch"
        )
        made = await begun(client, file.id)
        assert made.status == "in_progress"
        done = await client.batches.retrieve(made.id)
        assert done.status == "completed"
        good = json.loads((await client.files.content(there(done.output_file_id))).content)
        bad = json.loads((await client.files.content(there(done.error_file_id))).content)
        assert (good["custom_id"], bad["custom_id"]) == ("first", "second")
        assert "One." in str(good["response"]["body"]["output"])
        assert bad["response"]["status_code"] == 429
        assert {each.path for each in api.requests} == {"/v1/batches"}
        assert [each.id async for each in client.batches.list()] == [made.id]
        await client.files.delete(file.id)
        assert file.id not in [each.id async for each in client.files.list()]


async def test_what_is_not_there_is_said_and_a_batch_can_be_cancelled() -> None:
    async with FakeOpenAI() as api, api.client() as client:
        file = await client.files.create(file=("b.jsonl", lines("x")), purpose="batch")
        made = await begun(client, file.id)
        assert (await client.batches.cancel(made.id)).status == "cancelled"
        assert (await client.batches.retrieve(made.id)).status == "cancelled"
        for missing in (
            client.files.delete("none"),
            client.files.content("none"),
            client.batches.retrieve("none"),
            client.batches.cancel("none"),
            begun(client, "none"),
        ):
            with pytest.raises(openai.NotFoundError, match="does not exist"):
                await missing
