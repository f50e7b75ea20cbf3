"""Arguments and names of the Agents SDK that are taken as they are."""

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast import RunConfig, Usage, UserError
from holdfast.agents_sdk import ItemHelpers, ModelResponse, MultiProvider, OpenAIProvider
from holdfast.models.resolve import get_default_model


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
