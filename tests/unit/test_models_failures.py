"""Every failure of a model call is one of two: time heals it, or a person must."""

import asyncio
import gzip
import json
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import httpx2
import openai
import pytest
from openai import AsyncAzureOpenAI, AsyncOpenAI
from temporalio.common import MetricMeter
from temporalio.exceptions import ApplicationError

from holdfast.agents.items.run_items import raw_of
from holdfast.errors import (
    LONGEST_WAIT_SECONDS,
    InvalidArgumentError,
    ModelError,
    ModelRequestError,
    ModelUnavailableError,
    ToolTimeoutError,
)
from holdfast.models import ChatCompletionsModel, ModelRequest, ResponsesModel, from_response_items
from holdfast.models.base import Delta, ToolSpec, foreign_error
from holdfast.models.openai.hosted_items import hosted_calls, outlines
from holdfast.models.openai.http.bodies import EncodedMessages, RequestBody
from holdfast.models.openai.http.connection import LARGEST_BODY_BYTES
from holdfast.models.openai.http.failures import model_error
from holdfast.models.openai.item_contents import without_images
from holdfast.models.openai.local_items import is_stub, run_by_provider
from holdfast.models.openai.model import OpenAIModel
from holdfast.serving.observed.metrics import Meters
from holdfast.task.data.calls import Outcome
from holdfast.task.data.failures import INTERRUPTED, TIMED_OUT
from holdfast.testing import FakeOpenAI
from holdfast.values.base import Json
from holdfast.values.messages import Message, ToolCall, assistant, user
from holdfast.values.runs.retries import retry_after
from holdfast.values.settings import ModelSettings
from tests.support.hostile import Bytes, chat, hostile_server, in_turn, message, responses, sent

KEY = "sk-very-secret-0123456789"


async def failure(api: FakeOpenAI, kind: Any = ResponsesModel, timeout: float = 60) -> ModelError:
    model = kind("some-model", base_url=api.base_url, api_key=KEY)
    settings = ModelSettings(timeout_seconds=timeout)
    request = ModelRequest(model="some-model", messages=(user("x"),), settings=settings)
    with pytest.raises(ModelError) as caught:
        await model.respond(request)
    await model.close()
    error = caught.value
    assert KEY not in str(error)
    assert "'some-model'" in str(error)
    assert error.__cause__ is None, "a cause is stored with the task, and may hold the key"
    return error


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 529])
async def test_what_time_heals(api: FakeOpenAI, status: int) -> None:
    api.fail(status, message="Try again")
    error = await failure(api)
    assert isinstance(error, ModelUnavailableError)
    assert error.retry_after is None
    assert f"HTTP {status}, request id req_1): Try again. The call is repeated later." in str(error)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
async def test_what_time_does_not_heal(api: FakeOpenAI, status: int) -> None:
    api.fail(status, message="No.")
    error = await failure(api)
    assert isinstance(error, ModelRequestError)
    assert error.status == status
    assert f"(HTTP {status}, request id req_1): No. " in str(error)
    assert str(error).endswith("run the step again.")


@pytest.mark.parametrize("kind", [ResponsesModel, ChatCompletionsModel])
async def test_used_up_quota_is_not_waited_for(api: FakeOpenAI, kind: Any) -> None:
    api.fail(429, message="You exceeded your quota", code="insufficient_quota", retry_after=1)
    error = await failure(api, kind)
    assert isinstance(error, ModelRequestError)
    assert error.status == 429
    assert "billing" in str(error)


@pytest.mark.parametrize("headers", [{}, {"x-should-retry": "false"}])
async def test_a_conversation_that_another_request_uses_is_waited_for(
    api: FakeOpenAI, headers: dict[str, str]
) -> None:
    api.fail(400, message="locked", code="conversation_locked", headers=headers)
    assert isinstance(await failure(api), ModelUnavailableError)


@pytest.mark.parametrize(
    ("status", "code", "is_waited_for"),
    [(400, "conversation_locked", True), (429, "insufficient_quota", False), (400, None, False)],
)
def test_an_error_that_a_program_s_own_model_raises_is_told_apart_by_its_code(
    status: int, code: str | None, *, is_waited_for: bool
) -> None:
    response = httpx2.Response(status, request=httpx2.Request("POST", "http://localhost"))
    error = openai.APIStatusError("no", response=response, body={"code": code})
    assert isinstance(foreign_error(error, "it failed"), ModelUnavailableError) is is_waited_for


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
        ({"retry-after": "Thu, 01 Jan 1970 00:02:00 GMT"}, 20.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Mon, 31 Feb 2099 99:99:99 GMT"}, None),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after-ms": "soon", "retry-after": "3"}, 3.0),
    ],
)
def test_forms_of_retry_after(headers: dict[str, str], expected: float | None) -> None:
    assert retry_after(headers, now=100.0) == expected


@pytest.mark.parametrize("kind", [ResponsesModel, ChatCompletionsModel])
async def test_timeout(api: FakeOpenAI, kind: Any) -> None:
    api.hang()
    error = await failure(api, kind, timeout=1.0)  # longer than a connection takes under load
    assert isinstance(error, ModelUnavailableError)
    assert "did not answer in time" in str(error)
    await api.until_held(0)


@pytest.mark.parametrize("kind", [ResponsesModel, ChatCompletionsModel])
async def test_body_that_is_not_json(api: FakeOpenAI, kind: Any) -> None:
    api.malformed()
    error = await failure(api, kind)
    assert isinstance(error, ModelUnavailableError)
    assert "the body is not JSON" in str(error)
    assert "req_1" in str(error)


@pytest.mark.parametrize(
    "message",
    [
        f"Incorrect API key provided: {KEY}.",
        "Incorrect API key provided: sk-proj-abc***wxyz. Find yours.",
        f"Header was 'Authorization: Bearer {KEY}'",
        "bearer abcdefg is unknown",
    ],
)
async def test_keys_are_cut_out_of_the_text(api: FakeOpenAI, message: str) -> None:
    api.fail(401, message=message)
    text = str(await failure(api))
    assert "[key]" in text
    assert "sk-" not in text
    assert "abcdefg" not in text


async def test_missing_key_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    request = ModelRequest(model="m", messages=(user("x"),))
    for model in (ResponsesModel("m"), ChatCompletionsModel("m"), ResponsesModel("m", api_key="")):
        with pytest.raises(ModelRequestError, match="Set OPENAI_API_KEY") as caught:
            await model.respond(request)
        assert "'m'" in str(caught.value)
        assert "offline" in str(caught.value)


def all_errors(kind: type[BaseException]) -> Iterator[type[BaseException]]:
    for each in kind.__subclasses__():
        yield each
        yield from all_errors(each)


@pytest.mark.parametrize("kind", sorted(set(all_errors(openai.OpenAIError)), key=str))
def test_every_error_of_the_client_is_mapped(kind: type[openai.OpenAIError]) -> None:
    """A new error class of the client must not pass as something else."""
    error = kind.__new__(kind)
    error.args = ("what it says",)
    if isinstance(error, openai.APIError):
        error.message = "what it says"
        error.body = None
    if isinstance(error, openai.APIStatusError):
        error.response = Mock(headers={})
        error.status_code = getattr(kind, "status_code", 418)
    mapped = model_error(error, model="m")
    assert isinstance(mapped, ModelUnavailableError | ModelRequestError)
    assert "'m'" in str(mapped)


@pytest.mark.parametrize(
    ("code", "expected"), [(429, ModelUnavailableError), (402, ModelRequestError)]
)
async def test_error_in_a_body_of_status_200(
    api: FakeOpenAI, code: int, expected: type[Exception]
) -> None:
    api.raw({"error": {"code": code, "message": "Not now"}})
    error = await failure(api, ChatCompletionsModel)
    assert isinstance(error, expected)
    assert "Not now" in str(error)


# ---- bodies of requests: encoded once per message, and sent as the client's own methods would

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


# ---- what our metrics say of a model call and of a tool call, by how it has ended


class Heard(Meters):
    """Keeps the outcomes that it is told."""

    def __init__(self) -> None:
        super().__init__(MetricMeter.noop)
        self.outcomes: list[str] = []

    def record(self, name: str, value: float, **labels: str) -> None:
        del name, value
        self.outcomes.append(labels["outcome"])


LIMIT, DOWN = (ModelUnavailableError("no", is_limit=each) for each in (True, False))


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (LIMIT, "rate_limited"),
        (DOWN, "unavailable"),
        (ModelRequestError("no"), "failed"),
        (asyncio.CancelledError(), "cancelled"),
        (None, "answered"),
    ],
)
def test_a_model_call(error: BaseException | None, outcome: str) -> None:
    heard = Heard()
    heard.model_call("m", 1.0, None, error)
    assert heard.outcomes == [outcome]


@pytest.mark.parametrize(
    ("error", "made", "outcome"),
    [
        (None, Outcome(content="milk"), "done"),
        (None, Outcome(content="no milk", is_error=True), "failed"),
        (ValueError("no"), None, "failed"),
        (ToolTimeoutError(tool_name="t", timeout_seconds=1), None, "timeout"),
        (ApplicationError("late", type=TIMED_OUT), None, "timeout"),
        (ApplicationError("lost", type=INTERRUPTED), None, "unknown"),
        (asyncio.CancelledError(), None, "unknown"),
    ],
)
def test_a_tool_call(error: BaseException | None, made: Outcome | None, outcome: str) -> None:
    heard = Heard()
    heard.tool_call("t", 1.0, made, error)
    assert heard.outcomes == [outcome]


# ---- servers that are broken or mean no good: what a model makes of what they send

OTHER_KEY = "sk-of-the-tests-1"
REQUEST = ModelRequest(model="m", messages=(user("q"),))
APIS: dict[str, tuple[Any, dict[str, Any]]] = {
    "responses": (ResponsesModel, responses(message("done"))),
    "chat": (ChatCompletionsModel, chat({"content": "done"})),
}
each_api = pytest.mark.parametrize("api", APIS)
whole_or_streamed = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
BUSY = b'{"error": {"message": "too busy", "type": "server_error"}}'


async def asked(api: str, answer: Bytes, *, streamed: bool, client: bool = False) -> Any:
    """Ask a model whose server gives this answer."""
    async with hostile_server(in_turn(answer)) as server:
        given: dict[str, Any] = {"base_url": server.base_url, "api_key": OTHER_KEY}
        if client:
            import openai

            own = openai.AsyncOpenAI(**given)
            given = {"client": own}
        model = APIS[api][0]("m", **given)
        try:
            if streamed:
                return await model.stream(REQUEST, ignore)
            return await model.respond(REQUEST)
        finally:
            await model.close()
            if client:
                await given["client"].close()


def ignore(delta: Delta) -> None:
    """Take a piece."""


@each_api
@pytest.mark.parametrize("name", [None, 5, ["gpt-5-mini"], b"m", "", " ", "m\n"])
def test_a_name_that_is_none_is_refused_when_the_model_is_made(api: str, name: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="name"):
        APIS[api][0](name, api_key=OTHER_KEY)


@each_api
@pytest.mark.parametrize("given", ["1763827200", "9" * 300])
async def test_a_wait_of_years_is_cut_and_said(api: str, given: str) -> None:
    busy = Bytes(BUSY, status=429, headers={"retry-after": given})
    with pytest.raises(ModelUnavailableError, match=r"after 3600 s, the longest wait") as caught:
        await asked(api, busy, streamed=False)
    assert caught.value.retry_after == LONGEST_WAIT_SECONDS


@pytest.mark.parametrize(
    ("api", "streamed", "client", "status"),
    [("chat", False, False, 429), ("responses", True, True, 503), ("chat", False, True, 503)],
)
async def test_an_error_whose_body_is_cut_is_one_that_time_heals(
    api: str, streamed: bool, client: bool, status: int
) -> None:
    cut = Bytes(BUSY[:20], status=status, missing=100, headers={"retry-after": "7"})
    with pytest.raises(ModelUnavailableError) as caught:
        await asked(api, cut, streamed=streamed, client=client)
    if streamed or not client:
        assert f"HTTP {status}" in str(caught.value)
        assert caught.value.retry_after == 7.0


@each_api
@whole_or_streamed
async def test_an_answer_whose_body_is_no_gzip_is_one_that_cannot_be_read(
    api: str, streamed: bool
) -> None:
    kind = "text/event-stream" if streamed else "application/json"
    broken = Bytes(b"not gzip at all", kind, headers={"content-encoding": "gzip"})
    with pytest.raises(ModelUnavailableError, match=r"cannot be read.*content-encoding"):
        await asked(api, broken, streamed=streamed)


@pytest.mark.parametrize(
    ("api", "streamed", "packed"), [("chat", False, True), ("responses", True, False)]
)
async def test_an_answer_without_end_is_broken_off(api: str, streamed: bool, packed: bool) -> None:
    body = b" " * (LARGEST_BODY_BYTES + 100)
    headers = {"content-encoding": "gzip"} if packed else {}
    kind = "text/event-stream" if streamed else "application/json"
    endless = Bytes(gzip.compress(body, 1) if packed else body, kind, headers=headers)
    with pytest.raises(ModelUnavailableError, match="more than 33554432 bytes"):
        await asked(api, endless, streamed=streamed)


@each_api
async def test_an_answer_in_one_very_long_line_is_read(api: str) -> None:
    body = APIS[api][1]
    padded = sent({**body, "padding": "x" * 4_000_000}, streamed=True)
    assert (await asked(api, padded, streamed=True)).text == "done"


@pytest.mark.parametrize("kind", [["a"], {"a": 1}, 7, None, True], ids=str)
def test_an_item_whose_type_is_no_text_is_of_no_known_type(kind: Any) -> None:
    """Workflow code reads items, where an error would stop the task until the code is mended."""
    items = [{"type": kind, "content": [{"type": kind}]}]
    assert hosted_calls(items) == outlines(items) == ()
    assert run_by_provider(items) == set()
    assert not is_stub(items[0])
    assert without_images({"role": "assistant", **items[0]}) == {"role": "assistant", **items[0]}
    assert raw_of(items[0]) is not None
