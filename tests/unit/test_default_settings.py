"""Settings that go with a model's name: of which agents, in which tasks, and by which names."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from agents.models.default_models import get_default_model_settings

from holdfast import Agent, ModelSettings, RunConfig
from holdfast.agents.runs.teams import run_head
from holdfast.agents_sdk import Prompt
from holdfast.models.resolve import default_settings
from holdfast.task.data.head import AgentSnapshot
from holdfast.testing import ScriptedModel
from holdfast.values.base import Json

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
