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
    chat = second.choices[0].message.tool_calls
    assert chat is not None
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
            assert process.stdout is not None
            started = json.loads(process.stdout.readline())
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
