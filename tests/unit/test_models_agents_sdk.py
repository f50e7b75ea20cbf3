"""Models and providers by the names of the Agents SDK, and the process's default client."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest
from openai import APIConnectionError, AsyncOpenAI
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
    ResponseTextDeltaEvent,
)

from holdfast import Agent, ModelSettings, RunConfig, Usage, UserError
from holdfast.agents_sdk import (
    Model,
    ModelProvider,
    ModelResponse,
    ModelTracing,
    MultiProvider,
    MultiProviderMap,
    OpenAIProvider,
    set_default_openai_api,
    set_default_openai_client,
    set_default_openai_key,
)
from holdfast.errors import ModelBehaviorError, ModelRequestError, ModelUnavailableError
from holdfast.models import Model as OneMethodModel
from holdfast.models import ModelRequest, OutputSpec, ToolSpec, defaults, resolve_model, user
from holdfast.models.base import Delta, StreamingModel
from holdfast.testing import FakeOpenAI


@pytest.fixture(autouse=True)
def nothing_set() -> Generator[None]:
    """Forget what a test has set for the process."""
    yield
    defaults.forget()


def unread(delta: Delta) -> None:
    """Take what a model streams, and do nothing with it."""


def message(text: str) -> ResponseOutputMessage:
    part = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(
        id="m1", type="message", role="assistant", status="completed", content=[part]
    )


class Own(Model):
    """A model that answers with what it is given, and keeps what it was asked."""

    def __init__(self, *output: Any, error: Exception | None = None) -> None:
        self.model = "own-1"
        self.output = list(output)
        self.error = error
        self.asked: list[dict[str, Any]] = []

    async def get_response(
        self, system_instructions: str | None, input: Any, *args: Any, **options: Any
    ) -> ModelResponse:
        names = ("model_settings", "tools", "output_schema", "handoffs", "tracing")
        self.asked.append(
            {"instructions": system_instructions, "input": input}
            | dict(zip(names, args, strict=False))
            | options
        )
        if self.error is not None:
            raise self.error
        usage = Usage(requests=1, input_tokens=7, output_tokens=2, cached_tokens=3)
        return ModelResponse(output=self.output, usage=usage, response_id="r1")

    async def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        if self.error is not None:
            raise self.error
        for n, piece in enumerate(("he", "llo")):
            yield ResponseTextDeltaEvent(
                type="response.output_text.delta",
                content_index=0,
                delta=piece,
                item_id="m1",
                logprobs=[],
                output_index=0,
                sequence_number=n,
            )
        whole = Response(
            id="r2",
            created_at=0,
            model="own-1",
            object="response",
            output=self.output,
            parallel_tool_calls=False,
            tool_choice="auto",
            tools=[],
        )
        yield ResponseCompletedEvent(type="response.completed", response=whole, sequence_number=9)


ASKED = ModelRequest(
    model="own-1",
    instructions="Be kind.",
    messages=(user("q"),),
    tools=(ToolSpec(name="look", parameters={"type": "object"}),),
    tool_choice="required",
    output=OutputSpec(name="Answer", json_schema={"type": "object"}),
)


async def test_a_model_of_the_agents_sdk_is_asked_by_its_signature() -> None:
    call = ResponseFunctionToolCall(
        type="function_call", call_id="c1", name="look", arguments="{}", id="f1"
    )
    own = Own(message("hello"), call)
    made = resolve_model(own)
    assert isinstance(made, StreamingModel)
    assert made.name == "own-1"
    answer = await made.respond(ASKED)
    assert (answer.text, answer.response_id) == ("hello", "r1")
    assert [each.name for each in answer.message.calls] == ["look"]
    assert (answer.usage.input_tokens, answer.usage.cached_tokens) == (7, 3)
    [asked] = own.asked
    assert asked["instructions"] == "Be kind."
    assert asked["input"] == [{"role": "user", "content": "q"}]
    assert asked["model_settings"].tool_choice == "required"
    [tool] = asked["tools"]
    assert (tool.name, tool.params_json_schema) == ("look", {"type": "object"})
    schema = asked["output_schema"]
    assert (schema.name(), schema.is_plain_text(), schema.json_schema()) == (
        "Answer",
        False,
        {"type": "object"},
    )
    assert schema.is_strict_json_schema()
    assert schema.validate_json("{}") == {}
    assert (asked["handoffs"], asked["tracing"]) == ([], ModelTracing.DISABLED)
    assert asked["previous_response_id"] is asked["conversation_id"] is asked["prompt"] is None


async def test_its_events_are_passed_on_and_the_last_one_is_the_answer() -> None:
    told: list[Delta] = []
    made = resolve_model(Own(message("hello")))
    assert isinstance(made, StreamingModel)
    answer = await made.stream(ASKED, told.append)
    assert [each.text for each in told] == ["he", "llo"]
    assert (answer.text, answer.response_id) == ("hello", "r2")


async def test_a_model_that_does_not_stream_answers_in_one_piece() -> None:
    class Plain(Own):
        def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
            raise NotImplementedError

    class Duck:
        async def get_response(self, *args: Any, **options: Any) -> Any:
            return SimpleNamespace(
                output=[{"role": "assistant", "content": "quack", "type": "message"}],
                usage=None,
                response_id=None,
            )

    plain, duck = resolve_model(Plain(message("hello"))), resolve_model(Duck())
    assert isinstance(plain, StreamingModel)
    assert isinstance(duck, StreamingModel)
    assert (await plain.stream(ASKED, unread)).text == "hello"
    assert (await duck.stream(ASKED, unread)).text == "quack"
    assert duck.name == "Duck"


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (ConnectionError("gone"), ModelUnavailableError),
        (APIConnectionError(request=Any), ModelUnavailableError),  # type: ignore[arg-type]
        (ValueError("wrong"), ModelRequestError),
        (ModelBehaviorError("odd"), ModelBehaviorError),
    ],
)
async def test_time_heals_what_it_can(raised: Exception, kind: type[Exception]) -> None:
    made = resolve_model(Own(error=raised))
    assert isinstance(made, StreamingModel)
    with pytest.raises(kind):
        await made.respond(ASKED)
    with pytest.raises(kind):
        await made.stream(ASKED, unread)


def test_agents_and_runs_keep_the_object_that_they_are_given() -> None:
    own = Own()
    assert Agent(name="a", model=own).model is own
    assert RunConfig(model=own).model is own
    assert not isinstance(own, OneMethodModel)
    abstract: Any = Model
    provider: Any = ModelProvider
    for kind in (abstract, provider):
        with pytest.raises(TypeError, match="abstract"):
            kind()
    no_model: Any = Own
    with pytest.raises(UserError, match="is not a model"):
        Agent(name="a", model=no_model)


async def test_the_client_of_the_process_calls_models_that_have_none() -> None:
    with FakeOpenAI() as api:
        api.add("hello", "again")
        async with AsyncOpenAI(
            api_key="other", base_url=api.base_url, default_headers={"x-client": "own"}
        ) as client:
            set_default_openai_client(client)
            model = resolve_model("claude-like")  # another server may have any names
            answer = await model.respond(ModelRequest(model="x", messages=(user("q"),)))
            assert answer.text == "hello"
        defaults.forget()
        set_default_openai_api("chat_completions")
        set_default_openai_key("secret")
        provider = OpenAIProvider(base_url=api.base_url)
        chat = provider.get_model("m")
        answer = await chat.respond(ModelRequest(model="m", messages=(user("q"),)))
        assert answer.text == "again"
        await provider.aclose()
    paths = [request.path for request in api.requests]
    assert paths[0].endswith("/responses")
    assert paths[1].endswith("/chat/completions")
    assert [request.headers.get("x-client") for request in api.requests] == ["own", None]


class Named(ModelProvider):
    """A provider whose models are their names."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix

    def get_model(self, model_name: str | None) -> Any:
        return f"{self.prefix}:{model_name}"


async def test_a_prefix_chooses_the_provider() -> None:
    given = MultiProviderMap()
    given.add_provider("own", Named("own"))
    provider = MultiProvider(provider_map=given)
    assert provider.get_model("own/a/b") == "own:a/b"
    assert provider.get_model("openai/gpt-x").name == provider.get_model("gpt-x").name == "gpt-x"
    with pytest.raises(UserError, match="Unknown prefix"):
        provider.get_model("other/a")
    literal = MultiProvider(openai_prefix_mode="model_id", unknown_prefix_mode="model_id")
    assert literal.get_model("openai/gpt-x").name == "openai/gpt-x"
    assert literal.get_model("other/a").name == "other/a"
    assert literal.get_model("litellm/a/b").name == "litellm/a/b"
    wrong: Any = "no"
    with pytest.raises(UserError, match="openai_prefix_mode"):
        MultiProvider(openai_prefix_mode=wrong)
    assert given.has_prefix("own")
    given.remove_provider("own")
    given.set_mapping({"openai": Named("mine")})
    assert (list(given.get_mapping()), provider.get_model("openai/a")) == (["openai"], "mine:a")
    await provider.aclose()


ByHand = Callable[..., Any]
BY_HAND: dict[str, Any] = {
    "system_instructions": "Be brief.",
    "input": "Think.",
    "model_settings": ModelSettings(temperature=0.5),
    "tools": [],
    "output_schema": None,
    "handoffs": [],
    "tracing": ModelTracing.DISABLED,
    "previous_response_id": None,
    "conversation_id": None,
    "prompt": None,
}


@pytest.fixture
async def by_hand(model: FakeOpenAI) -> AsyncGenerator[ByHand]:
    made: list[OpenAIProvider] = []

    def provider(**options: Any) -> Any:
        made.append(OpenAIProvider(base_url=model.base_url, api_key="sk-test", **options))
        return made[-1].get_model("gpt-x")

    yield provider
    for each in made:
        await each.aclose()


async def test_a_provider_s_model_streams_to_code_that_asks_it_itself(
    model: FakeOpenAI, by_hand: ByHand
) -> None:
    model.reply("done", reasoning="hm")
    events = [e async for e in by_hand().stream_response(**BY_HAND)]
    texts = [event.delta for event in events if isinstance(event, ResponseTextDeltaEvent)]
    assert "".join(texts) == "done"
    assert isinstance(events[-1], ResponseCompletedEvent)
    assert isinstance(events[-1].response.output[0], ResponseReasoningItem)
