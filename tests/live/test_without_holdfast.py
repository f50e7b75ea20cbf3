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
        done = subprocess.run(
            arguments,
            cwd=self._home,
            env={**self._environment, **environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def query(self, task: str, name: str) -> Any:
        """Return what a query of the `temporal` binary shows."""
        query = ("temporal", "workflow", "query", "--workflow-id", task, "--type", name)
        [answer] = json.loads(self(*query, "--output", "json"))["queryResult"]
        return answer


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Generator[Shell]:
    cli = make_cli(tmp_path_factory.mktemp("sums"))
    (cli.home / "sums.py").write_text(PROGRAMS["sums.py"], "utf-8")
    with cli.running("dev", "sums:agent", "--json") as dev:
        yield Shell(cli, dev.first_json()["address"])
    cli("stop")


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
