"""docs/without_holdfast.md as it stands: the `temporal` binary, and a client of Temporal alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import temporalio

from holdfast.engine.dev_server.command import find_cli
from tests.support.cli import PATIENCE_SECONDS, ROOT, Cli, make_cli

PAGE = (ROOT / "docs" / "without_holdfast.md").read_text("utf-8")
COMMANDS = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
PROGRAMS = dict(re.findall(r"^```py\n# (\w+\.py)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
[PRINTED] = re.findall(r"^Prints:\n\n```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


class Shell:
    """A directory in which the page's agent is served, and commands that know the server."""

    def __init__(self, cli: Cli, address: str) -> None:
        tools = f"{find_cli().parent}{os.pathsep}{os.environ['PATH']}"
        self._home = cli.home
        self._environment = cli.environment(TEMPORAL_ADDRESS=address, PATH=tools)

    def __call__(self, *arguments: str, **environment: str) -> str:
        done = self._run(*arguments, **environment)
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def refused(self, *arguments: str) -> str:
        """Run a command that fails; return what it says."""
        done = self._run(*arguments)
        assert done.returncode == 1, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stderr

    def _run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            arguments,
            cwd=self._home,
            env={**self._environment, **environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    def ended(self, task: str) -> None:
        """Wait until a workflow is closed."""
        shown = ("temporal", "workflow", "describe", "--workflow-id", task, "--output", "json")
        while "closeTime" not in self(*shown):
            pass

    def query(self, task: str, name: str) -> Any:
        """Return what a query of the `temporal` binary shows."""
        query = ("temporal", "workflow", "query", "--workflow-id", task, "--type", name)
        [answer] = json.loads(self(*query, "--output", "json"))["queryResult"]
        return answer


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    return make_cli(tmp_path_factory.mktemp("sums"))


@pytest.fixture(scope="module")
def shell(cli: Cli) -> Generator[Shell]:
    (cli.home / "sums.py").write_text(PROGRAMS["sums.py"], "utf-8")
    with cli.running("dev", "sums:agent", "--json") as dev:
        yield Shell(cli, dev.first_json()["address"])
    cli("stop")


SUM = '{"head": {"agent": "sums"}, "input": "What is 6 * 7?"}'
LINGER = "import atexit, time; atexit.register(time.sleep, 1.0)\n"
"""Temporal's client aborts an interpreter that ends while one of its threads still hands over the
last answer ("PyGILState_Release: thread state must be current"), as on a busy machine. Nothing that
could be awaited says when it is done."""


def test_the_commands_of_the_page_run_and_tell_one_story(shell: Shell) -> None:
    shown = shell("bash", "-euo", "pipefail", "-c", "".join(COMMANDS))
    assert "The result of 6 * 7 is 48." in shown
    done = shell.query("sum-1", "task")
    assert (done["status"], done["answer"]) == ("finished", "The result of 6 * 7 is 48.")
    steps = shell.query("sum-1", "completed_steps")
    assert [step["step"] for step in steps] == ["s1", "s2"]
    [call] = steps[0]["calls"]
    assert (call["arguments"], call["proposed"]) == ({"a": 6, "b": 8}, {"a": 6, "b": 7})
    assert [(each["status"], each["by"]) for each in call["decided"]] == [("approved", "ann")]
    left = shell.query("sum-2", "task")
    assert (left["status"], left["ended_by"]) == ("abandoned", "ann: not needed")


@pytest.mark.parametrize("given", [('"hello"',), (), ("{}", "{}")])
def test_a_workflow_whose_input_cannot_be_read_is_shown_with_the_reason(
    shell: Shell, cli: Cli, given: tuple[str, ...]
) -> None:
    task = f"unread-{len(given)}"
    options = [word for each in given for word in ("--input", each)]
    started = ("--type", "AgentTask", "--task-queue", "hf:sums", "--workflow-id", task)
    shell("temporal", "workflow", "start", *started, *options)
    shell.ended(task)
    shown = cli("show", task, "--json").json
    assert shown["task"]["status"] == "failed"
    assert "input" in shown["task"]["error"]
    assert shown["steps"] == shown["events"] == []
    assert "it never began" in cli("audit", task, "--verify", expect=5).err


@pytest.mark.parametrize(
    ("given", "unknown"),
    [
        ('{"head": {"agent": "sums"}, "imput": "What is 6 * 7?"}', "imput. Did you mean 'input'?"),
        ('{"head": {"agent": "sums"}, "prompt": "What is 6 * 7?"}', "prompt. There are: head,"),
        ('{"head": {"agent": "sums", "input": "What is 6 * 7?"}}', "of its head: input."),
    ],
    ids=["misspelt", "another word", "in the head"],
)
def test_a_start_whose_request_is_in_a_field_that_nothing_reads_is_refused_with_its_name(
    shell: Shell, cli: Cli, given: str, unknown: str
) -> None:
    task = f"unknown-{len(given)}"
    started = ("--type", "AgentTask", "--task-queue", "hf:sums", "--workflow-id", task)
    shell("temporal", "workflow", "start", *started, "--input", given)
    shell.ended(task)
    shown = cli("show", task, "--json").json["task"]
    assert shown["status"] == "failed"
    assert unknown in shown["error"]
    assert "Nothing has begun" in shown["error"]


def test_a_start_with_a_field_of_newer_clients_runs(shell: Shell) -> None:
    started = ("--type", "AgentTask", "--task-queue", "hf:sums", "--workflow-id", "newer")
    newer = '{"head": {"agent": "sums", "new": 1}, "input": "What is 6 * 7?", "newer": true}'
    shell("temporal", "workflow", "start", *started, "--input", newer)
    assert shell.query("newer", "task")["input"] == "What is 6 * 7?"


def test_a_start_without_a_request_takes_the_one_of_its_first_step(shell: Shell) -> None:
    started = ("--type", "AgentTask", "--task-queue", "hf:sums", "--workflow-id", "later")
    shell("temporal", "workflow", "start", *started, "--input", '{"head": {"agent": "sums"}}')
    updating = ("temporal", "workflow", "update", "execute", "--workflow-id", "later")
    shell(*updating, "--name", "run", "--input", '{"input": "What is 6 * 7?"}')
    assert shell.query("later", "approvals")


def test_a_terminated_task_is_shown_with_the_reason(shell: Shell, cli: Cli) -> None:
    started = ("--type", "AgentTask", "--task-queue", "hf:sums", "--workflow-id", "ended")
    shell("temporal", "workflow", "start", *started, "--input", SUM)
    shell.query("ended", "task")
    shell("temporal", "workflow", "terminate", "--workflow-id", "ended", "--reason", "by hand")
    shell.ended("ended")
    assert cli("show", "ended", "--json").json["task"]["error"] == "TerminatedError: by hand"


def test_an_id_that_only_temporal_takes_is_in_the_way_of_no_other_task(
    shell: Shell, cli: Cli
) -> None:
    started = ("--type", "AgentTask", "--task-queue", "hf:sums", "--workflow-id", "a\tb")
    shell("temporal", "workflow", "start", *started, "--input", SUM)
    [odd] = [each for each in cli("tasks", "--cost", "--json").lines if each["task_id"] == "a\tb"]
    assert odd["cost"] is None


def test_an_undo_to_a_number_below_all_is_refused(shell: Shell) -> None:
    started = ("--type", "AgentTask", "--task-queue", "hf:sums", "--workflow-id", "below")
    shell("temporal", "workflow", "start", *started, "--input", SUM)
    updating = ("temporal", "workflow", "update", "execute", "--workflow-id", "below")
    shell(*updating, "--name", "run", "--input", '{"all": true}')
    asked = ("--name", "undo", "--input", '{"to": -3, "by": "ann"}')
    refused = shell.refused(*updating, *asked)
    assert "0 for none, -1 for all but the last" in refused
    assert shell.query("below", "approvals")


def test_a_client_of_temporal_alone_does_all_of_it(shell: Shell, tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    site = Path(temporalio.__file__).parents[1]
    for name in ("temporalio", "google", "nexusrpc", "typing_extensions.py"):
        (packages / name).symlink_to(site / name)
    isolated = (sys.executable, "-S", "-c")
    missing = "import importlib.util as i; print(i.find_spec('holdfast'), i.find_spec('pydantic'))"
    known = {"PYTHONPATH": str(packages)}
    assert shell(*isolated, missing, **known) == "None None\n"
    assert shell(*isolated, LINGER + PROGRAMS["client.py"], **known) == PRINTED
