"""Streamed model calls against the fake API: the same answer as in one piece, and its pieces."""

import asyncio
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from holdfast.errors import ModelUnavailableError
from holdfast.models import (
    ChatCompletionsModel,
    ModelAnswer,
    ModelRequest,
    ResponsesModel,
    ToolSpec,
)
from holdfast.models.base import Delta
from holdfast.models.draft import Draft, Frame, deltas_of, goes_on
from holdfast.models.openai.chat import read_answer
from holdfast.models.openai.chat_stream import CompletionStream
from holdfast.models.openai.http.connection import EventReader
from holdfast.testing import FakeOpenAI, raw
from holdfast.values.messages import user

KINDS = (ResponsesModel, ChatCompletionsModel)
ADD = ToolSpec(name="add", parameters={"type": "object", "properties": {}})
REQUEST = ModelRequest(model="m", messages=(user("Hello"),), tools=(ADD,))
Answers = Callable[[FakeOpenAI], None]


async def stream(kind: Any) -> tuple[ModelAnswer, list[Delta]]:
    model: ResponsesModel | ChatCompletionsModel = kind("some-model")
    told: list[Delta] = []
    try:
        return await model.stream(REQUEST, told.append), told
    finally:
        await model.close()


async def whole(kind: Any) -> ModelAnswer:
    model: ResponsesModel | ChatCompletionsModel = kind("some-model")
    try:
        return await model.respond(REQUEST)
    finally:
        await model.close()


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
    plain = await whole(kind)
    answer, told = await stream(kind)
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
async def test_an_answer_that_is_cut_off_is_to_be_repeated(api: FakeOpenAI, kind: Any) -> None:
    api.paced("This will not arrive whole", cut_after=2)
    with pytest.raises(ModelUnavailableError, match=r"in the middle|was cut"):
        await stream(kind)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_without_its_end_is_to_be_repeated(api: FakeOpenAI, kind: Any) -> None:
    api.raw({"status": "queued", "output": [], "choices": []})
    with pytest.raises(ModelUnavailableError, match=r"there was no|holds no choice"):
        await stream(kind)


CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}


@pytest.mark.parametrize(
    "message", [{"content": "all of it"}, {"content": None, "tool_calls": [CALL]}]
)
async def test_a_stream_that_is_done_without_a_finish_reason_is_the_answer_that_it_is_in_one_piece(
    api: FakeOpenAI, message: dict[str, Any]
) -> None:
    api.add(*[raw({"choices": [{"index": 0, "message": message, "finish_reason": None}]})] * 2)
    plain = await whole(ChatCompletionsModel)
    streamed, _ = await stream(ChatCompletionsModel)
    assert streamed.message == plain.message
    assert streamed.message.content or streamed.message.calls


def test_a_whole_message_in_place_of_its_pieces_is_taken_once() -> None:
    said = {"content": "all of it", "tool_calls": [CALL]}
    end = {"index": 0, "delta": {}, "message": said, "finish_reason": "stop"}
    for before in ([], [{"index": 0, "delta": said}]):
        stream = CompletionStream(lambda _: None)
        for choice in [*before, end]:
            stream.take({"choices": [choice]})
        assert stream.body is not None
        answer = read_answer(stream.body, model="m")
        assert (answer.text, len(answer.message.calls)) == ("all of it", 1)


def test_the_call_of_the_old_form_is_a_call_streamed_or_not() -> None:
    told: list[Delta] = []
    stream = CompletionStream(told.append)
    for piece in ({"name": "add", "arguments": ""}, {"arguments": '{"a"'}, {"arguments": ":1}"}):
        stream.take({"choices": [{"index": 0, "delta": {"function_call": piece}}]})
    stream.take({"choices": [{"index": 0, "delta": {}, "finish_reason": "function_call"}]})
    old = {"content": None, "function_call": {"name": "add", "arguments": '{"a":1}'}}
    body = {"choices": [{"index": 0, "message": old, "finish_reason": "function_call"}]}
    assert stream.body is not None
    for each in (stream.body, body):
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
    answer = (await stream(kind))[0] if streamed else await whole(kind)
    assert answer.text == "paid for"
    assert answer.usage.input_tokens in {0, 7}
    assert answer.usage.output_tokens == 0


SHAPES: dict[str, tuple[list[dict[str, Any]], list[tuple[str, str]]]] = {
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


@pytest.mark.parametrize("shape", SHAPES)
def test_each_streamed_call_is_one_call_whatever_the_server_leaves_out(shape: str) -> None:
    pieces, expected = SHAPES[shape]
    told: list[Delta] = []
    stream = CompletionStream(told.append)
    for each in pieces:
        stream.take({"choices": [{"index": 0, "delta": {"tool_calls": [each]}}]})
    stream.take({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    assert stream.body is not None
    answer = read_answer(stream.body, model="m")
    assert [(call.name, call.arguments) for call in answer.message.calls] == expected
    assert len({(call.id, call.arguments) for call in answer.message.calls}) == len(expected)
    assert [d.name for d in told if d.kind == "call"] == [name for name, _ in expected]
    for place, (_, arguments) in enumerate(expected):
        said = "".join(d.text for d in told if d.kind == "arguments" and d.place == place)
        assert said in {"", arguments}
