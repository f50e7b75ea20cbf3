"""Clients that are called like `AsyncOpenAI` and are none: proxies of tracers, fakes of tests."""

from types import SimpleNamespace
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI

from holdfast.errors import InvalidArgumentError, ModelRequestError, ModelUnavailableError
from holdfast.models import ChatCompletionsModel, ModelRequest, ResponsesModel
from holdfast.testing import FakeOpenAI
from holdfast.values.messages import user
from holdfast.values.settings import ModelSettings

ASKED = ModelRequest(
    model="m",
    messages=(user("hi"),),
    settings=ModelSettings(
        extra_headers={"x-mine": "1"},
        extra_args={"metadata": {"a": "b"}},
        extra_body={"of_mine": 1},
    ),
)
KINDS: Any = [ResponsesModel, ChatCompletionsModel]


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
