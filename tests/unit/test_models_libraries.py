"""LiteLLM and any-llm, against the HTTP APIs of Anthropic and Gemini: both ways of one attempt."""

import asyncio
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, cast

import openai
import pytest

from holdfast import Agent, Image, RunConfig, model_providers
from holdfast.agents_sdk import MultiProvider, MultiProviderMap
from holdfast.errors import (
    InvalidArgumentError,
    ModelError,
    ModelRequestError,
    ModelUnavailableError,
)
from holdfast.models import AnyLLMModel, LitellmModel, Model, ModelRequest, ToolSpec, resolve_model
from holdfast.models.base import Delta, foreign_error
from holdfast.models.libraries.library_model import library_error
from holdfast.testing import FakeOpenAI, ScriptedModel
from holdfast.values.messages import Message, TextPart, Usage, user
from holdfast.values.settings import ModelSettings
from tests.support.pictures import png

pytestmark = [
    # What the libraries use is their own affair.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    # Of LiteLLM's types, to pydantic.
    pytest.mark.filterwarnings("ignore:Items? .* using the `ReadOnly` qualifier"),
    # Connections of the libraries belong to them, and are closed when they are collected.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("connections_of_libraries"),
]

KEY = "AIzaSy-key-of-the-tests"
ADD = ToolSpec(
    name="add",
    description="Add two numbers.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
        "required": ["a", "b"],
    },
)
NAMES = {"anthropic": "anthropic/claude-sonnet-4-5", "gemini": "gemini/gemini-3-pro-preview"}
OPENAI = "openai/gpt-5-mini"
USUAL = (
    "litellm-anthropic-stream",
    "litellm-gemini-whole",
    "any-llm-anthropic-whole",
    "any-llm-gemini-stream",
)
WAYS = [
    pytest.param(way, marks=() if way in USUAL else pytest.mark.exhaustive)
    for library in ("litellm", "any-llm")
    for provider in NAMES
    for way in (f"{library}-{provider}-whole", f"{library}-{provider}-stream")
]


class Asked:
    """A model behind one library and one API, asked whole or in a stream.

    Attributes:
        pieces: What the stream told.
    """

    def __init__(self, way: str, api: FakeOpenAI) -> None:
        library, self.provider, how = way.rsplit("-", 2)
        is_litellm = library == "litellm"
        place = api.base_url if self.provider == "openai" else api.origin
        if is_litellm and self.provider == "gemini":
            place += "/v1beta"
        kind: Any = LitellmModel if is_litellm else AnyLLMModel
        self.model = kind(NAMES.get(self.provider, OPENAI), base_url=place, api_key=KEY)
        self.is_stream = how == "stream"
        self.pieces: list[Delta] = []

    async def __call__(self, *messages: Message, **options: Any) -> Any:
        request = ModelRequest(
            model="x", instructions="Be short.", messages=messages or (user("hi"),), **options
        )
        self.pieces.clear()
        if self.is_stream:
            return await self.model.stream(request, self.pieces.append)
        return await self.model.respond(request)

    async def fails(self) -> ModelError:
        with pytest.raises(ModelError) as failed:
            await self()
        return failed.value

    def told(self, kind: str) -> str:
        return "".join(piece.text for piece in self.pieces if piece.kind == kind)


@pytest.fixture(params=WAYS)
async def asked(request: pytest.FixtureRequest, api: FakeOpenAI) -> Asked:
    return Asked(request.param, api)


async def test_a_text_with_its_cost(asked: Asked, api: FakeOpenAI) -> None:
    api.reply("Hello, my friend.", usage=Usage(input_tokens=70, cached_tokens=20, output_tokens=9))
    # As long as it may get: Anthropic's client must be told how long to wait.
    answer = await asked(settings=ModelSettings(max_tokens=32_000))
    assert (answer.text, answer.finish) == ("Hello, my friend.", "stop")
    usage = answer.usage
    assert (usage.requests, usage.input_tokens, usage.output_tokens) == (1, 70, 9)
    assert (usage.cached_tokens, answer.model) == (20, NAMES[asked.provider].partition("/")[2])
    assert asked.told("text") == (answer.text if asked.is_stream else "")
    [request] = api.requests
    assert (request.endpoint, request.is_stream) == (asked.provider, asked.is_stream)
    assert (request.instructions, request.last_user) == ("Be short.", "hi")
    assert asked.model.provider == asked.provider


async def test_calls_and_their_results_with_signed_reasoning(asked: Asked, api: FakeOpenAI) -> None:
    """The fake refuses reasoning of Anthropic and calls of Gemini 3 without their signatures."""
    api.calls(
        [("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})], reasoning="Two sums are needed."
    )
    answer = await asked(tools=(ADD,))
    first, second = answer.message.calls
    assert answer.finish == "tool_calls"
    assert (first.name, json.loads(first.arguments)) == ("add", {"a": 1, "b": 2})
    assert json.loads(second.arguments) == {"a": 3, "b": 4}
    assert first.id != second.id
    assert len(first.id) < 65
    if asked.is_stream:
        assert [piece.name for piece in asked.pieces if piece.kind == "call"] == ["add", "add"]
        assert asked.told("reasoning") == "Two sums are needed."
    api.reply("3 and 7")
    results = [
        Message(role="tool", call_id=call.id, content=text)
        for call, text in ((first, "3"), (second, "7"))
    ]
    assert (await asked(user("hi"), answer.message, *results, tools=(ADD,))).text == "3 and 7"
    before, after = api.requests
    assert before.tool_names == ("add",)
    assert before.tools[0].parameters["required"] == ["a", "b"]
    assert len(after.messages[1].calls) == 2
    assert [text.strip('{}"').rpartition('"')[2] or text for text in after.results.values()]
    if asked.provider == "anthropic":
        assert after.results == {first.id: "3", second.id: "7"}
        assert after.body["messages"][1]["content"][0]["thinking"] == "Two sums are needed."


async def test_an_image(asked: Asked, api: FakeOpenAI) -> None:
    image = Image.from_bytes(png(1))
    api.reply("a square")
    question = Message(role="user", content=(TextPart(kind="text", text="What?"), image.part()))
    assert (await asked(question)).text == "a square"
    assert api.requests[0].images == (image,)


@pytest.mark.parametrize("how", ["whole", "stream"])
@pytest.mark.parametrize("library", ["litellm", "any-llm"])
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (("openai", 429, "", 7), ("waits", True, 7)),
        (("openai", 429, "insufficient_quota", 1), ("person", 429, "Waiting")),
        (("openai", 400, "context_length_exceeded", None), ("person", 400, "The")),
        *(((each, 401, "", None), ("person", 401, "Check")) for each in ("openai", *NAMES)),
        *(((each, 400, "", None), ("person", 400, "Fix")) for each in NAMES),
        (("openai", 400, "conversation_locked", None), ("waits", False, None)),
        (("openai", 408, "", 3), ("waits", False, 3)),
        (("openai", 500, "", None), ("waits", False, None)),
        (("openai", 504, "", 4), ("waits", False, 4)),
        (("anthropic", 503, "", 5), ("waits", True, 5)),
        (("anthropic", 529, "overloaded_error", 2), ("waits", True, 2)),
        (("gemini", 502, "", 6), ("waits", False, 6)),
        (("gemini", 429, "", 8), ("waits", True, 8)),
    ],
)
async def test_what_the_provider_said_counts_not_what_a_library_makes_of_it(
    library: str,
    how: str,
    said: tuple[str, int, str, float | None],
    expected: object,
    api: FakeOpenAI,
) -> None:
    provider, status, code, asks = said
    api.fail(status, code=code or None, retry_after=asks, message=f"not with {KEY}")
    error = await Asked(f"{library}-{provider}-{how}", api).fails()
    assert KEY not in str(error)
    if isinstance(error, ModelRequestError):
        assert expected == ("person", error.status, error.remedy.partition(" ")[0])
        return
    assert isinstance(error, ModelUnavailableError)
    assert expected == ("waits", error.is_limit, error.retry_after)
    assert "not with" in str(error)
    assert f"HTTP {status}, request id req_1" in str(error)
    assert len(api.requests) == 1  # the library itself has not tried again


@pytest.mark.parametrize("library", ["litellm", "any-llm"])
async def test_a_connection_that_fails_is_no_status(library: str) -> None:
    with FakeOpenAI() as gone:
        asked = Asked(f"{library}-openai-whole", gone)
    error = await asked.fails()
    assert isinstance(error, ModelUnavailableError)
    assert str(error).startswith(f"The connection to model '{library}/{OPENAI}' failed")


class _Wrapped(Exception):  # noqa: N818
    """As any-llm wraps what a client raises; its truth is its own."""

    def __init__(self, original: Exception) -> None:
        super().__init__(str(original))
        self.original_exception = original

    def __bool__(self) -> bool:
        return False


@pytest.mark.parametrize("read", [library_error, foreign_error])
@pytest.mark.parametrize(
    ("code", "is_limit"), [("server_error", False), ("rate_limit_exceeded", True)]
)
def test_an_error_that_a_stream_tells_of_is_waited_out(
    read: Any, code: str, *, is_limit: bool
) -> None:
    told = openai.APIError("broke", request=cast("Any", None), body={"code": code})
    outer = _Wrapped(_Wrapped(told))
    made = read(outer, model="m") if read is library_error else read(outer, "it failed")
    assert isinstance(made, ModelUnavailableError)
    assert made.is_limit is is_limit


async def test_a_stream_cut_in_the_middle_is_asked_for_again(asked: Asked, api: FakeOpenAI) -> None:
    if not asked.is_stream:
        asked.is_stream = True
    api.paced("one two three four", piece=4, cut_after=2)
    assert isinstance(await asked.fails(), ModelUnavailableError)


async def test_a_late_answer_is_not_waited_for(asked: Asked, api: FakeOpenAI) -> None:
    api.reply("warm")
    await asked()  # imports the library
    api.hang(then="late")
    with pytest.raises(ModelUnavailableError, match="did not answer in time"):
        await asked(settings=ModelSettings(timeout_seconds=0.3))
    await asyncio.to_thread(api.wait_held, 0)
    api.reset()


@pytest.mark.parametrize("library", ["litellm", "any-llm"])
async def test_a_missing_key_is_named(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.setenv("ANTHROPIC_API_BASE", "http://127.0.0.1:9")
    model = resolve_model(f"{library}/anthropic/claude-of-nobody-{library}")
    with pytest.raises(ModelRequestError, match="ANTHROPIC_API_KEY"):
        await model.respond(ModelRequest(model="x", messages=(user("hi"),)))


def test_names_make_models_and_are_theirs() -> None:
    for name, kind in (
        ("litellm/anthropic/claude-x", LitellmModel),
        ("any-llm/gemini/gemini-x", AnyLLMModel),
    ):
        model = resolve_model(name)
        assert model.name == name
        assert resolve_model(name) is model
        assert isinstance(MultiProvider().get_model(name), kind)
        assert Agent(name="a", model=name).model == name


@pytest.mark.parametrize(
    "name", ["litellm/", "any-llm/", "any-llm/claude-x", "any-llm//x", "any-llm/anthropic/"]
)
def test_a_name_without_what_the_library_needs_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"write (litellm|any-llm)/PROVIDER/NAME"):
        resolve_model(name)


@pytest.mark.parametrize("kind", [LitellmModel, AnyLLMModel])
def test_a_name_that_is_no_text_is_refused_however_deep_it_is(kind: Any) -> None:
    deep: Any = None
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(InvalidArgumentError, match="<list that cannot be shown> lacks the name"):
        kind(deep)


@pytest.mark.parametrize(("prefix", "package"), [("litellm", "litellm"), ("any-llm", "any_llm")])
def test_a_missing_extra_is_named_with_its_command(
    prefix: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name == package else find(name),  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    )
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'holdfast-agents\[{prefix}\]'"):
        resolve_model(f"{prefix}/anthropic/claude-without-the-package")


class Acme:
    """Serves models of its own."""

    def __init__(self) -> None:
        self.made: list[str | None] = []

    def get_model(self, model_name: str | None) -> Model:
        self.made.append(model_name)
        return ScriptedModel([f"I am {model_name}."], name="small")


@pytest.fixture
def acme() -> Iterator[Acme]:
    provider = Acme()
    model_providers.add_provider("acme", provider)
    yield provider
    model_providers.remove_provider("acme")


async def test_a_provider_of_ones_own_serves_its_names(acme: Acme) -> None:
    agent = Agent(name="a", model="acme/small/fast")
    model = resolve_model(agent.model)
    assert acme.made == ["small/fast"]
    assert resolve_model("acme/small/fast") is model  # made once
    assert model.name == "acme/small/fast"  # by which a task finds it again
    answer = await model.respond(ModelRequest(model="x", messages=(user("hi"),)))
    assert answer.text == "I am small/fast."
    assert MultiProvider().get_model("acme/other").name == "small"
    model_providers.add_provider("acme", Acme())
    assert resolve_model("acme/small/fast") is not model


def test_an_unknown_prefix_is_refused_when_the_agent_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    known = r"prefix 'umbrella/'.*any-llm/, litellm/, openai/.*add_provider\('umbrella'"
    with pytest.raises(InvalidArgumentError, match=known):
        Agent(name="a", model="umbrella/large")
    with pytest.raises(InvalidArgumentError, match=known):
        RunConfig(model="umbrella/large")
    assert RunConfig(model="umbrella/large", model_provider=Acme()).model == "umbrella/large"
    own = MultiProviderMap()
    own.add_provider("umbrella", Acme())  # for a RunConfig(model_provider=MultiProvider(...))
    assert Agent(name="a", model="umbrella/large").model == "umbrella/large"
    del own
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    assert Agent(name="a", model="corporation/large").model == "corporation/large"


PROGRAM = """
import asyncio, logging, sys
hosts = set()
sys.addaudithook(
    lambda event, told: hosts.add(str(told[0]))
    if event == "socket.getaddrinfo"
    else hosts.add(str(told[1][0])) if event == "socket.connect" else None
)
from holdfast.models import LitellmModel, ModelRequest, resolve_model
from holdfast.models.base import ToolSpec
from holdfast.testing import FakeOpenAI
from holdfast.values.messages import user
import holdfast
from tests.support.dialects import anthropic, gemini
assert "litellm" not in sys.modules and "any_llm" not in sys.modules
async def main(api):
    places = {"anthropic/claude-x": api.origin, "gemini/gemini-x": api.origin + "/v1beta"}
    for name, base in places.items():
        model = LitellmModel(name, base_url=base, api_key="SECRET-of-the-tests")
        request = ModelRequest(model="x", messages=(user("hi"),))
        api.reply("a"); api.reply("b"); api.fail(401)
        await model.respond(request)
        await model.stream(request, lambda _: None)
        try:
            await model.respond(request)
        except Exception:
            pass
with FakeOpenAI(dialects=(anthropic, gemini)) as api:
    asyncio.run(main(api))
print(sorted(hosts))
"""


@pytest.mark.exhaustive
def test_litellm_reaches_nothing_but_the_provider_and_logs_no_key() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=200
    )
    assert run.stdout.strip() == "['127.0.0.1']"
    assert "SECRET" not in run.stderr
