"""Several models in place of one: for which failures the next is asked, and what is told of it."""

from typing import Any

import pytest

from holdfast import Agent, RunConfig
from holdfast.agents.runs.teams import run_head
from holdfast.agents_sdk import WebSearchTool
from holdfast.errors import (
    HoldfastError,
    ModelRequestError,
    ModelUnavailableError,
    UserError,
    WrongTypeError,
)
from holdfast.models import ModelAnswer, ModelRequest, resolve_model, user
from holdfast.models.base import Delta
from holdfast.models.fallbacks import FallbackModel
from holdfast.models.prices import Price, Prices, priced
from holdfast.models.resolve import default_settings
from holdfast.task.data.head import AgentSnapshot
from holdfast.testing import ScriptedModel
from holdfast.values.base import Json
from holdfast.values.messages import Usage
from tests.unit.test_settings import LOW, NONE

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


def asked(model: str = "a, b", **more: Any) -> ModelRequest:
    return ModelRequest(model=model, messages=(user("q"),), **more)


@pytest.mark.parametrize("error", [DOWN, BUSY, FORBIDDEN, NO_MONEY, ConnectionError("no")])
@pytest.mark.parametrize("streams", [False, True])
async def test_the_next_is_asked_and_the_answer_says_who_gave_it_and_why(
    error: Exception, *, streams: bool
) -> None:
    model, (first, second) = several([error], ["hello"])
    told: list[Delta] = []
    answer = await (model.stream(asked(), told.append) if streams else model.respond(asked()))
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
        await model.respond(asked())
    assert not second.calls


async def test_a_short_limit_is_waited_for_once() -> None:
    model, (first, second) = several([BRIEF, "hello", BRIEF, BRIEF], ["there"])
    assert (await model.respond(asked())).text == "hello"
    assert not second.calls
    assert (await model.respond(asked())).text == "there"
    assert first.calls == 4


async def test_an_answer_that_cannot_be_used_counts_for_the_model_that_gave_it() -> None:
    model, (_, second) = several([MALFORMED], ["hello"])
    answer = await model.respond(asked())
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
        await model.stream(asked(), lambda _: None)
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
        await model.respond(asked())
    error: Any = caught.value
    assert getattr(error, "retry_after", None) == wait
    assert getattr(error, "is_limit", False) is is_limit


async def test_a_conversation_that_a_provider_keeps_cannot_move() -> None:
    model, _ = several(["hello"], ["there"])
    with pytest.raises(UserError, match="cannot go on with another model"):
        await model.respond(asked(previous_response_id="resp_1"))
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
    request = asked(settings=settings)
    with pytest.raises(ModelRequestError):
        await FallbackModel(models, own, default_settings(tuple(names))).respond(request)
    assert [model.requests[0].settings.wire() for model in models] == sent


async def test_the_price_is_that_of_the_model_that_was_asked() -> None:
    model, _ = several([DOWN], ["hello"])
    answer = (await model.respond(asked())).model_copy(update={"model": "b-2026"})
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
