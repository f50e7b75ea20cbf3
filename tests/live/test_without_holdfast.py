"""docs/without_holdfast.md as it stands: the `temporal` binary, and a client of Temporal alone."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import temporalio
from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError

from holdfast.engine.dev_server.command import find_cli
from tests.support.cli import ROOT, Cli, make_cli
from tests.support.programs import ran
from tests.support.rig import Rig, until
from tests.support.workers import Counting

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
        return ran(arguments, self._home, {**self._environment, **environment})

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
    shell.ended("sum-2")
    left = shell.query("sum-2", "task")
    assert (left["status"], left["ended_by"]) == ("abandoned", "bob: seen enough")


async def test_what_temporals_clients_start_and_end_is_read_or_refused_in_words(rig: Rig) -> None:
    runner = await rig.make(worker=Counting())
    client, sums = runner.client, {"agent": "agent"}

    async def start(name: str, *given: Any) -> Any:
        return await client.start_workflow(
            "AgentTask", args=given, id=f"{rig.app}-{name}", task_queue=rig.queue
        )

    unknown = [
        ("misspelt", {"head": sums, "imput": "q"}, "imput. Did you mean 'input'?"),
        ("other", {"head": sums, "prompt": "q"}, "prompt. There are: head,"),
        ("head", {"head": {**sums, "input": "q"}}, "of its head: input."),
    ]
    for name, field, said in unknown:
        with suppress(WorkflowFailureError):
            await (await start(name, field)).result()
        found = await runner.get_task(f"{rig.app}-{name}")
        assert (found.status, said in found.error) == ("failed", True)
        assert "Nothing has begun" in found.error
    newer = await start("newer", {"head": {**sums, "new": 1}, "input": "q", "newer": True})
    assert (await newer.query("task"))["input"] == "q"
    later = await start("later", {"head": sums})  # it takes the request of its first step
    await later.execute_update("run", {"input": "q"})
    assert [s.task_step.input for s in await runner.get_completed_steps(later.id)] == ["q"]
    with pytest.raises(WorkflowUpdateFailedError) as below:
        await later.execute_update("undo", {"to": -3, "by": "ann"})
    assert "0 for none, -1 for all but the last" in str(below.value.cause)
    assert await later.execute_update("undo") == {
        "status": "done",
        "steps": ["s1"],
        "undone": [],
        "remains": [],
        "check": [],
    }
    assert await runner.get_completed_steps(later.id) == []
    await later.execute_update("run")
    assert len(await runner.get_completed_steps(later.id)) == 1
    await later.terminate(reason="by hand")
    assert (await runner.get_task(later.id)).error == "TerminatedError: by hand"
    odd = await start("a\tb", {"head": sums, "input": "q"})  # an id that only Temporal takes

    async def listed() -> bool:
        found = {each.task_id: each for each in await runner.list_tasks(agent="agent")}
        return odd.id in found and found[odd.id].input == "q"

    await until(listed)
