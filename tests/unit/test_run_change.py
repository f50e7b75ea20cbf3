"""Settings that a run is given after it has begun: as data, and in its task."""

from dataclasses import fields
from typing import Any, get_args

import pytest

from holdfast import ModelSettings, RunConfig
from holdfast.agents.runs.teams import run_head
from holdfast.client.runner.resumed_task import SETTINGS, settings_given
from holdfast.models.base import ModelAnswer
from holdfast.task.data.children import ParentRef
from holdfast.task.data.commands import Command, RunRequest
from holdfast.task.data.head import AGENTS_SDK, RunChange, RunRules, RunSetting, TaskHead
from holdfast.task.data.records import JournalEntry
from holdfast.task.data.state import TaskInput
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.requests.command_effects import obey
from holdfast.values.messages import assistant

ONLY_AT_THE_BEGINNING = {
    "input_guardrails",
    "output_guardrails",
    "session_input_callback",
    "session_settings",
    "tracing_disabled",
    "trace_include_sensitive_data",
    "workflow_name",
    "trace_id",
    "group_id",
    "trace_metadata",
    "tool_name_collision_policy",
    "max_dollars",
    "tracing",
    "sandbox",
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
    assert (after.run.tool_not_found, after.run.reasoning_ids) == (
        "return_error_to_model",
        "preserve",
    )
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
