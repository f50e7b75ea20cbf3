"""Settings: how they lie over each other, and what they refuse."""

from copy import deepcopy
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pytest
from agents import ModelSettings as TheirSettings
from agents.models.default_models import get_default_model_settings
from openai import AsyncAzureOpenAI, AsyncOpenAI
from openai.types.shared import Reasoning

from holdfast import Agent, ModelSettings, RunConfig, Runner, Usage, UserError
from holdfast.agents.runs.teams import run_head
from holdfast.agents_sdk import (
    ItemHelpers,
    ModelResponse,
    MultiProvider,
    OpenAIChatCompletionsModel,
    OpenAIProvider,
    Prompt,
    WebSearchTool,
    set_default_openai_client,
)
from holdfast.errors import (
    HoldfastError,
    ModelRequestError,
    ModelUnavailableError,
    WrongTypeError,
)
from holdfast.models import (
    ChatCompletionsModel,
    ModelAnswer,
    ModelRequest,
    ResponsesModel,
    resolve_model,
    user,
)
from holdfast.models.base import Delta
from holdfast.models.defaults import _defaults, default_client
from holdfast.models.fallbacks import FallbackModel
from holdfast.models.prices import Price, Prices, priced
from holdfast.models.resolve import default_settings, get_default_model
from holdfast.serving.governor.models import _reached
from holdfast.task.data.head import AgentSnapshot
from holdfast.testing import ScriptedModel
from holdfast.values.base import Json


def test_a_setting_that_equals_the_default_is_a_setting() -> None:
    own = ModelSettings(timeout_seconds=5, max_attempts=2)
    over = own.resolve(ModelSettings(timeout_seconds=600, max_attempts=10))
    assert (over.seconds_per_attempt, over.attempts) == (600, 10)


def test_what_is_not_set_has_its_default_where_it_is_used() -> None:
    settings = ModelSettings()
    assert (settings.timeout_seconds, settings.max_attempts) == (None, None)
    assert (settings.seconds_per_attempt, settings.attempts) == (600, 10)
    assert settings.wire() == {}


def test_timeout_is_the_same_by_either_name() -> None:
    assert ModelSettings(timeout=3).seconds_per_attempt == 3
    over = ModelSettings(timeout_seconds=5).resolve(ModelSettings(timeout=3))
    assert (over.seconds_per_attempt, over.resolve({"timeout_seconds": 4}).timeout) == (3, None)


def test_reasoning_is_data_whatever_says_it() -> None:
    said = ModelSettings(reasoning=Reasoning(effort="low", summary="auto"))
    assert said.wire() == {"reasoning": {"effort": "low", "summary": "auto"}}
    short = said.resolve(ModelSettings(reasoning_effort="high"))
    assert short.reasoning_options == {"effort": "high"}
    again = short.resolve(ModelSettings(reasoning={"effort": "none"}))
    assert again.reasoning_options == {"effort": "none"}


def test_extra_args_of_a_run_are_added_to_those_of_the_agent() -> None:
    own = ModelSettings(extra_args={"a": 1, "b": 1}, extra_body={"x": 1})
    over = own.resolve(ModelSettings(extra_args={"b": 2}, extra_body={"y": 1}))
    assert (over.extra_args, over.extra_body) == ({"a": 1, "b": 2}, {"y": 1})


def test_every_setting_survives_the_wire() -> None:
    given = ModelSettings(
        reasoning={"effort": "low"},
        verbosity="low",
        truncation="auto",
        response_include=("message.output_text.logprobs",),
        top_logprobs=2,
        context_management=({"type": "compaction", "compact_threshold": 5},),
        extra_args={"service_tier": "flex"},
        extra_query={"v": 1},
        timeout=3,
    )
    snapshot = AgentSnapshot(name="a", settings=given)
    assert AgentSnapshot.model_validate(snapshot.wire()).settings == given


async def test_an_extra_argument_that_is_set_already_is_refused() -> None:
    settings = ModelSettings(temperature=0, extra_args={"temperature": 1})
    model = ResponsesModel("m", api_key="k", base_url="http://localhost:9")
    with pytest.raises(Exception, match="extra_args has 'temperature', which the request holds"):
        await model.respond(ModelRequest(model="m", settings=settings))


WRONG_SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"temperature": "hot"}, "temperature='hot'"),
    ({"verbosity": "loud"}, "verbosity='loud': input should be 'low', 'medium' or 'high'"),
    ({"truncation": "yes"}, "'auto' or 'disabled'"),
    ({"prompt_cache_retention": "1h"}, "'in_memory' or '24h'"),
    ({"reasoning": "low"}, "reasoning='low'"),
    ({"reasoning": {"effort": "low"}, "reasoning_effort": "low"}, "give one"),
    ({"timeout": 1, "timeout_seconds": 1}, "give one"),
    ({"timeout_seconds": 0}, "timeout_seconds=0"),
    ({"timeout_seconds": float("inf")}, "timeout_seconds=inf"),
    ({"max_attempts": 0}, "max_attempts=0"),
    ({"tool_choice": {"server_label": "s"}}, "tool_choice="),
    ({"response_include": "all"}, "response_include='all'"),
    ({"extra_headers": {"a": 1}}, "extra_headers.a=1"),
    ({"extra_body": {"a": object()}}, "extra_body=.*stored as JSON"),
    ({"extra_args": {"timeout": 1}}, "set the field timeout_seconds"),
    ({"retry": {"max_retries": -1}}, "retry.*greater than or equal to 0"),
    ({"preserve_raw_usage": True}, "does not serve preserve_raw_usage.*result.usage"),
]


@pytest.mark.parametrize(("given", "says"), WRONG_SETTINGS)
def test_settings_that_cannot_be_used_are_refused_with_what_would_fit(
    given: dict[str, Any], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        ModelSettings(**given)
    with pytest.raises(UserError, match=says):
        ModelSettings().resolve(given)
    with pytest.raises(UserError, match=says):
        Agent(name="a", model_settings=given)
    with pytest.raises(UserError, match=says):
        RunConfig(model_settings=given)  # type: ignore[arg-type]


def test_settings_may_be_given_in_the_order_of_the_agents_sdk() -> None:
    made: Any = ModelSettings
    names = [each.name for each in fields(TheirSettings)][:23]
    assert vars(made(*range(2))) == vars(ModelSettings(temperature=0, top_p=1))
    values: dict[str, Any] = {"temperature": 0.5, "tool_choice": "look", "max_tokens": 9}
    given = [values.get(name) for name in names]
    assert made(*given) == ModelSettings(**values)
    assert made(*given[:8], store=True) == ModelSettings(**values, store=True)
    with pytest.raises(UserError, match="at most 23 fields"):
        made(*[None] * 24)
    with pytest.raises(UserError, match="temperature twice"):
        made(0.5, temperature=0.5)


def test_settings_are_data_as_in_the_agents_sdk() -> None:
    given: dict[str, Any] = {"temperature": 0.5, "verbosity": "low", "extra_body": {"key": "k"}}
    ours, theirs = ModelSettings(**given), TheirSettings(**given)
    assert {name: ours.to_json_dict()[name] for name in given} == given
    shown = ours.to_traceable_dict()
    assert {name: shown[name] for name in theirs.to_traceable_dict()} == theirs.to_traceable_dict()
    assert "extra_body" not in shown
    assert ours.preserve_raw_usage is None


WRONG_CONFIGS: list[tuple[dict[str, Any], str]] = [
    ({"reasoning_item_id_policy": "keep"}, "reasoning_item_id_policy='keep'.*'preserve' or 'omit'"),
    (
        {"tool_not_found_behavior": "tell"},
        "tool_not_found_behavior='tell'.*'raise_error' or 'return_error_to_model'",
    ),
    ({"model": 5}, "model=5"),
    ({"model_provider": object()}, "get_model"),
    ({"model_settings": "x"}, "model_settings of a RunConfig.*'x'"),
    ({"nest_handoff_history": "yes"}, "nest_handoff_history='yes'"),
    ({"tracing_disabled": None}, "tracing_disabled=None"),
    ({"trace_id": 5}, "trace_id=5"),
    ({"trace_metadata": {"a": object()}}, "trace_metadata=.*JSON"),
    ({"handoff_input_filter": 5}, "handoff_input_filter=5.*callable"),
    ({"call_model_input_filter": "f"}, "call_model_input_filter='f'.*callable"),
    ({"input_guardrails": [print]}, "input_guardrail"),
    ({"tool_execution": {"max_function_tool_concurrency": 0}}, "concurrency must be at least 1"),
    (
        {"tool_execution": {"pre_approval_tool_input_guardrails": "yes"}},
        "guardrails must be a bool",
    ),
    ({"tool_execution": {"max_calls": 2}}, "Unknown run_config.tool_execution settings: max_calls"),
    ({"session_settings": {"limitt": 2}}, "Unknown session settings: limitt. Did you mean 'limit'"),
    ({"session_settings": {"limit": "a"}}, "limit='a'"),
    ({"session_settings": 5}, "session_settings=5"),
]


@pytest.mark.parametrize(("given", "says"), WRONG_CONFIGS)
async def test_a_run_config_that_cannot_be_used_is_refused_with_what_would_fit(
    given: dict[str, Any], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        RunConfig(**given)
    with pytest.raises(UserError, match=says):
        await Runner.run(Agent(name="a"), "q", run_config=given)


WRONG_RUNS: list[tuple[dict[str, Any], str]] = [
    ({"max_turns": "3"}, "max_turns"),
    ({"session": 5}, "session"),
    ({"task_id": 5}, "task_id must be a text"),
    ({"by": 5}, "by must be a text"),
    ({"runner": 5}, "runner must be an AgentRunner"),
    ({"run_config": 5}, "run_config must be"),
    ({"context": object()}, "context"),
    ({"error_handlers": [1]}, "error_handlers=.*'max_turns'"),
    ({"error_handlers": {"max_turn": print}}, "'max_turn'.*one of 'max_turns'"),
    ({"error_handlers": {"max_turns": 5}}, "'max_turns': 5"),
]


@pytest.mark.parametrize(("given", "says"), WRONG_RUNS)
async def test_a_run_that_cannot_be_made_is_refused_before_it_begins(
    given: dict[str, Any], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        await Runner.run(Agent(name="a"), "q", **given)


# ---- settings that go with a model's name: of which agents, in which tasks, and by which names

VERSIONS = ("", ".1", ".2", ".3", ".4", ".5", ".6", ".7")
KINDS = ("", "-mini", "-nano", "-pro", "-codex", "-chat-latest", "-sol", "-terra", "-luna")
DATES = ("", "-2026-01-31", "-26")
NAMES = [f"gpt-5{v}{kind}{date}" for v in VERSIONS for kind in KINDS for date in DATES]
OTHERS = ["gpt-4.1", "o3", "openai/gpt-5", "litellm/openai/gpt-5", "GPT-5", "ft:gpt-5:me", ""]

LOW: Json = {"reasoning": {"effort": "low"}, "verbosity": "low"}
NONE: Json = {"reasoning": {"effort": "none"}, "verbosity": "low"}
SHORT: Json = {"verbosity": "low"}


def asked(agent: Agent[Any], config: RunConfig | None = None) -> Json:
    """Return the settings of a run's model calls, as data."""
    began = AgentSnapshot.model_validate(agent.snapshot("m").wire())
    return began.settings_in(run_head("a", config or RunConfig())).wire()


def test_a_name_has_the_settings_that_the_agents_sdk_gives_it() -> None:
    for name in (*NAMES, *OTHERS):
        theirs = get_default_model_settings(name)
        effort = None if theirs.reasoning is None else {"effort": theirs.reasoning.effort}
        ours = ModelSettings(reasoning=effort, verbosity=theirs.verbosity)
        for prefix in ("", "chat:", "responses:"):
            assert default_settings(f"{prefix}{name}") == ours, name


def test_an_agent_without_settings_has_those_of_its_model() -> None:
    assert asked(Agent("a", model="gpt-5")) == LOW
    assert asked(Agent("a", model="gpt-4.1")) == {}
    assert asked(Agent("a", model=ScriptedModel(["x"], name="gpt-5"))) == {}
    assert asked(Agent("a", prompt=Prompt(id="p"))) == {}


def test_an_agent_without_a_model_has_those_of_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(Agent("a")) == SHORT
    monkeypatch.setenv("HOLDFAST_MODEL", "gpt-5.4")
    assert asked(Agent("a")) == NONE


@pytest.mark.parametrize("given", [ModelSettings(), ModelSettings(top_p=0.5), {}, {"top_p": 0.5}])
def test_settings_that_an_agent_is_given_are_all_that_it_has(given: Any) -> None:
    agent = Agent("a", model="gpt-5", model_settings=given)
    assert asked(agent) == ModelSettings(**dict(given)).wire()
    assert asked(agent, RunConfig(model="gpt-5.1")) == ModelSettings(**dict(given)).wire()


def test_the_model_of_a_run_brings_its_own() -> None:
    agent = Agent("a", model="gpt-5")
    assert asked(agent, RunConfig(model="gpt-5.6")) == NONE
    assert asked(agent, RunConfig(model="gpt-4.1")) == {}
    assert asked(agent, RunConfig(model=ScriptedModel(["x"], name="gpt-5"))) == {}
    assert asked(Agent("a", model="gpt-4.1"), RunConfig(model="gpt-5")) == LOW


@pytest.mark.parametrize("copied", [deepcopy, replace, Agent.clone])
def test_a_copy_of_an_agent_was_given_none_either(copied: Any) -> None:
    agent = Agent("a", model="gpt-5")
    assert asked(copied(agent)) == LOW
    assert agent.model_settings == ModelSettings() == copied(agent).model_settings
    assert repr(agent.model_settings) == repr(ModelSettings())
    assert asked(agent.clone(model="gpt-5.1")) == NONE
    own = agent.model_settings.resolve(ModelSettings(top_p=0.5))
    assert asked(agent.clone(model_settings=own)) == {"top_p": 0.5}


# ---- a key of a provider goes where the model's own key went, or the model is refused

OWN = AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="own")
AZURE = AsyncAzureOpenAI(
    azure_endpoint="http://127.0.0.1:9", api_version="2024-10-21", api_key="own"
)


def client_with_key(model: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncOpenAI:
    """Return the client that calls of a model use with a key of its provider."""
    monkeypatch.setenv("KEY_2", "second")
    found: AsyncOpenAI = _reached(model, "KEY_2", lambda _: None)._connection.client()
    return found


@pytest.mark.parametrize("client", [OWN, AZURE], ids=["own", "azure"])
async def test_a_client_of_the_caller_keeps_its_address(
    client: AsyncOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = OpenAIChatCompletionsModel("llama", client)
    used = client_with_key(model, monkeypatch)
    assert (type(used), used.api_key, used.base_url) == (type(client), "second", client.base_url)
    assert model._connection.client().api_key == "own"


async def test_the_default_client_of_the_process_keeps_its_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = default_client()
    set_default_openai_client(OWN)
    try:
        used = client_with_key(OpenAIChatCompletionsModel("llama"), monkeypatch)
    finally:
        _defaults.client = before
    assert (used.api_key, used.base_url) == ("second", OWN.base_url)


async def test_an_address_and_no_client_gets_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ChatCompletionsModel("llama", base_url="http://127.0.0.1:9/v1", api_key="own")
    used = client_with_key(model, monkeypatch)
    assert (used.api_key, str(used.base_url)) == ("second", "http://127.0.0.1:9/v1/")


async def test_a_stand_in_for_a_client_takes_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    class StandIn:
        class chat:  # noqa: N801  OpenAI's name
            class completions:  # noqa: N801  likewise
                @staticmethod
                async def create(**_: Any) -> None: ...

    model = OpenAIChatCompletionsModel("llama", StandIn())  # type: ignore[arg-type]
    with pytest.raises(UserError, match="Leave keys= out"):
        client_with_key(model, monkeypatch)


# ---- arguments and names of the Agents SDK that are taken as they are


def test_default_model_is_that_of_the_sdks_variable_unless_holdfasts_names_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HOLDFAST_MODEL", raising=False)
    monkeypatch.setenv("OPENAI_DEFAULT_MODEL", "GPT-4.1-nano")
    assert get_default_model() == OpenAIProvider().get_model(None).name == "gpt-4.1-nano"
    monkeypatch.setenv("HOLDFAST_MODEL", "gpt-5")
    assert get_default_model() == "gpt-5"


@pytest.mark.parametrize(("provider", "prefix"), [(OpenAIProvider, ""), (MultiProvider, "openai_")])
def test_a_provider_takes_what_holds_here_and_refuses_what_is_not_served(
    provider: Any, prefix: str
) -> None:
    held = dict.fromkeys(("strict_feature_validation", "buffer_streamed_tool_calls"), True)
    unused = {"use_responses_websocket": None, "agent_registration": None}
    provider(**{f"{prefix}{name}": given for name, given in {**held, **unused}.items()})
    for absent in ("use_responses_websocket", "agent_registration", "nonsense"):
        with pytest.raises(UserError, match=f"cannot have {absent}="):
            provider(**{f"{prefix}{absent}": True})


def test_key_for_traces_is_taken_and_not_kept() -> None:
    assert RunConfig(tracing={"api_key": "sk-of-traces"}).tracing is None
    with pytest.raises(UserError, match="tracing="):
        RunConfig(tracing={"include_task_and_turn_spans": False})


def test_response_of_a_model_of_the_programs_own_says_what_the_sdks_says() -> None:
    made = ModelResponse([], Usage(), "resp", request_id="req", raw_usage={"tokens": 1})
    assert (made.request_id, made.raw_usage) == ("req", {"tokens": 1})


@pytest.mark.parametrize("of", [dict, SimpleNamespace])
def test_item_of_a_result_gets_the_caller_of_its_call(of: Any) -> None:
    item: dict[str, Any] = {}
    ItemHelpers.copy_tool_call_caller(of(name="x"), item)
    assert item == {}
    ItemHelpers.copy_tool_call_caller(of(caller={"type": "program"}), item)
    assert item == {"caller": {"type": "program"}}


# ---- several models in place of one: for which failures the next is asked, and what is told of it

DOWN = ModelUnavailableError("Model 'a' is not available (503): no. The call is repeated later.")
BUSY = ModelUnavailableError("busy", retry_after=60, is_limit=True)
BRIEF = ModelUnavailableError("busy", retry_after=0.001, is_limit=True)
MALFORMED = ModelUnavailableError("cannot be read")
MALFORMED.usage = Usage(requests=1, input_tokens=7)
FORBIDDEN = ModelRequestError("refused", status=403)
NO_MONEY = ModelRequestError("insufficient_quota", status=429)
BAD = ModelRequestError("not like this", status=400)


def several(*scripts: list[Any]) -> tuple[FallbackModel, list[ScriptedModel]]:
    """Return a model of models, and these: "a", "b" and so on."""
    models = [ScriptedModel(each, name=name) for name, each in zip("abc", scripts, strict=False)]
    made = resolve_model(models)
    assert isinstance(made, FallbackModel)
    return made, models


def request_of(model: str = "a, b", **more: Any) -> ModelRequest:
    return ModelRequest(model=model, messages=(user("q"),), **more)


@pytest.mark.parametrize("error", [DOWN, BUSY, FORBIDDEN, NO_MONEY, ConnectionError("no")])
@pytest.mark.parametrize("streams", [False, True])
async def test_the_next_is_asked_and_the_answer_says_who_gave_it_and_why(
    error: Exception, *, streams: bool
) -> None:
    model, (first, second) = several([error], ["hello"])
    told: list[Delta] = []
    answer = await (
        model.stream(request_of(), told.append) if streams else model.respond(request_of())
    )
    assert (answer.text, answer.model, answer.asked) == ("hello", "b", "b")
    assert bool(told) is streams
    assert [each.requests[0].model for each in (first, second)] == ["a", "b"]
    [why] = answer.tried
    assert why.startswith("a: ")
    assert "repeated" not in why
    assert ModelAnswer.model_validate(answer.wire()).tried == (why,)


@pytest.mark.parametrize("error", [BAD, ModelRequestError("no key"), UserError("wrong")])
async def test_what_any_model_would_refuse_is_not_passed_on(error: HoldfastError) -> None:
    model, (_, second) = several([error], ["hello"])
    with pytest.raises(type(error), match=str(error)):
        await model.respond(request_of())
    assert not second.calls


async def test_a_short_limit_is_waited_for_once() -> None:
    model, (first, second) = several([BRIEF, "hello", BRIEF, BRIEF], ["there"])
    assert (await model.respond(request_of())).text == "hello"
    assert not second.calls
    assert (await model.respond(request_of())).text == "there"
    assert first.calls == 4


async def test_an_answer_that_cannot_be_used_counts_for_the_model_that_gave_it() -> None:
    model, (_, second) = several([MALFORMED], ["hello"])
    answer = await model.respond(request_of())
    assert (answer.unread, answer.model) == ("cannot be read", "a")
    assert answer.usage.input_tokens == 7
    assert not second.calls


async def test_nothing_is_passed_on_once_readers_were_told() -> None:
    class Broken(ScriptedModel):
        async def stream(self, request: ModelRequest, tell: Any) -> ModelAnswer:
            tell(Delta("text", "Hel"))
            return await super().respond(request)

    second = ScriptedModel(["there"], name="b")
    model: Any = resolve_model([Broken([DOWN], name="a"), second])
    with pytest.raises(ModelUnavailableError, match="503"):
        await model.stream(request_of(), lambda _: None)
    assert not second.calls


@pytest.mark.parametrize(
    ("scripts", "kind", "wait", "is_limit"),
    [
        (([BUSY], [DOWN]), ModelUnavailableError, None, False),
        (
            ([BUSY], [ModelUnavailableError("x", retry_after=30, is_limit=True)]),
            ModelUnavailableError,
            30,
            True,
        ),
        (([BUSY], [FORBIDDEN]), ModelUnavailableError, 60, True),
        (([DOWN], [BAD], ["never"]), ModelUnavailableError, None, False),
        (([FORBIDDEN], [FORBIDDEN]), ModelRequestError, None, False),
    ],
)
async def test_one_error_names_all_that_failed_and_has_the_shortest_wait(
    scripts: tuple[list[Any], ...], kind: type[Exception], wait: float | None, *, is_limit: bool
) -> None:
    model, _ = several(*scripts)
    with pytest.raises(kind, match=r"No model of several has answered. a: .*; b: ") as caught:
        await model.respond(request_of())
    error: Any = caught.value
    assert getattr(error, "retry_after", None) == wait
    assert getattr(error, "is_limit", False) is is_limit


async def test_a_conversation_that_a_provider_keeps_cannot_move() -> None:
    model, _ = several(["hello"], ["there"])
    with pytest.raises(UserError, match="cannot go on with another model"):
        await model.respond(request_of(previous_response_id="resp_1"))
    with pytest.raises(UserError, match=r"web_search, which only .* is one of several"):
        Agent(name="agent", model=["gpt-5", "gpt-5-mini"], tools=[WebSearchTool()])


@pytest.mark.parametrize(
    ("given", "sent"),
    [({}, [LOW, NONE, {}]), ({"model_settings": {"temperature": 0.5}}, [{"temperature": 0.5}] * 3)],
)
async def test_settings_go_with_the_name_that_has_them(
    given: dict[str, Any], sent: list[Json]
) -> None:
    names = ["gpt-5", "gpt-5.1", "offline"]
    models = [ScriptedModel([FORBIDDEN], name=name) for name in names]
    own = [default_settings(name) for name in names]
    snapshot = Agent(name="a", model=names, **given).snapshot("m").wire()
    began = AgentSnapshot.model_validate(snapshot)
    settings, same = (
        began.settings_in(run_head("a", each)) for each in (RunConfig(), RunConfig(model=names))
    )
    assert settings == same
    request = request_of(settings=settings)
    with pytest.raises(ModelRequestError):
        await FallbackModel(models, own, default_settings(tuple(names))).respond(request)
    assert [model.requests[0].settings.wire() for model in models] == sent


async def test_the_price_is_that_of_the_model_that_was_asked() -> None:
    model, _ = several([DOWN], ["hello"])
    answer = (await model.respond(request_of())).model_copy(update={"model": "b-2026"})
    counted = answer.model_copy(update={"usage": Usage(requests=1, input_tokens=1_000_000)})
    prices = Prices({"a": Price(input=5, output=5), "b": Price(input=3, output=3)})
    assert priced(counted, prices, model.name).usage.paid == 3


def test_a_list_is_checked_and_one_name_alone_is_that_model() -> None:
    assert Agent(name="a", model=["gpt-5"]).model == "gpt-5"
    assert resolve_model(["offline"]) is resolve_model("offline")
    assert resolve_model(["gpt-5", "offline"]).name == "gpt-5, offline"
    ring: list[Any] = ["gpt-5"]
    ring.append(ring)
    for wrong in ([], ["gpt-5", 5], ring):
        with pytest.raises(WrongTypeError, match="is not a model"):
            Agent(name="a", model=wrong)  # type: ignore[arg-type]
    with pytest.raises(HoldfastError, match="'nobody/'"):
        Agent(name="a", model=["gpt-5", "nobody/small"])
    assert run_head("a", RunConfig(model=["gpt-5", "offline"])).model == "gpt-5, offline"
