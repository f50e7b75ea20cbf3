"""Models and providers by the names of the Agents SDK, and the process's default client."""

import copy
import json
import pickle
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest
from openai import APIConnectionError, AsyncOpenAI
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseFunctionWebSearch,
    ResponseOutputMessage,
    ResponseOutputRefusal,
    ResponseOutputText,
    ResponseReasoningItem,
    ResponseTextDeltaEvent,
)

from holdfast import Agent, ModelSettings, RunConfig, Usage, UserError
from holdfast.agents.items.run_items import InputItem, RawItem, RunItem
from holdfast.agents.runs.item_reading import message_items
from holdfast.agents.runs.results import response
from holdfast.agents.runs.teams import team_of
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
from holdfast.models import ModelRequest, OutputSpec, ToolSpec, defaults, resolve_model
from holdfast.models.base import Delta, ModelAnswer, StreamingModel
from holdfast.models.openai.item_contents import FAKE_ID
from holdfast.models.openai.items import (
    assistant_message,
    from_response_items,
    made_items,
    shown_items,
    to_response_items,
)
from holdfast.testing import FakeOpenAI
from holdfast.values.messages import Message, ToolCall, assistant, user
from holdfast.workers.context.journal import read


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


# ---- items of a model as objects of the `openai` package

ANN = Agent("Ann")
TEXT = ResponseOutputText(text="hi", type="output_text", annotations=[], logprobs=[])
SAID = ResponseOutputMessage(
    id="msg_1", type="message", role="assistant", status="completed", content=[TEXT]
)
CALL = ResponseFunctionToolCall(
    id="fc_1", type="function_call", call_id="c1", name="pay", arguments="{}", status="completed"
)
OTHER = CALL.model_copy(update={"id": "fc_2", "call_id": "c2"})
THOUGHT = ResponseReasoningItem(id="rs_1", type="reasoning", summary=[])
REFUSED = SAID.model_copy(
    update={"content": [ResponseOutputRefusal(type="refusal", refusal="No.")]}
)
ASKED_TYPED = {"role": "user", "content": "q"}


def message_of(*given: Any) -> Message:
    return assistant_message([each.model_dump(exclude_unset=True) for each in given])


def items_of(*messages: Message) -> list[RunItem]:
    return message_items(messages, ANN, team_of(ANN))


def text(data: Any) -> str:
    """Write items as JSON, which has the order of their members."""
    return json.dumps(data)


@pytest.mark.parametrize("given", [(SAID, CALL), (THOUGHT, SAID, CALL), (THOUGHT, CALL)])
def test_an_item_is_input_to_the_byte_as_the_provider_has_sent_it(given: tuple[Any, ...]) -> None:
    sent = [each.model_dump(exclude_unset=True) for each in given]
    message = message_of(*given)
    items, answer = items_of(message), response(ModelAnswer(message=message))
    for _ in range(2):  # before and after they were read
        assert text([each.to_input_item() for each in items]) == text(sent)
        assert text(answer.to_input_items()) == text(sent)
        assert text([each.shown_item() for each in items]) == text(sent)
        assert [each.raw_item for each in items] == list(given) == answer.output


@pytest.mark.parametrize("given", [(SAID, CALL), (THOUGHT, SAID, CALL), (REFUSED, CALL), (CALL,)])
def test_items_that_are_given_again_are_the_answer_that_they_were(given: tuple[Any, ...]) -> None:
    message = message_of(*given)
    again = from_response_items([each.to_input_item() for each in items_of(message)])
    assert again == (message,)
    assert text(shown_items(again)) == text([each.to_input_item() for each in items_of(message)])


def test_plain_ids_are_no_part_of_what_a_model_is_sent() -> None:
    given = [each.to_input_item() for each in items_of(message_of(SAID, CALL))]
    plain: list[dict[str, Any]] = [
        {"content": "hi", "role": "assistant"},
        {"type": "function_call", "call_id": "c1", "name": "pay", "arguments": "{}"},
    ]
    assert to_response_items(from_response_items(given)) == plain
    odd = {**given[0], "status": "in_progress"}
    assert to_response_items(from_response_items([odd]))[0].keys() == odd.keys() - {"id"}
    assert shown_items(from_response_items([odd])) == [odd]


def test_ids_beside_reasoning_are_sent_also_in_the_messages_right_after_it() -> None:
    thought, said = (each.to_input_item() for each in items_of(message_of(THOUGHT, SAID)))
    later = {**said, "id": "msg_2"}
    sent = to_response_items(from_response_items([thought, said, later, ASKED_TYPED, later]))
    assert [each.get("id") for each in sent] == ["rs_1", "msg_1", "msg_2", None, None]


def test_items_of_a_provider_without_ids_have_that_of_the_sdk_and_it_is_not_sent() -> None:
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    message = assistant("hi", calls=(ToolCall(id="c1", name="pay"),))
    message = message.model_copy(update={"items": (thought,)})
    items = items_of(message)
    assert [each.raw_item.id for each in items] == [FAKE_ID] * 3
    assert items[1].raw_item == SAID.model_copy(update={"id": FAKE_ID})
    assert items[2].raw_item == CALL.model_copy(update={"id": FAKE_ID, "status": None})
    given = [each.to_input_item() for each in items]
    again = from_response_items(given)
    assert to_response_items(again) == to_response_items([message])
    assert text(shown_items(again)) == text(given)
    changed: Any = shown_items(again)[0]  # in place, as a filter may
    changed["summary"][0]["text"] = "changed"
    assert text(shown_items(again)) == text(given)


def test_an_item_that_code_puts_in_the_place_of_one_is_the_input() -> None:
    [said] = items_of(message_of(SAID))
    said.raw_item = {"role": "assistant", "content": "ho"}
    assert said.to_input_item() == said.shown_item() == {"role": "assistant", "content": "ho"}
    answer = response(ModelAnswer(message=message_of(SAID)))
    answer.output = [CALL]
    assert answer.to_input_items() == [CALL.model_dump(exclude_unset=True)]


def test_unread_and_read_items_survive_copies() -> None:
    for _ in range(2):
        items = items_of(message_of(SAID, CALL))
        kept = pickle.loads(pickle.dumps([vars(each) for each in copy.deepcopy(items)]))
        assert [each["_unread"].item["id"] for each in kept] == ["msg_1", "fc_1"]
        assert [each.raw_item for each in copy.deepcopy(items)] == [SAID, CALL]
        assert pickle.loads(pickle.dumps([each.raw_item for each in items])) == [SAID, CALL]
        answer = response(ModelAnswer(message=message_of(SAID, CALL)))
        assert pickle.loads(pickle.dumps(answer)).output == [SAID, CALL]
        assert answer == copy.copy(answer)


def test_what_the_package_does_not_know_is_a_dict_and_so_is_input() -> None:
    action = {"type": "search", "query": "q"}
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": action}
    odd = {"type": "odd_call", "id": "o_1"}
    items = items_of(assistant_message([search, odd]), user("more"))
    assert isinstance(items[0].raw_item, ResponseFunctionWebSearch)
    assert items[0].to_input_item() == search
    assert isinstance(items[1].raw_item, RawItem)
    assert items[1].raw_item == odd
    assert isinstance(items[2], InputItem)
    assert items[2].raw_item == {"role": "user", "content": "more"}


def test_ids_stay_with_their_calls() -> None:
    message = message_of(SAID, CALL, OTHER)
    quiet = message.model_copy(update={"calls": ()})
    renamed = message.model_copy(
        update={
            "calls": tuple(each.model_copy(update={"id": f"n{each.id}"}) for each in message.calls)
        }
    )
    assert [each["id"] for each in made_items(quiet)] == ["msg_1"]
    assert [each["id"] for each in made_items(renamed)] == ["msg_1", "fc_1", "fc_2"]
    twice = message_of(SAID, CALL, CALL.model_copy(update={"id": "fc_0"}), OTHER)
    once = read(ModelAnswer(message=twice), renames=True).message
    assert [each["id"] for each in made_items(once)] == ["msg_1", "fc_1", "fc_2"]
    for nothing in (None, FAKE_ID):
        assert message_of(CALL.model_copy(update={"id": nothing})).item_ids == ()
