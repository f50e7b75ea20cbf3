"""Commands on tasks, with `holdfast dev` running beside them."""

import json
import re
from collections.abc import Generator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from holdfast.values.messages import dollars
from holdfast.values.steps import ListedTask
from tests.support.cli import Cli, Here, make_cli


@pytest.fixture(scope="module")
def cli(served: Cli) -> Here:
    """Run commands in this process."""
    return Here(served.home, served.data_dir)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Cli]:
    cli = make_cli(tmp_path_factory.mktemp("cli"))
    (cli.home / "open").touch()
    (cli.home / "prices.json").write_text('{"offline": {"input": 10, "output": 0.1}}', "utf-8")
    prices = {"HOLDFAST_PRICES": "prices.json"}
    with cli.running("dev", "my_agents:agents", "--json", environment=prices) as dev:
        facts = dev.first_json()
        assert facts["queues"] == ["hf:calc", "hf:sick", "hf:slow", "hf.default"]
        assert facts["agents"] == ["calc", "sick", "slow"]
        assert not facts["ui"]
        yield cli
        assert dev.end().code == 0


def create(cli: Here, question: str, *, agent: str = "calc", mode: str = "--manual") -> str:
    created = cli("run", agent, question, mode, "--json").json
    task_id: str = created["task_id"]
    return task_id


def test_run_prints_the_answer_alone_on_stdout_the_steps_on_stderr_and_show_tells_both(
    cli: Here,
) -> None:
    ran = cli("run", "calc", "What is (2 * 3) + 4?", "--task-id", "shown")
    assert ran.out == "The result of (2 * 3) + 4 is 10.\n"
    for said in ('multiply {"a": 2, "b": 3}', "multiply gave 6", "add gave 10", "3 model calls"):
        assert said in ran.err
    assert "\x1b" not in ran.out + ran.err
    shown = cli("show", "shown", "--json").json
    assert (shown["source"], shown["task"]["status"]) == ("ledger", "finished")
    steps = shown["steps"]
    assert [[source["content"] for source in s["sources"]] for s in steps] == [["6"], ["10"], []]
    assert [step["model_calls"] for step in steps] == [1, 1, 1]
    text = cli("show", "shown").out
    for said in ('multiply {"a": 2, "b": 3} -> 6', "\nanswer     The result of", "3 model calls"):
        assert said in text
    moment = r"\d\d:\d\d:\d\d  +[\d.]+ m?s  +done  +"
    lines = text[text.index("start (UTC)") :].splitlines()[1:-1]
    others = [line.split() for line in lines if not re.match(moment, line)]
    assert others == [[lines[-1][:8], "closed", "finished"]]
    assert re.findall(r"done +step (\d), \$0.", text) == ["1", "2", "3"]


def test_run_as_json_gives_one_object_with_sources_and_usage_and_uses_its_id_once(
    cli: Here,
) -> None:
    ran = cli("run", "calc", "What is 2 + 3?", "--task-id", "json-1", "--json").json
    assert ran["response"] == "The result of 2 + 3 is 5."
    assert ran["task_id"] == "json-1"
    assert ran["status"] == "finished"
    assert [source["tool_name"] for source in ran["sources"]] == ["add"]
    assert ran["usage"]["requests"] == 2
    again = cli("run", "calc", "What is 2 + 4?", "--task-id", "json-1", "--json", expect=2)
    assert again.json["error"]["type"] == "TaskExistsError"
    assert again.json["exit_code"] == 2
    assert cli("run", "calc", "  ", "--json", expect=2).json["error"]["type"]
    failed = cli("run", "nobody", "What is 1 + 1?", expect=5)
    assert "No worker process serves agent 'nobody'" in failed.err


def test_a_task_is_run_step_by_step(cli: Here) -> None:
    task = create(cli, "What is 9 + 9?")
    first = cli("step", task, "--input", "What is 2 + 2?", "--json").json
    assert (first["status"], first["is_last"]) == ("done", False)
    assert [source["content"] for source in first["sources"]] == ["4"]
    assert "last step" in cli("finalize", task, expect=2).err
    last = cli("step", task, "--json").json
    assert (last["output"], last["is_last"]) == ("The result of 2 + 2 is 4.", True)
    again = cli("step", task)  # another process: it is given the answer, and told what is next
    assert again.out == "The result of 2 + 2 is 4.\n"
    assert "That was the last step" in again.err
    final = cli("finalize", task, "--json").json
    assert final["status"] == "finished"
    assert cli("finalize", task, "--json").json == final


def listed(cli: Here, task: str, *options: str) -> Any:
    """Wait until the server's list, which comes after the task itself, has it; return its row."""
    while True:
        for each in cli("tasks", *options, "--json").lines:
            if each["task_id"] == task:
                return each


def test_tasks_are_listed_one_object_per_line_and_filtered(cli: Here) -> None:
    task = create(cli, "What is 3 + 3?")
    row = listed(cli, task)
    assert (row["agent"], row["input"]) == ("calc", "What is 3 + 3?")
    # no steps, no usage: the server's list knows none, and zeros would be untrue
    assert set(row) == {*ListedTask.model_fields}
    assert len(cli("tasks", "--json", "--limit", "1").lines) == 1
    lines = cli("tasks").out.splitlines()
    assert lines[0].split()[:3] == ["task", "status", "agent"]
    assert [task, "running", "calc"] in [line.split()[:3] for line in lines]
    cli("abandon", task, "--reason", "a test")
    assert listed(cli, task, "--status", "abandoned", "--agent", "calc")["status"] == "abandoned"
    others = cli("tasks", "--status", "abandoned", "--agent", "calc", "--json").lines
    assert {each["status"] for each in others} == {"abandoned"}
    assert cli("tasks", "--agent", "nobody", "--json").out == ""
    assert "No tasks" in cli("tasks", "--agent", "nobody").err


def test_the_beginning_of_an_id_names_a_task_everywhere(cli: Here) -> None:
    cli("run", "calc", "What is 1 + 2?", "--manual", "--task-id", "prefix-alpha-1")
    cli("run", "calc", "What is 1 + 3?", "--manual", "--task-id", "prefix-beta-1")
    cli("run", "calc", "What is 1 + 4?", "--manual", "--task-id", "prefix-beta-1-2")
    assert cli("show", "prefix-beta-1", "--json").json["task"]["task_id"] == "prefix-beta-1"
    assert cli("show", "prefix-a", "--json").json["task"]["task_id"] == "prefix-alpha-1"
    assert "prefix-alpha-1, prefix-beta-1" in cli("show", "prefix-", expect=2).err
    cli("pause", "prefix-a")
    cli("resume", "prefix-a")
    cli("step", "prefix-a")
    cli("abandon", "prefix-a", "--reason", "enough")
    assert cli("show", "prefix-a", "--json").json["task"]["status"] == "abandoned"


def test_an_unknown_task_is_not_found(cli: Here) -> None:
    for command in ("show", "step", "finalize", "attach", "pause", "approvals", "undo", "audit"):
        failed = cli(command, "nowhere", "--json", expect=4)
        assert failed.json["error"]["type"] == "TaskNotFoundError"
        assert "'nowhere'" in failed.err
        assert "Traceback" not in failed.err
    cli("show", "holdfast-archive", expect=4)  # a workflow that is no task


def test_pause_and_resume_are_kept_with_who_and_why(cli: Here) -> None:
    task = create(cli, "What is 6 + 6?")
    assert "not paused" in cli("resume", task, expect=1).err
    paused = cli("pause", task, "--by", "ann", "--reason", "lunch", "--json").json
    assert (paused["status"], paused["verb"], paused["by"]) == ("applied", "pause", "ann")
    assert listed(cli, task, "--status", "paused")
    waiting = cli("step", task, "--json", expect=3).json
    assert "ann: lunch" in waiting["waiting_for"][0]
    assert "ann: lunch" in cli("attach", task, expect=3).err
    cli("resume", task, "--by", "bob")
    assert cli("attach", task).out == "The result of 6 + 6 is 12.\n"
    events = cli("show", task, "--json").json["events"]
    told = [(e["body"].get("verb"), e["by"]) for e in events if e["kind"] == "command"]
    assert told[-2:] == [("pause", "ann"), ("resume", "bob")]


def test_show_and_tasks_say_what_a_task_cost_by_the_prices_of_its_worker(cli: Here) -> None:
    task = create(cli, "What is (2 * 3) + 4?")
    cli("step", task)
    cli("undo", task)
    cli("attach", task)
    shown = cli("show", task, "--json").json
    usage, branch = shown["task"]["usage"], shown["task"]["branch_usage"]
    assert (usage["requests"], usage["priced"], branch["requests"]) == (4, 4, 3)
    exact = (Decimal(usage["input_tokens"]) * 10 + Decimal(usage["output_tokens"]) / 10) / 10**6
    assert Decimal(shown["task"]["cost"]) == exact > Decimal(branch["paid"]) > 0
    assert sum(Decimal(step["cost"]) for step in shown["steps"]) == exact
    text = cli("show", task).out
    assert f"written, {dollars(exact)}\n" in text
    assert f"written, {dollars(Decimal(branch['paid']))} on the present branch\n" in text
    [listed] = [each for each in cli("tasks", "--cost", "--json").lines if each["task_id"] == task]
    assert (listed["cost"], listed["usage"]) == (shown["task"]["cost"], usage)
    assert any(
        task in line and dollars(exact) in line for line in cli("tasks", "--cost").out.splitlines()
    )


def test_run_beyond_max_dollars_asks_for_more_money(cli: Here) -> None:
    asked = ("--task-id", "poor", "--max-dollars", "0.0001")
    cli("run", "calc", "What is 1 + 1?", *asked, expect=3)
    [waiting] = cli("approvals", "poor", "--json").lines
    assert waiting["kind"] == "limit"
    assert Decimal(json.loads(waiting["arguments"])["max_dollars"]) > Decimal("0.0001")
    cli("approve", waiting["id"], "--by", "ann", "--arguments", '{"max_dollars": "5"}')
    assert cli("attach", "poor").code == 0
    assert cli("show", "poor", "--json").json["task"]["budget"]["max_dollars"] == "5"


def test_a_failed_step_is_shown_healed_and_run_again(cli: Here, tmp_path: Path) -> None:
    failed = cli("run", "sick", "What is 1 + 1?", "--task-id", "sick-1", expect=1)
    assert "the key was refused" in failed.err
    assert "Traceback" not in failed.err
    shown = cli("show", "sick-1", "--json").json
    assert shown["task"]["status"] == "needs_attention"
    assert "ModelRequestError: the key was refused" in shown["task"]["error"]
    assert cli("show", "sick-1").out.count(" again" * 50) == 1  # the rows below begin with it
    assert [event["kind"] for event in shown["events"]] == ["created", "failed"]
    error = cli("step", "sick-1", "--json", expect=1).json["error"]
    assert (error["type"], error["task_id"]) == ("StepFailedError", "sick-1")
    (cli.home / "healed").touch()
    cli("step", "sick-1", "--restart")
    assert cli("attach", "sick-1").out == "The result of 1 + 1 is 2.\n"


def test_a_run_in_a_session_in_which_a_task_runs_is_refused_or_merged(cli: Here) -> None:
    session = ("--session", "busy")
    held = ("run", "calc", "What is 1 + 1?", "--manual", *session, "--on-busy", "queue")
    holder = cli(*held, "--json").json["task_id"]
    refused = cli("run", "calc", "What is 2 + 2?", *session, "--on-busy", "refuse", expect=1)
    assert f"Task '{holder}' of session 'busy' has the floor" in refused.err
    merged = cli("run", "calc", "What is 2 + 2?", *session, "--on-busy", "merge", "--json")
    assert merged.json["task_id"] == holder
