"""Bodies of requests: encoded once per message, and sent as the client's own methods would."""

import json
from typing import Any

import httpx2
import pytest
from openai import AsyncAzureOpenAI, AsyncOpenAI

from holdfast.errors import InvalidArgumentError
from holdfast.models import from_response_items
from holdfast.models.base import Delta, ModelRequest, ToolSpec
from holdfast.models.openai.chat import ChatCompletionsModel
from holdfast.models.openai.http.bodies import EncodedMessages, RequestBody
from holdfast.models.openai.model import OpenAIModel
from holdfast.models.openai.responses import ResponsesModel
from holdfast.testing import FakeOpenAI
from holdfast.values.base import Json
from holdfast.values.messages import Message, ToolCall, assistant, user
from holdfast.values.settings import ModelSettings

CALL = ToolCall(id="c1", name="look", arguments='{"what": "Grüße \\ud83d"}')
TALK = (
    user("Grüße, 世界 \U0001f30d"),
    assistant("", calls=(CALL,)),
    Message(role="tool", call_id="c1", content='found "it"'),
)


def _quiet(delta: Delta) -> None:
    del delta


def written(message: Message) -> list[Json]:
    return [{"role": message.role, "content": message.text}]


async def test_a_message_is_encoded_once_per_form() -> None:
    seen: list[Message] = []

    def write(message: Message) -> list[Json]:
        seen.append(message)
        return written(message)

    kept, more = EncodedMessages(), user("more")
    first = await kept.pieces(TALK, write)
    assert ((await kept.pieces((*TALK, more), write))[:3], seen) == (first, [*TALK, more])
    assert await kept.pieces(TALK, written) == first
    equal = user(TALK[0].text)
    await kept.pieces((equal,), write)
    assert seen[-1] is equal


REFERENCE = f"holdfast:image/png;size=8;sha256={'0' * 64};mac={'1' * 32}"


@pytest.mark.parametrize("kind", [ResponsesModel, ChatCompletionsModel])
@pytest.mark.parametrize(
    "content",
    [
        [{"type": "input_image", "image_url": REFERENCE}],
        [{"type": "input_file", "file_data": REFERENCE, "filename": "a.pdf"}],
        [{"type": "input_image", "image_url": REFERENCE}, {"type": "input_audio"}],
    ],
)
async def test_a_reference_is_never_sent(
    kind: type[OpenAIModel], content: list[dict[str, Json]]
) -> None:
    messages = from_response_items([{"role": "user", "content": content}])
    with FakeOpenAI() as api:
        model = kind("gpt-5-mini", base_url=api.base_url, api_key="sk-of-the-tests-1")
        with pytest.raises(InvalidArgumentError, match="still a reference to the archive"):
            await model.respond(ModelRequest(model="gpt-5-mini", messages=messages))
        assert api.requests == []


@pytest.mark.parametrize(
    ("fields", "pieces"),
    [
        ({"model": "m"}, [b'{"a":1},{"b":2}', b"", b'{"c":3}']),
        ({}, []),
        ({"model": "m", "stream": True}, [b""]),
    ],
)
def test_a_body_is_the_same_as_bytes_and_as_data(
    fields: dict[str, Json], pieces: list[bytes]
) -> None:
    body = RequestBody(fields, "input", pieces)
    assert json.loads(body.encoded()) == body.data()
    replaced = body.joined({"input": "hi", "model": "n"})
    expected = {**fields, "input": "hi", "model": "n"}
    assert json.loads(replaced.encoded()) == replaced.data() == expected


@pytest.mark.parametrize("api", ["responses", "chat"])
@pytest.mark.parametrize("streams", [False, True])
async def test_what_is_sent_is_what_the_clients_own_method_sends(
    api: str, streams: bool, model: FakeOpenAI
) -> None:
    model.add("one", "two")
    async with AsyncOpenAI(base_url=model.base_url, api_key="sk-1", max_retries=0) as client:
        made: Any = (ResponsesModel if api == "responses" else ChatCompletionsModel)(
            "gpt-5-mini", client=client
        )
        settings = ModelSettings(
            temperature=0.5,
            extra_headers={"x-mine": "1"},
            extra_query={"v": "2"},
            extra_body={"service_tier": "flex"},
        )
        tool = ToolSpec(name="look", description="Look.", parameters={"type": "object"})
        request = ModelRequest(
            model="m", instructions="Be short.", messages=TALK, tools=(tool,), settings=settings
        )
        await (made.stream(request, _quiet) if streams else made.respond(request))
        body = {**model.requests[0].body}
        service: Any = client.responses if api == "responses" else client.chat.completions
        plain = await service.create(
            **{name: body[name] for name in body if name != "service_tier"},
            extra_body={"service_tier": "flex"},
            extra_headers={"x-mine": "1"},
            extra_query={"v": "2"},
        )
        if streams:
            async for _ in plain:
                continue
    ours, theirs = model.requests
    assert ours.body == theirs.body
    assert (ours.path, ours.query) == (theirs.path, theirs.query)
    varies = {"x-stainless-read-timeout", "x-stainless-async", "host", "content-length"}
    varies |= {"x-stainless-timeout"}
    assert {k: v for k, v in ours.headers.items() if k not in varies} == {
        k: v for k, v in theirs.headers.items() if k not in varies
    }


async def test_azure_gets_the_deployment_of_the_model_in_the_address() -> None:
    seen: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        said = {"role": "assistant", "content": "hi"}
        return httpx2.Response(200, json={"choices": [{"message": said}]})

    sender = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    async with AsyncAzureOpenAI(
        azure_endpoint="https://a.example",
        api_key="key",
        api_version="2025-01-01",
        max_retries=0,
        http_client=sender,
    ) as client:
        chat = ChatCompletionsModel("gpt-5-mini", client=client)
        got = await chat.respond(ModelRequest(model="m", messages=(user("hi"),)))
    assert got.text == "hi"
    address = "https://a.example/openai/deployments/gpt-5-mini/chat/completions"
    assert str(seen[0].url) == f"{address}?api-version=2025-01-01"
    assert json.loads(seen[0].content)["messages"] == [{"role": "user", "content": "hi"}]
