"""The public names of the Agents SDK: each is here, or is refused with what to use instead."""

import importlib
import re
import sys

import agents
import agents.extensions.memory
import openai
import pytest

import holdfast
from holdfast import agents_sdk
from holdfast.agents_sdk.absent_names import ABSENT, BESIDE, LENT, instead_of
from tests.packaging.checkout import ROOT, run_python


@pytest.mark.parametrize(("name", "said"), sorted((ABSENT | BESIDE).items()))
def test_name_is_refused_with_what_to_use_instead(name: str, said: str) -> None:
    with pytest.raises(ImportError, match=re.escape(said)):
        exec(f"from holdfast.agents_sdk import {name}")


def test_only_names_that_are_missing_are_refused() -> None:
    assert sorted(ABSENT) == sorted(set(agents.__all__) - set(agents_sdk.__all__))


@pytest.mark.parametrize("name", ["ToolOutputTrimmer", *agents.extensions.memory.__all__])
def test_sessions_of_the_sdk_are_lent_by_it_or_it_is_said_what_to_install(name: str) -> None:
    module, installed = LENT[name]
    assert name not in agents_sdk.__all__
    try:
        theirs = getattr(importlib.import_module(module), name)
    except ImportError:
        with pytest.raises(ImportError, match=re.escape(f"run pip install {installed}.")):
            exec(f"from holdfast.agents_sdk import {name}")
        assert not hasattr(agents_sdk, name)
    else:
        assert getattr(agents_sdk, name) is theirs


def test_without_the_sdk_it_is_said_that_it_must_be_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "agents.extensions.memory", None)
    said = "no EncryptedSession: it is that of the Agents SDK, which cannot be imported"
    with pytest.raises(ImportError, match=said) as raised:
        exec("from holdfast.agents_sdk import EncryptedSession")
    assert "run pip install 'openai-agents[encrypt]'." in str(raised.value)
    assert isinstance(raised.value.__cause__, ImportError)
    with pytest.raises(AttributeError, match="run pip install 'openai-agents"):
        _ = agents_sdk.EncryptedSession


def test_the_sdk_is_imported_only_for_a_name_that_it_lends() -> None:
    code = (
        "import sys, holdfast.agents_sdk; before = 'agents' in sys.modules\n"
        "from holdfast.agents_sdk import AdvancedSQLiteSession\n"
        "print(before, 'agents' in sys.modules)"
    )
    assert run_python(code, cwd=ROOT) == "False True"


MODULES = (
    "decorators extensions extensions.experimental.codex"
    " extensions.experimental.hosted_multi_agent extensions.memory handoffs mcp memory models"
    " realtime realtime.testing run run_config sandbox sandbox.capabilities sandbox.entries"
    " sandbox.sandboxes testing testing.sandbox tracing voice voice.testing"
)


@pytest.mark.parametrize("module", MODULES.split())
def test_public_names_of_a_module_of_the_sdk_are_here_or_refused(module: str) -> None:
    names = importlib.import_module(f"agents.{module}").__all__
    here = {*agents_sdk.__all__, *LENT}
    told = [name for name in names if name in here or instead_of(name)]
    assert told == [name for name in names if not name.startswith("_")]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("RealtimeSessionEvent", "no voices"),
        ("handoff_filters", "or from holdfast import agents_sdk as handoff_filters"),
        ("ModelStep", "from agents.testing import ModelStep"),
        ("CodexOptions", "give the agent a tool that runs it"),
        ("UnixLocalSandboxClient", "no sandboxes"),
    ],
)
def test_what_is_told_of_a_name_names_what_serves(name: str, said: str) -> None:
    with pytest.raises(ImportError, match=said):
        exec(f"from holdfast.agents_sdk import {name}")


def test_types_of_a_runs_functions_and_its_default_turns_are_names() -> None:
    def own(data: agents_sdk.CallModelData[str]) -> agents_sdk.ModelInputData:
        return data.model_data

    edit: agents_sdk.CallModelInputFilter = own
    join: agents_sdk.SessionInputCallback = lambda history, new: [*history, *new]  # noqa: E731
    config = holdfast.RunConfig(call_model_input_filter=edit, session_input_callback=join)
    assert config.call_model_input_filter is own
    assert agents.run.DEFAULT_MAX_TURNS == agents_sdk.DEFAULT_MAX_TURNS


@pytest.mark.parametrize("package", ["holdfast.mcp", "holdfast.models"])
def test_hint_to_another_package_is_right(package: str) -> None:
    named = [name for name, said in BESIDE.items() if f"from {package} import" in said]
    assert named
    assert [name for name in named if not hasattr(importlib.import_module(package), name)] == []


def test_a_model_has_its_client_where_programs_of_the_sdk_look() -> None:
    client = openai.AsyncOpenAI(base_url="http://localhost:1/v1", api_key="any")
    for kind in (agents_sdk.OpenAIResponsesModel, agents_sdk.OpenAIChatCompletionsModel):
        assert vars(kind(model="m", openai_client=client))["_client"] is client
