"""What the settings and arguments of a run are in the head of its task, and its budget."""

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from operator import attrgetter
from pathlib import Path
from typing import Any, cast, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from holdfast.agents.runs.teams import run_head
from holdfast.archive.archive import Archive
from holdfast.client.runner.resumed_task import SETTINGS, settings_given
from holdfast.client.runner.runner import checked_call
from holdfast.errors import TaskExistsError
from holdfast.models.base import ModelAnswer
from holdfast.task.data.children import ParentRef
from holdfast.task.data.commands import Command, Refusal, RunRequest, decode
from holdfast.task.data.head import AGENTS_SDK, STEPS, RunChange, RunRules, RunSetting, TaskHead
from holdfast.task.data.records import JournalEntry
from holdfast.task.data.state import TaskInput
from holdfast.task.data.undo import UndoRequest
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.requests.command_effects import obey
from holdfast.testing import ScriptedModel
from holdfast.values.code.code_refs import known
from holdfast.values.messages import assistant
from holdfast.values.runs.verbs import NAMES as VERB_NAMES
from holdfast.values.runs.verbs import VERBS, Verb
from tests.support.drawn import SCALARS, json_of


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

DATA: tuple[tuple[str, Any, str, Any], ...] = (
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
@pytest.mark.parametrize("setting", DATA, ids=lambda setting: str(setting[0]))
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
    assert {row[0] for row in (*DATA, *CODE)} == every - STAYS


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


# ---- settings that a run is given after it has begun: as data, and in its task

ONLY_AT_THE_BEGINNING = STAYS | {
    "input_guardrails",
    "output_guardrails",
    "tracing_disabled",
    "trace_include_sensitive_data",
    "workflow_name",
    "trace_id",
    "group_id",
    "trace_metadata",
}
"""Settings that a run keeps; each is named in docs/runner_reference.md, or not served."""

OLD = TaskHead(
    agent="a",
    dialect=AGENTS_SDK,
    model="old",
    run=RunRules(
        tool_error_formatter="m:old",
        error_handlers={"max_turns": "m:old"},
        tool_concurrency=2,
        group_id="g",
    ),
)


def head(**settings: Any) -> TaskHead:
    return run_head("a", RunConfig(**settings))


def change(*names: RunSetting, model: str = "", **rules: Any) -> RunChange:
    return RunChange(names=names, model=model, run=RunRules(**rules))


def ledger(of: TaskHead = OLD, **given: Any) -> Ledger:
    return Ledger(TaskInput(head=of, input="q", **given), task_id="t", now=1.0)


def configure(task: Ledger, given: RunChange) -> str:
    return obey(task, Command(id="c", verb="configure", by="kim", body=given.wire()), now=2.0)


def test_every_setting_of_a_run_may_change_or_is_listed_as_one_that_stays() -> None:
    every = {each.name for each in fields(RunConfig)} | {"error_handlers"}
    assert {*get_args(RunSetting)} == every - ONLY_AT_THE_BEGINNING == {*SETTINGS}


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({}, ()),
        ({"run_config": None, "error_handlers": None, "max_turns": 3}, ()),
        ({"run_config": RunConfig()}, ()),
        ({"run_config": RunConfig(group_id="g", model="m")}, ("model",)),
        ({"run_config": {"group_id": "g", "model": None}}, ("model",)),
        ({"error_handlers": {}}, ("error_handlers",)),
    ],
)  # fmt: skip
def test_what_a_call_gives_is_what_it_says_otherwise(
    given: dict[str, Any], names: tuple[str, ...]
) -> None:
    assert settings_given(given) == names


def test_only_what_differs_is_a_change() -> None:
    before = head(reasoning_item_id_policy="omit", model_settings=ModelSettings(top_p=0.5))
    given = head(tool_not_found_behavior="return_error_to_model", model_settings={"top_p": 0.5})
    found = RunChange.between(before, given, SETTINGS)
    assert found.names == ("tool_not_found_behavior", "reasoning_item_id_policy")
    after = found.applied(before)
    assert (after.run.tool_not_found, after.run.reasoning_ids) == (TELLS_MODEL, "preserve")
    assert RunChange.between(after, given, SETTINGS).names == ()
    some = RunChange.between(before, given, ["model_settings", "tool_not_found_behavior"])
    assert some.names == ("tool_not_found_behavior",)


def test_a_change_replaces_what_it_names_and_nothing_else() -> None:
    given = change("error_handlers", "tool_error_formatter", tool_concurrency=9)
    after = given.applied(OLD)
    assert (after.run.error_handlers, after.run.tool_error_formatter) == ({}, "")
    assert (after.run.tool_concurrency, after.run.group_id, after.model) == (2, "g", "old")
    assert RunChange.model_validate(given.wire()).applied(OLD) == after


def test_of_two_changes_the_newer_holds() -> None:
    one = change("tool_error_formatter", "model", model="one", tool_error_formatter="m:one")
    two = change("tool_error_formatter", "tool_execution", tool_error_formatter="m:two")
    both = two.after(one)
    assert both.applied(OLD) == two.applied(one.applied(OLD))
    assert set(both.names) == {"tool_error_formatter", "model", "tool_execution"}
    assert one.after(None) == one


def test_a_task_has_what_it_was_given_and_says_so_to_its_activities() -> None:
    task = ledger()
    task.begin(RunRequest(), now=2.0)
    was = task.advance_input(1, now=2.0).head
    assert (task.changed_head, bool(was)) == ("", True)
    assert not configure(task, change("tool_error_formatter", tool_error_formatter="m:new"))
    assert task.head.run.tool_error_formatter == "m:new"
    assert task.changed_head == task.advance_input(1, now=2.0).head != was
    carried = TaskInput(head=OLD, input="q", carried=task.carried())
    assert Ledger(carried, task_id="t", now=3.0).head == task.head


def test_a_nested_run_takes_what_it_inherits() -> None:
    given = change(
        "error_handlers",
        "tool_error_formatter",
        error_handlers={"max_turns": "m:new"},
        tool_error_formatter="m:new",
    )
    of = OLD.model_copy(update={"run": OLD.run.model_copy(update={"inherits": True})})
    nested = ledger(of, parent=ParentRef(task="p"))
    assert not configure(nested, given)
    assert nested.head.run.tool_error_formatter == "m:new"
    assert nested.head.run.error_handlers == OLD.run.error_handlers
    apart = ledger(parent=ParentRef(task="p"))
    assert "settings of its own" in configure(apart, given)
    assert apart.head == OLD


def test_another_model_is_refused_in_the_middle_of_a_step_and_taken_after_it() -> None:
    task = ledger()
    task.begin(RunRequest(), now=2.0)
    given = change("model", model="new")
    said = JournalEntry(request="r", answer=ModelAnswer(message=assistant("hm")))
    opened = task.at(1)
    task.s.opens = (opened.model_copy(update={"journal": (said,)}),)
    assert configure(task, given).startswith("Step 's1' has asked old already, and is not over.")
    assert not configure(task, change("model", model="old"))
    task.s.opens = ()
    assert not configure(task, given)
    assert task.head.model == "new"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "names must say which settings: model, "),
        ({"names": ["max_turns"]}, "names.0: "),
        ({"names": ["model_settings"], "settings": {"top_p": "x"}}, "settings: "),
        ({"names": ["model"], "run": {"retry_policy": "m:f"}}, "run.retry_policy: "),
        ({"names": ["model"], "settings": {}}, "settings: of the settings in names, none "),
    ],
)
def test_what_is_no_change_is_refused(body: dict[str, Any], text: str) -> None:
    task = ledger()
    assert obey(task, Command(id="c", verb="configure", body=body), now=2.0).startswith(text)
    assert task.head == OLD


def test_what_is_added_to_requests_is_not_kept_in_the_ledger() -> None:
    settings = ModelSettings(top_p=0.5, extra_headers={"X-Key": "secret"})
    given = RunChange(names=("model_settings",), settings=settings)
    shown = Command(verb="configure", body=given.wire()).shown
    assert shown["settings"] == {"top_p": 0.5}
    task = ledger()
    assert not configure(task, given)
    assert task.head.settings == settings


# ---- reading commands: whatever comes, nothing is raised

JSON = json_of(SCALARS | st.floats())
NEAR = st.fixed_dictionaries(
    {},
    optional={
        "id": st.text() | JSON,
        "by": st.text() | JSON,
        "branch": st.text() | JSON,
        "reason": st.text() | JSON,
        "more": JSON,
    },
)
NAMES = st.sampled_from(VERB_NAMES)


@given(st.text(max_size=20) | NAMES, st.lists(st.binary(max_size=50), max_size=3))
def test_bytes_of_any_kind_are_read_without_an_error(name: str, payloads: list[bytes]) -> None:
    assert isinstance(decode(name, payloads), Refusal | Command)


@given(NAMES, NEAR)
def test_what_is_nearly_a_command_is_read_without_an_error(name: str, data: dict[str, Any]) -> None:
    got = decode(name, [json.dumps(data).encode()])
    assert len(got.id) <= 200
    assert len(got.reason) <= 2000
    got.model_dump_json()  # and it can be written down again


@given(st.text(max_size=200), st.sampled_from(["pause", "resume", "abandon"]))
def test_a_command_is_read_as_it_was_sent(identity: str, verb: Verb) -> None:
    sent = Command(id=identity, verb=verb, by="ann", branch="2", body={"reason": "lunch"})
    got = decode(verb, [json.dumps(sent.sent()).encode()])
    assert got == sent
    assert got.reason == "lunch"


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_knows_the_fields_of_its_description_and_no_others(verb: Verb) -> None:
    named = set(re.findall(r'(?<!: )"(\w+)"', VERBS[verb].body.partition(" or {")[0]))
    assert not Command(verb=verb, body=dict.fromkeys(named)).misspelt
    wrong = Command(verb=verb, body={**dict.fromkeys(named), "bye": "ann"}).misspelt
    assert wrong.startswith(f"Unknown fields of {verb!r}: bye. Did you mean 'by'? There are: ")


def test_an_update_notes_fields_that_it_does_not_have_and_forgets_none_that_it_has() -> None:
    read = UndoRequest.model_validate_json('{"too": 0, "to": 3, "unknown": ["x"]}')
    assert (read.to, read.unknown) == (3, ("too", "unknown"))
    asked = UndoRequest(to=3, by="ann")
    assert (asked.wire(), asked.unknown) == ({"to": 3, "by": "ann"}, ())
    assert UndoRequest.model_validate(asked.wire()) == asked


def test_a_refusal_says_why() -> None:
    cases = {
        b"[1]": "JSON object",
        b'"be brief"': VERBS["pause"].body,
        b"null": "JSON object",
        b"nonsense": "not JSON",
        b'{"id":7}': "id",
        b'{"by":["ann"]}': "by",
        b'{"id":"\\ud800"}': "surrogate",
    }
    for data, word in cases.items():
        got = decode("pause", [data])
        assert isinstance(got, Refusal)
        assert got.verb == "pause"
        assert word in got.reason
    unknown = decode("explode", [b"{}"])
    assert isinstance(unknown, Refusal)
    assert "'explode'" in unknown.reason
    assert "feedback" in unknown.reason
