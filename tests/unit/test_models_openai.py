"""Both OpenAI models against the fake API: what they send and how they read the answer."""

import asyncio
from typing import Any

import pytest

from holdfast.errors import ModelRequestError, ModelUnavailableError
from holdfast.models import (
    ChatCompletionsModel,
    ModelAnswer,
    ModelRequest,
    OutputSpec,
    ResponsesModel,
    ToolSpec,
)
from holdfast.testing import FakeOpenAI
from holdfast.values.messages import ImagePart, Message, TextPart, ToolCall, Usage, assistant, user
from holdfast.values.settings import ModelSettings

KINDS: tuple[type[ResponsesModel | ChatCompletionsModel], ...] = (
    ResponsesModel,
    ChatCompletionsModel,
)
ADD = ToolSpec(
    name="add", description="Add.", parameters={"type": "object", "properties": {}}, strict=False
)
IMAGE = ImagePart(kind="image", url="https://example.com/cat.png")


async def ask(kind: Any, *messages: Message, **more: Any) -> ModelAnswer:
    model: ResponsesModel | ChatCompletionsModel = kind("some-model")
    try:
        return await model.respond(ModelRequest(model="some-model", messages=messages, **more))
    finally:
        await model.close()


def body_of(api: FakeOpenAI) -> dict[str, Any]:
    return api.requests[-1].body


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("choice", ["auto", "none", "add"])
async def test_tool_choice(api: FakeOpenAI, kind: Any, choice: str) -> None:
    api.reply("Hi")
    await ask(kind, user("x"), tools=(ADD,), tool_choice=choice)
    named: dict[str, Any] = (
        {"type": "function", "name": "add"}
        if kind is ResponsesModel
        else {"type": "function", "function": {"name": "add"}}
    )
    assert body_of(api).get("tool_choice") == {"auto": None, "none": "none", "add": named}[choice]


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
async def test_extra_fields_of_the_body_join_what_stands_there(
    api: FakeOpenAI, kind: Any, *, is_streamed: bool
) -> None:
    api.reply('{"a": 1}')
    place = "text" if kind is ResponsesModel else "response_format"
    extra: dict[str, Any] = {place: {"verbosity": "low"}, "service_tier": "flex"}
    request = ModelRequest(
        model="some-model",
        messages=(user("x"),),
        settings=ModelSettings(extra_body=extra, metadata={"k": "v"}),
        output=OutputSpec(name="Sum", json_schema={"type": "object"}, strict=False),
    )
    model: ResponsesModel | ChatCompletionsModel = kind("some-model")
    await (model.stream(request, lambda _: None) if is_streamed else model.respond(request))
    await model.close()
    body = body_of(api)
    assert (body["service_tier"], body["metadata"]) == ("flex", {"k": "v"})
    assert body[place]["verbosity"] == "low"
    format_ = body["text"]["format"] if kind is ResponsesModel else body["response_format"]
    assert format_["type"] == "json_schema"


async def test_images_in_tool_results_follow_all_results_in_chat(api: FakeOpenAI) -> None:
    api.reply("Two")
    calls = (ToolCall(id="1", name="add"), ToolCall(id="2", name="add"))
    await ask(
        ChatCompletionsModel,
        user("x"),
        assistant("", calls=calls),
        Message(role="tool", call_id="1", content=(IMAGE,)),
        Message(role="tool", call_id="2", content=(TextPart(kind="text", text="two"), IMAGE)),
        user("So?"),
    )
    sent = api.requests[0].messages
    assert [message.role for message in sent] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "user",
        "user",
    ]
    assert sent[2].text == "The result is the image in the next user message."
    assert sent[3].text == "two"
    assert sent[4].content == (IMAGE, IMAGE)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("finish", ["length", "content_filter"])
async def test_cut_off_answer(api: FakeOpenAI, kind: Any, finish: Any) -> None:
    api.reply("Once upon", finish=finish)
    answer = await ask(kind, user("x"))
    assert (answer.text, answer.finish) == ("Once upon", finish)
    assert answer.is_cut_off
    assert answer.is_incomplete is (kind is ResponsesModel)


async def test_items_of_one_api_are_not_sent_to_the_other(api: FakeOpenAI) -> None:
    api.add("a", "b")
    call = ToolCall(id="1", name="add")
    items: tuple[dict[str, Any], ...] = (
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "chat.call", "call_id": "1", "extra_content": {"signature": "s"}},
        {"type": "chat.message", "reasoning_content": "hm"},
    )
    message = Message(role="assistant", calls=(call,), items=items)
    history = (user("x"), message, Message(role="tool", call_id="1", content="7"))
    await ask(ResponsesModel, *history)
    kinds = [item.get("type") for item in body_of(api)["input"]]
    assert kinds == [None, "reasoning", "function_call", "function_call_output"]
    await ask(ChatCompletionsModel, *history)
    sent = body_of(api)["messages"][1]
    assert sent["reasoning_content"] == "hm"
    assert sent["tool_calls"][0]["extra_content"] == {"signature": "s"}


def chat_body(message: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": message, **more}]}


async def test_chat_servers_may_be_sloppy(api: FakeOpenAI) -> None:
    function = {"name": "add", "arguments": {"a": 1}}
    call = {"id": "", "function": function, "extra_content": {"signature": "s"}}
    said = {"content": [{"type": "text", "text": "Hm"}], "tool_calls": [call]}
    api.raw(chat_body({**said, "reasoning_content": "think"}, finish_reason="stop"))
    answer = await ask(ChatCompletionsModel, user("x"))
    (made,) = answer.message.calls
    assert made.id.startswith("call_")
    assert (made.arguments, answer.text, answer.finish) == ('{"a": 1}', "Hm", "tool_calls")
    assert (answer.model, answer.usage) == ("some-model", Usage(requests=1))
    assert answer.message.items == (
        {"type": "chat.call", "call_id": made.id, "extra_content": {"signature": "s"}},
        {"type": "chat.message", "reasoning_content": "think"},
    )


SHAPES: list[tuple[Any, dict[str, Any], str]] = [
    (ResponsesModel, {}, "output: Field required"),
    (ResponsesModel, {"output": "text"}, "output"),
    (ResponsesModel, {"output": [{"type": "function_call"}]}, "Item 0"),
    (ResponsesModel, {"output": [], "status": "queued"}, "status is 'queued'"),
    (ChatCompletionsModel, {}, "choices: Field required"),
    (ChatCompletionsModel, {"choices": []}, "no choice"),
    (ChatCompletionsModel, {"choices": [{}], "model": 5}, "model: Input should"),
]


@pytest.mark.parametrize(("kind", "body", "reason"), SHAPES)
async def test_unexpected_shape_is_retried(
    api: FakeOpenAI, kind: Any, body: dict[str, Any], reason: str
) -> None:
    api.raw(body)
    with pytest.raises(ModelUnavailableError, match="cannot be read") as caught:
        await ask(kind, user("x"))
    assert reason in str(caught.value)
    assert "req_1" in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
async def test_given_client_is_used_without_its_retries(kind: Any) -> None:
    async with FakeOpenAI() as api, api.client(max_retries=3, api_key="own-key") as client:
        api.fail(500)
        model = kind("some-model", client=client)
        with pytest.raises(ModelUnavailableError):
            await model.respond(ModelRequest(model="some-model", messages=(user("x"),)))
        await model.close()
        assert len(api.requests) == 1


async def test_address_and_key_are_read_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ResponsesModel("some-model")
    request = ModelRequest(model="some-model", messages=(user("x"),))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ModelRequestError, match="no API key"):
        await model.respond(request)
    async with FakeOpenAI() as first, FakeOpenAI() as second:
        first.reply("first")
        second.reply("second")
        monkeypatch.setenv("OPENAI_API_KEY", "key\n")
        monkeypatch.setenv("OPENAI_BASE_URL", first.base_url)
        assert (await model.respond(request)).text == "first"
        monkeypatch.setenv("OPENAI_BASE_URL", second.base_url)
        assert (await model.respond(request)).text == "second"
    await model.close()


async def test_many_requests_at_once_share_out_among_clients(
    api: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.models.openai.http.connection._POOL_REQUESTS", 2)
    api.add(*["Hi"] * 13)
    model = ResponsesModel("some-model")
    asked = ModelRequest(model="some-model", messages=(user("x"),))

    async def pools(at_once: int) -> list[int]:
        await asyncio.gather(*(model.respond(asked) for _ in range(at_once)))
        ((found,),) = ([*each.values()] for each in model._connection._made.values())
        return [each.requests for each in found]

    assert await pools(1) == await pools(1) == [0]
    assert await pools(5) == await pools(6) == [0, 0, 0]
    await model.close()
