"""From a name to a model, and what importing costs."""

from typing import Any

import pytest

from holdfast.agents_sdk import get_default_model, get_default_model_settings, is_gpt_5_default
from holdfast.errors import InvalidArgumentError, ModelRequestError
from holdfast.models import (
    ChatCompletionsModel,
    Model,
    ModelAnswer,
    ModelRequest,
    OfflineModel,
    ResponsesModel,
    resolve_model,
)
from holdfast.models.resolve import default_settings
from holdfast.testing import ScriptedModel
from holdfast.testing.fake_api.replies import call
from holdfast.values.messages import ToolCall, Usage, user


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOLDFAST_MODEL", "HOLDFAST_MODEL_API", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("offline", OfflineModel, "offline"),
        ("gpt-5-mini", ResponsesModel, "gpt-5-mini"),
        ("chat:gpt-5-mini", ChatCompletionsModel, "gpt-5-mini"),
        ("responses:gpt-5-mini", ResponsesModel, "gpt-5-mini"),
        ("chat:of-mine:8b", ChatCompletionsModel, "of-mine:8b"),
        ("of-mine:8b", ResponsesModel, "of-mine:8b"),
        (None, ResponsesModel, "gpt-5-mini"),
    ],
)
def test_names(text: str | None, kind: type[Model], name: str) -> None:
    model = resolve_model(text)
    assert type(model) is kind
    assert model.name == name


def test_environment_names_model_and_api(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_MODEL", "offline")
    assert type(resolve_model(None)) is OfflineModel
    monkeypatch.setenv("HOLDFAST_MODEL", "of-mine:8b")
    monkeypatch.setenv("HOLDFAST_MODEL_API", "chat")
    assert type(resolve_model(None)) is ChatCompletionsModel
    assert type(resolve_model("responses:x")) is ResponsesModel


def test_unusable_names_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("", " ", "chat:"):
        with pytest.raises(InvalidArgumentError, match="is empty"):
            resolve_model(name)
    monkeypatch.setenv("HOLDFAST_MODEL_API", "soap")
    with pytest.raises(InvalidArgumentError, match="'soap'"):
        resolve_model("x")


async def test_scripted_model_gives_what_it_was_told() -> None:
    answer = ModelAnswer(message=user("given"), usage=Usage(requests=1, input_tokens=5))
    calls = (ToolCall(id="", name="a"), ToolCall(id="own", name="b"))
    model = ScriptedModel([ToolCall(id="", name="x"), calls, answer, ValueError("no"), "bye"])
    request = ModelRequest(model="m")
    first = await model.respond(request)
    assert (first.message.calls[0].id, first.finish) == ("call_1", "tool_calls")
    second = await model.respond(request)
    assert [call.id for call in second.message.calls] == ["call_2", "own"]
    assert await model.respond(request) is answer
    with pytest.raises(ValueError, match="no"):
        await model.respond(request)
    last = await model.respond(request)
    assert (last.text, last.usage, last.finish) == ("bye", Usage(requests=1), "stop")
    assert (model.calls, model.left, model.requests) == (5, 0, [request] * 5)
    with pytest.raises(ModelRequestError, match="exhausted: call 6"):
        await model.respond(request)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ([call("add", {})], "An answer of a script is .*FakeOpenAI"),  # a reply of the fake API
        (["first", ("a", "b")], "got .'a', 'b'."),
        ([None], "got None"),
        ("Hello", "A script is a list of answers .* got 'Hello'"),  # not one answer a letter
        (5, "A script is a list of answers"),
    ],
)
def test_a_script_of_what_is_no_answer_is_refused(script: Any, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        ScriptedModel(script)


@pytest.mark.parametrize(
    "name",
    [
        "anthropic:claude-sonnet-4-5",
        "anthropic/claude-sonnet-4-5",
        "claude-sonnet-4-5",
        "chat:claude-sonnet-4-5",
        "responses:claude-sonnet-4-5",
        "gemini-2.5-pro",
        "us.anthropic.claude-sonnet-4-5-v1:0",
        "glm-4.6",
        "llama-3.3-70b",
        "llama3:8b",
        "Phi-4",
        "google-gla:gemini-2.5-pro",
        "gemini/gemini-2.5-pro",
        "vertex_ai/gemini-2.5-pro",
        "groq:llama-3.3-70b",
        "mistral-large-latest",
        "deepseek-chat",
        "grok-4",
        "Claude-Opus",
    ],
)
def test_a_model_of_another_provider_is_not_sent_to_openai(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidArgumentError, match=r"OPENAI_BASE_URL.*chat:NAME.*Model object"):
        resolve_model(name)
    monkeypatch.setenv("OPENAI_BASE_URL", "https://eu.api.openai.com/v1")
    with pytest.raises(InvalidArgumentError, match="would be asked for at OpenAI"):
        resolve_model(name)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:11434/v1")
    assert resolve_model(name).name == name.removeprefix("chat:").removeprefix("responses:")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", True),  # the default is gpt-5-mini
        ("gpt-5.1", True),
        ("responses:GPT-5", True),
        ("openai/gpt-5-nano", True),
        ("gpt-5-chat-latest", False),
        ("gpt-4.1-mini", False),
        ("offline", False),
    ],
)
def test_default_model_may_be_of_the_gpt_5_family(
    monkeypatch: pytest.MonkeyPatch, name: str, *, expected: bool
) -> None:
    monkeypatch.setenv("HOLDFAST_MODEL", name)
    assert is_gpt_5_default() is expected
    assert get_default_model() == (name or "gpt-5-mini")
    assert get_default_model_settings() == get_default_model_settings(get_default_model())
    assert get_default_model_settings(name) == default_settings(name)
