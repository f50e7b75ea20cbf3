"""What the settings and arguments of a run are in the head of its task, and its budget."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast import (
    Agent,
    AgentRunner,
    Budget,
    ModelSettings,
    RunConfig,
    Runner,
    input_guardrail,
    output_guardrail,
)
from holdfast.activities.data.registry import Registry
from holdfast.activities.tools.child_start import child_head
from holdfast.agents.run_config import ToolExecutionConfig, as_run_config
from holdfast.archive.archive import Archive
from holdfast.client.runner.runner import checked_call
from holdfast.errors import TaskExistsError
from holdfast.task.data.head import AGENTS_SDK, STEPS, RunRules, TaskHead
from holdfast.testing import ScriptedModel
from holdfast.values.code.code_refs import known


@dataclass
class Context:
    """A context object."""

    user: str = ""


class Provider:
    """Makes models of names."""

    def get_model(self, name: str) -> ScriptedModel:
        """Make one."""
        return ScriptedModel([name])


def code(*_: Any) -> Any:
    """Stand for any function that a run is given."""


MODEL, PROVIDER = ScriptedModel([]), Provider()
CHECKS_INPUT, CHECKS_OUTPUT = input_guardrail(code), output_guardrail(code)

TELLS_MODEL = "return_error_to_model"

SETTINGS: tuple[tuple[str, Any, str, Any], ...] = (
    ("model", "gpt-5", "model", "gpt-5"),
    ("model_settings", ModelSettings(top_p=1), "settings", ModelSettings(top_p=1)),
    ("nest_handoff_history", True, "run.nests_history", True),
    ("tracing_disabled", True, "run.traced", False),
    ("trace_include_sensitive_data", False, "run.sensitive", False),
    ("workflow_name", "orders", "run.workflow_name", "orders"),
    ("trace_id", "t1", "run.trace_id", "t1"),
    ("group_id", "g1", "run.group_id", "g1"),
    ("trace_metadata", {"order": 7}, "run.trace_metadata", {"order": 7}),
    ("max_function_tool_concurrency", 2, "run.tool_concurrency", 2),
    ("pre_approval_tool_input_guardrails", True, "run.guards_before_approval", True),
    ("tool_not_found_behavior", TELLS_MODEL, "run.tool_not_found", TELLS_MODEL),
    ("max_output_attempts", 5, "run.output_attempts", 5),
    ("reasoning_item_id_policy", "omit", "run.reasoning_ids", "omit"),
    ("output_guardrail_blocked_message", "blocked", "run.blocked_message", "blocked"),
)
"""Each setting that is data, a value of it, and the same in a head."""

CODE: tuple[tuple[str, Any, str], ...] = (
    ("model", MODEL, "run.model"),
    ("model_provider", PROVIDER, "run.model_provider"),
    ("handoff_input_filter", code, "run.handoff_filter"),
    ("handoff_history_mapper", code, "run.history_mapper"),
    ("input_guardrails", [CHECKS_INPUT], "run.input_guardrails"),
    ("output_guardrails", [CHECKS_OUTPUT], "run.output_guardrails"),
    ("call_model_input_filter", code, "run.model_input_filter"),
    ("tool_error_formatter", code, "run.tool_error_formatter"),
    ("output_guardrail_blocked_message", code, "run.blocked_formatter"),
)
"""Each setting that is code, and where a head refers to it."""

STAYS = {
    "session_input_callback",
    "session_settings",
    "max_dollars",
    "tool_name_collision_policy",
    "tracing",
    "sandbox",
}
"""Settings that the calling process alone uses, that of the task's budget, and those not served."""

OF_TOOLS = {each.name for each in fields(ToolExecutionConfig)}


def config_of(name: str, value: Any) -> RunConfig:
    """Make settings of which one is given."""
    given: dict[str, Any] = {name: value}
    return as_run_config({"tool_execution": given} if name in OF_TOOLS else given)


class Recording(AgentRunner):
    """Keeps what a run would begin its task with."""

    head: TaskHead
    budget: Budget | None
    code: dict[str, Any]

    @property
    def archive(self) -> Archive:
        """No archive: a text is not stored."""
        return cast("Archive", None)

    async def run_to_end(self, input: str | None, head: TaskHead, **given: Any) -> None:
        """Keep it, and begin nothing."""
        self.head, self.budget = head, given["budget"]
        self.code = {ref: known(ref) for ref in head.run.code}
        raise TaskExistsError(given["task_id"])


async def begun(config: RunConfig, **arguments: Any) -> Recording:
    """Return what a call of `Runner.run` begins its task with."""
    runner = Recording(agent="low")
    with pytest.raises(TaskExistsError):
        await Runner.run(Agent(name="low"), "q", runner=runner, run_config=config, **arguments)
    return runner


CALLER = TaskHead(
    agent="top",
    snapshot="of top",
    dialect=STEPS,
    model="of the caller",
    settings=ModelSettings(top_p=0.5),
    run=RunRules(
        agent="local:top",
        context="module:Context",
        error_handlers={"max_turns": "module:handler"},
        trace_id="t0",
        trace_parent="span",
        group_id="g0",
        blocked_message="of the caller",
        streams=True,
    ),
)
"""The head of a task whose model calls an agent as a tool."""


def nested(config: RunConfig | None, path: Path) -> tuple[TaskHead, Registry]:
    """Return the head of a call of an agent as a tool, and the code that its workers have."""
    tool = Agent(name="low").as_tool(run_config=config)
    registry = Registry([Agent(name="top", tools=[tool])], Archive(path))
    return child_head(tool, CALLER, registry), registry


async def of_runner(config: RunConfig, _path: Path) -> tuple[TaskHead, Callable[[str], Any]]:
    """Return the head of a run by `Runner.run`, and what finds its code."""
    runner = await begun(config)
    return runner.head, runner.code.__getitem__


async def of_agent_tool(config: RunConfig, path: Path) -> tuple[TaskHead, Callable[[str], Any]]:
    """Return the head of a run by a call of an agent as a tool, and what finds its code."""
    head, registry = nested(config, path)
    return head, registry.code


Head = Callable[[RunConfig, Path], Awaitable[tuple[TaskHead, Callable[[str], Any]]]]
both = pytest.mark.parametrize("begin", [of_runner, of_agent_tool])


@both
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: str(setting[0]))
async def test_a_setting_that_is_data_is_in_the_head(
    begin: Head, setting: tuple[str, Any, str, Any], tmp_path: Path
) -> None:
    name, value, place, data = setting
    usual, _ = await begin(RunConfig(), tmp_path)
    head, _ = await begin(config_of(name, value), tmp_path)
    assert attrgetter(place)(usual) != data
    assert attrgetter(place)(head) == data


@both
@pytest.mark.parametrize(("name", "thing", "place"), CODE)
async def test_a_setting_that_is_code_is_found_by_the_reference_in_the_head(
    begin: Head, name: str, thing: Any, place: str, tmp_path: Path
) -> None:
    head, find = await begin(config_of(name, thing), tmp_path)
    refs = attrgetter(place)(head)
    found = find(refs) if isinstance(refs, str) else [find(ref) for ref in refs]
    assert (found, head.model) == (thing, "")


def test_every_setting_of_a_run_is_in_the_head_or_stays_with_the_caller() -> None:
    every = {each.name for each in fields(RunConfig)} - {"tool_execution"} | OF_TOOLS
    assert {row[0] for row in (*SETTINGS, *CODE)} == every - STAYS


async def test_arguments_of_a_run_are_in_the_head_and_the_budget() -> None:
    given = await begun(
        RunConfig(), context=Context(), error_handlers={"max_turns": code}, max_turns=3
    )
    rules = given.head.run
    assert [given.code[rules.context], given.code[rules.error_handlers["max_turns"]]] == [
        Context,
        code,
    ]
    assert given.budget == Budget(max_turns=3, on_exceeded="fail")
    assert (await begun(RunConfig(), max_turns=None)).budget is None
    assert (given.head.agent, given.head.dialect, rules.streams) == ("low", AGENTS_SDK, False)
    assert checked_call(Agent(name="low"), "q", {}, streams=True).head.run.streams


def test_an_agent_tool_without_settings_has_those_of_the_calling_run(tmp_path: Path) -> None:
    head, _ = nested(None, tmp_path)
    own: dict[str, object] = {"error_handlers": {}, "streams": False, "inherits": True}
    assert head == TaskHead(
        agent="low",
        dialect=STEPS,
        model=CALLER.model,
        settings=CALLER.settings,
        run=CALLER.run.model_copy(update=own),
    )


def test_an_agent_tool_with_settings_shares_context_and_trace_with_the_calling_run(
    tmp_path: Path,
) -> None:
    head, _ = nested(RunConfig(tracing_disabled=True), tmp_path)
    shared = ("agent", "context", "trace_id", "trace_parent", "group_id")
    rules = {name: getattr(CALLER.run, name) for name in shared}
    assert head == TaskHead(agent="low", dialect=STEPS, run=RunRules(**rules, traced=False))
