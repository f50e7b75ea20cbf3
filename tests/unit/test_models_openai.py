"""Both OpenAI models against the fake API: what they send and how they read the answer."""

import asyncio
from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI

from holdfast.errors import InvalidArgumentError, ModelRequestError, ModelUnavailableError
from holdfast.models import (
    ChatCompletionsModel,
    ModelAnswer,
    ModelRequest,
    OutputSpec,
    ResponsesModel,
    ToolSpec,
)
from holdfast.models.base import Delta
from holdfast.models.draft import Draft, Frame, deltas_of, goes_on
from holdfast.models.openai.chat import read_answer
from holdfast.models.openai.chat_stream import CompletionStream
from holdfast.models.openai.http.connection import EventReader
from holdfast.testing import FakeOpenAI, raw
from holdfast.values.messages import ImagePart, Message, TextPart, ToolCall, Usage, assistant, user
from holdfast.values.settings import ModelSettings
from tests.support.rig import roles
from tests.support.there import there

KINDS: tuple[type[ResponsesModel | ChatCompletionsModel], ...] = (
    ResponsesModel,
    ChatCompletionsModel,
)
ADD = ToolSpec(
    name="add", description="Add.", parameters={"type": "object", "properties": {}}, strict=False
)
IMAGE = ImagePart(kind="image", url="https://example.com/cat.png")


async def asked(
    kind: Any, request: ModelRequest, *, streamed: bool = False
) -> tuple[ModelAnswer, list[Delta]]:
    """Return the answer of a model, and the pieces that it told."""
    model: ResponsesModel | ChatCompletionsModel = kind("some-model")
    told: list[Delta] = []
    try:
        made = model.stream(request, told.append) if streamed else model.respond(request)
        return await made, told
    finally:
        await model.close()


async def ask(kind: Any, *messages: Message, **more: Any) -> ModelAnswer:
    request = ModelRequest(model="some-model", messages=messages, **more)
    return (await asked(kind, request))[0]


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
    await asked(kind, request, streamed=is_streamed)
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
    assert roles(sent) == ["user", "assistant", "tool", "tool", "user", "user"]
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


# ---- streamed model calls against the fake API: the same answer as in one piece, and its pieces

REQUEST = ModelRequest(model="m", messages=(user("Hello"),), tools=(ADD,))
Answers = Callable[[FakeOpenAI], None]


def texts(api: FakeOpenAI) -> None:
    api.reply("Grüße, \u2028 a text of several pieces \x85 and separators", reasoning="let me see")


def calls(api: FakeOpenAI) -> None:
    longer = {"a": 1, "b": "a longer argument"}
    api.calls([("add", longer), ("add", "{}")], text="Adding", reasoning="two of them")


def nothing(api: FakeOpenAI) -> None:
    api.reply("")


def refusal(api: FakeOpenAI) -> None:
    api.refuse("I would rather not do that")


def cut_short(api: FakeOpenAI) -> None:
    api.reply("as far as I got", finish="length")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("script", [texts, calls, nothing, refusal, cut_short])
async def test_a_streamed_answer_is_the_answer_and_its_pieces_make_it_up(
    api: FakeOpenAI, kind: Any, script: Answers
) -> None:
    script(api)
    script(api)
    plain, _ = await asked(kind, REQUEST)
    answer, told = await asked(kind, REQUEST, streamed=True)
    ids = {"call_1": "call_3", "call_2": "call_4"}
    calls = tuple(c.model_copy(update={"id": ids[c.id]}) for c in plain.message.calls)
    assert (answer.message.calls, answer.message.content) == (calls, plain.message.content)
    assert answer.usage.output_tokens == plain.usage.output_tokens
    same = {f: getattr(answer, f) for f in ("message", "response_id", "usage")}
    assert answer == plain.model_copy(update=same)
    assert goes_on(told, deltas_of(answer))
    assert goes_on(deltas_of(answer), told)
    assert all(len(delta.text) <= 8 for delta in told)
    assert api.requests[1].is_stream


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_that_is_cut_off_or_lacks_its_end_is_to_be_repeated(
    api: FakeOpenAI, kind: Any
) -> None:
    api.paced("This will not arrive whole", cut_after=2)
    api.raw({"status": "queued", "output": [], "choices": []})
    for said in (r"in the middle|was cut", r"there was no|holds no choice"):
        with pytest.raises(ModelUnavailableError, match=said):
            await asked(kind, REQUEST, streamed=True)


CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}


@pytest.mark.parametrize(
    "message", [{"content": "all of it"}, {"content": None, "tool_calls": [CALL]}]
)
async def test_a_stream_that_is_done_without_a_finish_reason_is_the_answer_that_it_is_in_one_piece(
    api: FakeOpenAI, message: dict[str, Any]
) -> None:
    api.add(*[raw({"choices": [{"index": 0, "message": message, "finish_reason": None}]})] * 2)
    plain, _ = await asked(ChatCompletionsModel, REQUEST)
    streamed, _ = await asked(ChatCompletionsModel, REQUEST, streamed=True)
    assert streamed.message == plain.message
    assert streamed.message.content or streamed.message.calls


def test_a_whole_message_in_place_of_its_pieces_is_taken_once() -> None:
    said = {"content": "all of it", "tool_calls": [CALL]}
    end = {"index": 0, "delta": {}, "message": said, "finish_reason": "stop"}
    for before in ([], [{"index": 0, "delta": said}]):
        stream = CompletionStream(lambda _: None)
        for choice in [*before, end]:
            stream.take({"choices": [choice]})
        answer = read_answer(there(stream.body), model="m")
        assert (answer.text, len(answer.message.calls)) == ("all of it", 1)


def test_the_call_of_the_old_form_is_a_call_streamed_or_not() -> None:
    told: list[Delta] = []
    stream = CompletionStream(told.append)
    for piece in ({"name": "add", "arguments": ""}, {"arguments": '{"a"'}, {"arguments": ":1}"}):
        stream.take({"choices": [{"index": 0, "delta": {"function_call": piece}}]})
    stream.take({"choices": [{"index": 0, "delta": {}, "finish_reason": "function_call"}]})
    old = {"content": None, "function_call": {"name": "add", "arguments": '{"a":1}'}}
    body = {"choices": [{"index": 0, "message": old, "finish_reason": "function_call"}]}
    for each in (there(stream.body), body):
        answer = read_answer(each, model="m")
        assert [(c.name, c.arguments) for c in answer.message.calls] == [("add", '{"a":1}')]
        assert answer.finish == "tool_calls"


@pytest.mark.parametrize("kind", KINDS)
async def test_pieces_are_told_while_the_answer_is_made(api: FakeOpenAI, kind: Any) -> None:
    api.paced("one two", piece=3, hold_after=1)
    model = kind("some-model")
    told: list[Delta] = []
    asking = asyncio.create_task(model.stream(REQUEST, told.append))
    await api.until_held()
    async with asyncio.timeout(100):
        while not told:
            await asyncio.sleep(0.005)
    assert told == [Delta("text", "one")]
    api.release()
    answer = await asking
    await model.close()
    assert (answer.text, "".join(delta.text for delta in told)) == ("one two", "one two")


def test_events_are_read_whatever_the_pieces_of_bytes_are() -> None:
    body = 'event: a\ndata: {"x":"\u2028é"}\n\n: comment\n\ndata: 1\ndata: 2\n\ndata: [DONE]\n\n'
    data = body.encode()
    for ending, size in product((b"\n", b"\r\n", b"\r"), (1, 2, 7, 1000)):
        reader, sent = EventReader(), data.replace(b"\n", ending)
        parts = [sent[i : i + size] for i in range(0, len(sent), size)]
        assert [e for part in parts for e in reader.feed(part)] == ['{"x":"\u2028é"}', "1\n2"]
        assert reader.is_done


def test_a_frame_gives_what_comes_after_a_place() -> None:
    draft = Draft(attempt=1)
    told = [Delta("text", "hello"), Delta("call", "", 1, "c", "add"), Delta("arguments", "{}", 1)]
    for delta in told:
        draft.add(delta)
    assert list(draft.frame().after(0)) == told
    assert list(draft.frame(3).after(3)) == [Delta("text", "lo"), *told[1:]]
    assert (list(draft.frame(5).after(5)), draft.frame(8)) == (told[1:], Frame(1, 8, ()))
    assert list(Frame(1, 5, tuple(told[1:])).after(3)) == []


def piece(name: str | None = None, arguments: Any = None, **said: Any) -> dict[str, Any]:
    given = {"name": name, "arguments": arguments}
    return {**said, "function": {key: value for key, value in given.items() if value is not None}}


USAGES: list[Any] = [
    [],
    "much",
    {"prompt_tokens": 7, "prompt_tokens_details": []},
    {"prompt_tokens": 7.5, "completion_tokens": [3], "completion_tokens_details": "none"},
    {"prompt_tokens": 7, "completion_tokens": -1, "prompt_tokens_details": {"cached_tokens": {}}},
    {"input_tokens": 7, "output_tokens": 1e300, "output_tokens_details": []},
]


@pytest.mark.parametrize("used", USAGES)
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_is_taken_whatever_its_usage_looks_like(
    api: FakeOpenAI, kind: Any, streamed: bool, used: Any
) -> None:
    said = {"role": "assistant", "content": "paid for"}
    part: dict[str, Any] = {"type": "output_text", "text": "paid for", "annotations": []}
    output: list[dict[str, Any]] = [
        {"type": "message", "id": "m", **said, "content": [part], "status": "completed"}
    ]
    choice = {"index": 0, "message": said, "finish_reason": "stop"}
    api.raw({"status": "completed", "output": output, "choices": [choice], "usage": used})
    answer, _ = await asked(kind, REQUEST, streamed=streamed)
    assert answer.text == "paid for"
    assert answer.usage.input_tokens in {0, 7}
    assert answer.usage.output_tokens == 0


STREAMS: dict[str, tuple[list[dict[str, Any]], list[tuple[str, str]]]] = {
    "no index and no id": (
        [piece("a", '{"x":1}'), piece("b", '{"y":2}')],
        [("a", '{"x":1}'), ("b", '{"y":2}')],
    ),
    "index 0 for both": (
        [piece("a", "{}", index=0, id="1"), piece("b", "{}", index=0, id="2")],
        [("a", "{}"), ("b", "{}")],
    ),
    "index 0, no id, the first without arguments": (
        [piece("a", index=0), piece("b", "{}", index=0)],
        [("a", "{}"), ("b", "{}")],
    ),
    "one tool twice, no index and no id": (
        [piece("a", '{"x":1}'), piece("a", '{"x":2}')],
        [("a", '{"x":1}'), ("a", '{"x":2}')],
    ),
    "one tool twice, index 0, two ids, no arguments": (
        [piece("a", index=0, id="1"), piece("a", index=0, id="2")],
        [("a", "{}"), ("a", "{}")],
    ),
    "objects as arguments, index 0": (
        [piece("a", {"x": 1}, index=0), piece("a", {"x": 2}, index=0)],
        [("a", '{"x": 1}'), ("a", '{"x": 2}')],
    ),
    "the name comes later": (
        [piece(index=0, id="1"), piece("a", "", index=0), piece(None, "{}", index=0)],
        [("a", "{}")],
    ),
    "the name comes after the arguments": (
        [piece(None, '{"x"', index=0, id="1"), piece(None, ":1}", index=0), piece("a", index=0)],
        [("a", '{"x":1}')],
    ),
    "id and name in each piece": (
        [piece("a", part, index=0, id="1") for part in ("{", "}", "")],
        [("a", "{}")],
    ),
    "the name in each piece, no id": (
        [piece("a", part, index=0) for part in ("", "{", "}", "")],
        [("a", "{}")],
    ),
    "the name in each piece, no id, a blank at the end": (
        [piece("a", part, index=0) for part in ("{}", "\n")],
        [("a", "{}\n")],
    ),
    "one id for two calls": (
        [piece("a", '{"x":1}', index=0, id="1"), piece("a", '{"x":2}', index=0, id="1")],
        [("a", '{"x":1}'), ("a", '{"x":2}')],
    ),
    "a new id in each piece": (
        [piece("a", "", index=0, id="1"), *(piece(None, p, index=0, id=p) for p in "{}")],
        [("a", "{}")],
    ),
    "pieces of two calls in turn": (
        [
            *(piece(name, "{", index=at, id=name) for at, name in enumerate("ab")),
            *(piece(None, "}", index=at) for at in (0, 1)),
        ],
        [("a", "{}"), ("b", "{}")],
    ),
    "no index, pieces with and without the id": (
        [
            piece("a", "{", id="1"),
            piece(None, "}"),
            piece("b", "{", id="2"),
            piece(None, "}", id="2"),
        ],
        [("a", "{}"), ("b", "{}")],
    ),
}


@pytest.mark.parametrize("shape", STREAMS)
def test_each_streamed_call_is_one_call_whatever_the_server_leaves_out(shape: str) -> None:
    pieces, expected = STREAMS[shape]
    told: list[Delta] = []
    stream = CompletionStream(told.append)
    for each in pieces:
        stream.take({"choices": [{"index": 0, "delta": {"tool_calls": [each]}}]})
    stream.take({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    answer = read_answer(there(stream.body), model="m")
    assert [(call.name, call.arguments) for call in answer.message.calls] == expected
    assert len({(call.id, call.arguments) for call in answer.message.calls}) == len(expected)
    assert [d.name for d in told if d.kind == "call"] == [name for name, _ in expected]
    for place, (_, arguments) in enumerate(expected):
        said = "".join(d.text for d in told if d.kind == "arguments" and d.place == place)
        assert said in {"", arguments}


# ---- clients that are called like `AsyncOpenAI` and are none: proxies of tracers, fakes of tests

ASKED = ModelRequest(
    model="m",
    messages=(user("hi"),),
    settings=ModelSettings(
        extra_headers={"x-mine": "1"},
        extra_args={"metadata": {"a": "b"}},
        extra_body={"of_mine": 1},
    ),
)


class Tracer:
    """A proxy of a client that sees each call, as tracing libraries make them."""

    def __init__(self, client: Any, seen: list[dict[str, Any]]) -> None:
        self._client = client
        self._seen = seen

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        return Tracer(found, self._seen) if name in ("responses", "chat", "completions") else found

    async def create(self, **given: Any) -> Any:
        self._seen.append(given)
        return await self._client.create(**given)


class Fake:
    """A client of a test, which answers with an object of its own."""

    def __init__(self, answer: Any) -> None:
        self.api_key = "sk-of-the-fake"
        self.responses = SimpleNamespace(create=self._create)
        self._answer = answer

    async def _create(self, **_: Any) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def _ignore(_delta: Any) -> None:
    """Take a delta."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("streams", [False, True])
async def test_a_proxy_sees_each_call(model: FakeOpenAI, kind: Any, *, streams: bool) -> None:
    model.call("look", {"where": "here"})
    seen: list[dict[str, Any]] = []
    async with AsyncOpenAI(base_url=model.base_url, api_key="sk-1", max_retries=0) as client:
        made = kind("gpt-5-mini", client=Tracer(client, seen))
        answer = await (made.stream(ASKED, _ignore) if streams else made.respond(ASKED))
    [call] = answer.message.calls
    assert (call.name, call.arguments) == ("look", '{"where": "here"}')
    assert answer.usage.input_tokens > 0
    [given] = seen
    assert given["extra_headers"] == {"x-mine": "1"}
    assert (given["model"], given["metadata"]) == ("gpt-5-mini", {"a": "b"})
    assert model.requests[0].body["of_mine"] == 1
    assert given.get("stream", False) is streams


async def test_what_a_fake_answers_needs_only_the_members_that_are_read() -> None:
    said = SimpleNamespace(type="output_text", text="hello", annotations=())
    item = SimpleNamespace(type="message", role="assistant", content=[said])
    usage = SimpleNamespace(input_tokens=3, output_tokens=2)
    answer = SimpleNamespace(id="r1", output=[item], usage=usage, then=lambda: None)
    made = ResponsesModel("m", client=Fake(answer))  # type: ignore[arg-type]
    got = await made.respond(ASKED)
    assert (got.text, got.response_id, got.usage.input_tokens) == ("hello", "r1", 3)


@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        (ConnectionError("gone"), ModelUnavailableError, "raised ConnectionError: gone"),
        (KeyError("sk-of-the-fake"), ModelRequestError, r"raised KeyError: '\[key\]'"),
        (ModelRequestError("ours"), ModelRequestError, "^ours$"),
    ],
)
async def test_what_it_raises_is_healed_by_time_or_by_a_person(
    raised: Exception, kind: type[Exception], text: str
) -> None:
    made = ResponsesModel("m", client=Fake(raised))  # type: ignore[arg-type]
    with pytest.raises(kind, match=text):
        await made.respond(ASKED)


async def test_a_client_is_called_by_the_method_that_it_has() -> None:
    client: Any = Fake(None)
    with pytest.raises(InvalidArgumentError, match=r"has no chat\.completions\.create"):
        await ChatCompletionsModel("m", client=client).respond(ASKED)
    nothing: Any = object()
    with pytest.raises(InvalidArgumentError, match=r"has neither responses\.create"):
        ResponsesModel("m", client=nothing)


async def test_a_key_that_comes_with_the_first_request_is_in_no_text(model: FakeOpenAI) -> None:
    async def key() -> str:
        return "tok-of-today"

    model.fail(400, message="tok-of-today is not allowed")
    async with AsyncOpenAI(base_url=model.base_url, api_key=key, max_retries=0) as client:
        made = ResponsesModel("m", client=Tracer(client, []))  # type: ignore[arg-type]
        with pytest.raises(ModelRequestError, match=r"\[key\] is not allowed"):
            await made.respond(ASKED)


def test_a_client_that_blocks_is_refused() -> None:
    client: Any = OpenAI(api_key="sk-1")
    with pytest.raises(InvalidArgumentError, match=r"would block .* Pass an openai\.AsyncOpenAI"):
        ResponsesModel("m", client=client)
