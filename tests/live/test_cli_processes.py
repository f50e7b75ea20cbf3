"""Commands that run for long: how they start, how they end, and what becomes of the tasks."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from holdfast import Agent, HoldfastPlugin
from holdfast.archive.archive import Archive
from holdfast.engine.dev_server.server import find_server
from holdfast.models import OfflineModel
from holdfast.reading import queries
from tests.support import forked
from tests.support.cli import PATIENCE_SECONDS, ROOT, Cli, Here, make_cli, unforked
from tests.support.programs import ran

SERVED_HERE = ("--agents", "my_agents:agents")
QUESTION = "What is (2 * 3) + 4?"
ANSWER = "The result of (2 * 3) + 4 is 10."


@pytest.fixture(scope="module")
def with_sum(tmp_path_factory: pytest.TempPathFactory) -> Generator[Cli]:
    """Give a data directory that has a task, and a server that is up."""
    cli = make_cli(tmp_path_factory.mktemp("summed"))
    with cli.running("dev", "my_agents:sick", "--json") as dev:
        dev.first_json()
        cli("run", "calc", "What is 1 + 1?", "--task-id", "sum", *SERVED_HERE)
        yield cli
        dev.end()


def open_gate(cli: Cli) -> None:
    (cli.home / "open").touch()


def test_a_worker_joins_serves_and_ends_on_a_signal(cli: Cli) -> None:
    open_gate(cli)
    with cli.running("worker", "my_agents:agents", "--app", "sums", "--json") as worker:
        said = worker.first_json()
        assert str(said.pop("address")).startswith("127.0.0.1:")
        agents = ["calc", "sick", "slow"]
        assert said == {"app": "sums", "agents": agents, "queues": ["hf.sums"]}
        assert cli("run", "calc", QUESTION, "--app", "sums").out == f"{ANSWER}\n"
        ended = worker.end(signal.SIGTERM)
    assert ended.code == 0
    assert "stopping" in ended.err


def test_a_worker_of_a_cluster_is_named_by_address_and_archive(cli: Cli) -> None:
    open_gate(cli)
    with cli.running("dev", "my_agents:sick", "--json") as dev:
        facts = dev.first_json()
        cluster = ("--address", facts["address"], "--archive", facts["archive"])
        with cli.running("worker", "my_agents:calc", *cluster, "--json") as worker:
            worker.first_json()
            assert cli("run", "calc", QUESTION, *cluster).out == f"{ANSWER}\n"
            other = cli("run", "clac", QUESTION, *cluster, "--json", expect=5)
            assert "Did you mean agent 'calc' (queue" in other.json["error"]["message"]
            assert worker.end().code == 0
        assert len(cli("tasks", *cluster, "--json").lines) == 1
        other = cli("tasks", *cluster[:2], "--archive", "elsewhere", "--json", expect=5)
        assert other.json["error"]["type"] == "ArchiveMismatchError"


def test_ctrl_c_leaves_the_task_running_and_attach_goes_on(cli: Cli) -> None:
    with cli.running("worker", "my_agents:agents", "--json") as worker:
        worker.first_json()
        with cli.running("run", "calc", QUESTION, "--task-id", "long", "--json") as run:
            run.until_said('multiply {"a": 2, "b": 3}')
            left = run.end(signal.SIGINT)
        assert left.code == 130
        assert left.json == {"task_id": "long", "status": "running", "interrupted": True}
        assert "goes on without this command" in left.err
        assert "holdfast attach long" in left.err
        assert cli("show", "long", "--json").json["task"]["status"] == "running"
        open_gate(cli)
        assert cli("attach", "long").out == f"{ANSWER}\n"
        assert cli("show", "long", "--json").json["task"]["usage"]["requests"] == 3


LOST = """
import sys
from holdfast import Agent
from holdfast.mcp import MCPServerStdio

server = MCPServerStdio({"command": sys.executable, "args": ["nowhere.py"]}, name="lost")
agents = [Agent(name="lost", model="offline", mcp_servers=[server])]
"""


def test_a_watched_task_that_is_blocked_says_by_what_once_and_how_to_give_it_up(cli: Cli) -> None:
    (cli.home / "lost_agents.py").write_text(LOST)
    served = ("--agents", "lost_agents:agents")
    with cli.running("run", "lost", QUESTION, *served, "--task-id", "blocked") as run:
        said = run.until_said("task  waits.")
        for _ in range(2):
            run.until_said("An activity failed")
        left = run.end(signal.SIGINT)
    assert "activity 'describe'" in said
    assert "MCP server 'lost' cannot be reached" in said
    assert "`holdfast abandon blocked` gives the task up" in said
    assert "task  waits." not in left.err


def test_a_task_without_a_worker_is_read_from_its_history(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cli.running("worker", "my_agents:agents", "--json") as worker:
        worker.first_json()
        cli("run", "calc", QUESTION, "--manual", "--task-id", "alone")
        open_gate(cli)
        cli("step", "alone")
        asked = cli("show", "alone", "--json").json
        known = cli("audit", "alone").lines
        cli("resume", "alone", "--by", "kim", expect=1)  # refused: it is not paused
        worker.end()
    monkeypatch.setattr(queries, "PATIENCE_SECONDS", 0.2)  # nobody comes
    here = Here(cli.home, cli.data_dir)
    recorded = here("abandon", "alone", "--by", "ann", "--reason", "late", "--json")
    assert recorded.json["status"] == "recorded"
    assert "takes effect when a worker is up" in recorded.err
    shown = here("show", "alone", "--json").json
    assert (shown["source"], shown["task"]["status"]) == ("history", "running")
    assert [shown[each] for each in ("steps", "upcoming")] == [
        asked[each] for each in ("steps", "upcoming")
    ]
    assert shown["task"]["usage"] == asked["task"]["usage"]
    assert [(each["verb"], each["by"], each["text"]) for each in shown["happenings"]] == [
        ("abandon", "ann", "late")  # and not the refused one
    ]
    told = here("show", "alone")
    assert "multiply" in told.out
    assert "abandon by ann: late" in told.out
    assert "What has come since:" in told.err
    assert here("audit", "alone").lines[: len(known)] == known


def test_stop_ends_the_server_under_a_worker_and_loses_no_task(cli: Cli) -> None:
    open_gate(cli)
    with cli.running("worker", "my_agents:agents", "--json") as worker:
        worker.first_json()
        cli("run", "calc", QUESTION, "--manual", "--task-id", "kept")
        assert cli("stop", "--json").json["stopped"] is True
        assert cli("tasks", "--json").lines[0]["task_id"] == "kept"  # joins a new server
        assert worker.end().code == 0
    assert cli("attach", "kept", *SERVED_HERE).out == f"{ANSWER}\n"


def test_the_entry_point_of_a_worker_says_what_is_wrong(cli: Cli) -> None:
    for arguments, code, said in (
        (["--help"], 0, "usage: worker.py"),
        ([], 2, "Agents are named as module:attribute"),
        (["nowhere:agents"], 2, "Cannot import 'nowhere'"),
        (["my_agents:agents", "--colour"], 2, "--colour"),
        (["my_agents:agents"], 2, "No archive is named"),
    ):
        command = forked.command(str(ROOT / "worker.py"), *arguments)
        done = ran(command, cli.home, cli.environment())
        assert done.returncode == code
        assert said in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


async def test_workers_of_one_s_own_queue_are_reached_by_run_and_by_all_that_follows(
    cli: Cli,
) -> None:
    with cli.running("dev", "my_agents:agents", "--json") as dev:
        await asyncio.to_thread(dev.first_json)
        server, archive = find_server(cli.data_dir), Archive(cli.data_dir / "archive")
        assert server is not None
        agent = Agent(name="calc", model=OfflineModel())
        plugin = HoldfastPlugin(archive=archive, agents=[agent])
        client = await Client.connect(server.address, plugins=[plugin])
        async with Worker(client, task_queue="mine"):
            made = await asyncio.to_thread(
                cli, "run", "calc", "hello", "--queue", "mine", "--manual", "--json"
            )
            task = made.json["task_id"]
            for command in ("step", "undo", "step", "finalize"):
                await asyncio.to_thread(cli, command, task)
        found = await client.get_workflow_handle(task).describe()
        dev.end(signal.SIGTERM)
    assert found.task_queue == "mine"
    assert cli("show", task, "--json").json["task"]["status"] == "finished"


def ended(cli: Cli, stdout: Any, stderr: Any, *arguments: str, text: str = "") -> Any:
    """Run a command to its end with these files as its output."""
    return subprocess.run(
        forked.command("-m", "holdfast.cli", *arguments),
        cwd=cli.home,
        env=cli.environment(),
        input=text,
        stdout=stdout,
        stderr=stderr,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


SUM = ("run", "calc", "What is 2 + 3?", *SERVED_HERE, "--task-id")


def test_a_reader_that_has_gone_changes_neither_work_nor_exit_code(with_sum: Cli) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    for arguments, code in (
        (("audit", "sum"), 0),
        (("show", "nowhere", "--json"), 4),
        ((*SUM, "unread"), 0),
        ((*SUM, "unread-waits", "--max-turns", "0"), 3),
    ):
        assert ended(with_sum, writing, writing, *arguments).returncode == code
    os.close(writing)
    assert status(with_sum, "unread", "unread-waits") == ["finished", "waiting"]


def status(cli: Cli, *tasks: str) -> list[str]:
    """Return the statuses of tasks."""
    return [cli("show", task, "--json").json["task"]["status"] for task in tasks]


def test_a_full_disk_is_told_in_one_line_and_the_work_is_done(with_sum: Cli) -> None:
    with Path("/dev/full").open("w") as full:
        for arguments, code in (
            (("--help",), 1),
            (("show", "nowhere", "--json"), 4),
            ((*SUM, "full"), 1),
            ((*SUM, "full-waits", "--max-turns", "0"), 3),
        ):
            done = ended(with_sum, full, subprocess.PIPE, *arguments)
            assert done.returncode == code, done.stderr
            assert "Traceback" not in done.stderr
            if code != 3:  # it has the answer alone on stdout, and there is none yet
                last = done.stderr.splitlines()[-1]
                said = "error: stdout could not be written (No space left on device)"
                assert last.startswith(said)
        assert status(with_sum, "full", "full-waits") == ["finished", "waiting"]
        about: dict[str, object] = {"protocolVersion": "2025-06-18", "capabilities": {}}
        params = {**about, "clientInfo": {"name": "test", "version": "1"}}
        begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        served = ("mcp", "my_agents:agents")
        done = ended(with_sum, full, subprocess.PIPE, *served, text=f"{json.dumps(begin)}\n")
    assert done.returncode == 1, done.stderr
    assert "error: The MCP client at stdout cannot be answered" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_command_ends_well_without_a_stdout(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    line = f'"{sys.executable}" -m holdfast.cli stop --json >&-'
    done = ran(["sh", "-c", line], cli.home, cli.environment())
    assert done.returncode == 0, done.stderr
    assert "No server is running" in done.stderr
    assert not cli.data_dir.exists()


def test_texts_that_the_encoding_of_stdout_lacks_are_written_out(with_sum: Cli) -> None:
    asked = "What is 2 + 3, Jürgen?"
    with_sum("run", "calc", asked, "--task-id", "für", *SERVED_HERE)
    ascii_only = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    for command, said in ((("show", "für"), "J\\xfcrgen"), (("tasks", "--json"), '"f\\u00fcr"')):
        with with_sum.running(*command, environment=ascii_only, python=unforked) as process:
            shown = process.finish()
        assert shown.code == 0, shown.err
        assert said in shown.out
    assert "für" in with_sum("tasks").out
