"""Bad input and engine trouble: a clear line, the right exit code, no traceback, nothing lost."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from typer.main import get_command

from tests.support.cli import Cli, make_cli

NO_SERVER = ("--address", "127.0.0.1:1")


@pytest.fixture
def cli(tmp_path: Path) -> Generator[Cli]:
    cli = make_cli(tmp_path)
    yield cli
    cli("stop")


@pytest.mark.parametrize("command", ["dev", "worker"])
@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("my_missing:agents", "no such module"),
        ("my_agents:nothing", "no attribute 'nothing'"),
        ("my_agents", "module:attribute"),
        ("my_agents:AGENTS_TYPO", "AGENTS_TYPO"),
        ("my_agents:Path", "must be an Agent"),
        ("my_bug:agents", "ZeroDivisionError: division by zero (my_bug.py, line 2)"),
        ("my_typo:agents", "SyntaxError"),
    ],
)
def test_agents_that_cannot_be_loaded_are_a_usage_error(
    cli: Cli, command: str, target: str, said: str
) -> None:
    (cli.home / "my_bug.py").write_text("agents = []\n1 / 0\n")
    (cli.home / "my_typo.py").write_text("agents = [\n")
    failed = cli(command, target, "--json", expect=2)
    assert said in failed.json["error"]["message"]
    assert said in failed.err
    assert "Traceback" not in failed.err
    assert not cli.data_dir.exists()


def test_run_with_agents_that_lack_the_agent_creates_nothing(cli: Cli) -> None:
    failed = cli("run", "nobody", "hi", "--agents", "my_agents:agents", "--json", expect=4)
    assert failed.json["error"]["type"] == "AgentNotFoundError"
    assert "calc, sick, slow" in failed.err
    assert not cli.data_dir.exists()


def test_run_without_a_worker_creates_nothing_and_says_what_to_start(cli: Cli) -> None:
    failed = cli("run", "calc", "What is 1 + 1?", "--json", expect=5)
    assert failed.json["error"]["type"] == "NoWorkerError"
    assert failed.err.count("holdfast worker my_module:agents") == 1
    assert cli("tasks", "--json").out == ""


def test_run_without_workers_of_one_s_own_creates_nothing_and_names_their_queue(cli: Cli) -> None:
    failed = cli("run", "calc", "What is 1 + 1?", "--queue", "mine", "--json", expect=5)
    assert failed.json["error"]["type"] == "NoWorkerError"
    assert "queue 'mine', so no task was created. Start yours" in failed.err
    assert cli("tasks", "--json").out == ""
    here = ("--queue", "mine", "--agents", "my_agents:agents")
    assert "give one of them" in cli("run", "calc", "q", *here, expect=2).err


@pytest.mark.parametrize(
    "command",
    [
        ("tasks",),
        ("show", "a"),
        ("run", "calc", "What is 1 + 1?"),
        ("run", "calc", "What is 1 + 1?", "--agents", "my_agents:agents"),
        ("worker", "my_agents:agents"),
        ("dev", "my_agents:agents"),
        ("pause", "a"),
    ],
)
def test_a_closed_port_is_told_in_one_line(cli: Cli, command: tuple[str, ...]) -> None:
    archive = ("--archive", str(cli.home / "archive"))
    failed = cli(*command, *NO_SERVER, *archive, "--json", expect=5)
    assert failed.json["error"]["type"] == "ConnectError"
    assert "'127.0.0.1:1' cannot be reached: nothing listens there" in failed.err
    assert "Traceback" not in failed.err


def test_a_closed_port_is_told_before_a_missing_archive(cli: Cli) -> None:
    assert "nothing listens there" in cli("tasks", *NO_SERVER, expect=5).err


def test_the_address_of_the_environment_means_a_cluster(cli: Cli) -> None:
    failed = cli("tasks", expect=5, environment={"TEMPORAL_ADDRESS": "127.0.0.1:1"})
    assert "'127.0.0.1:1'" in failed.err
    assert not cli.data_dir.exists()


def test_an_api_key_is_never_shown(cli: Cli) -> None:
    key = "tmprl-of-the-tests-0123456789"
    failed = cli("tasks", *NO_SERVER, "--json", expect=5, environment={"TEMPORAL_API_KEY": key})
    assert key not in failed.out + failed.err
    helped = cli("tasks", "--help", environment={"TEMPORAL_API_KEY": key})
    assert key not in helped.out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--data-dir", "here", "--address", "127.0.0.1:1"), "give one of them"),
        (("--namespace", "default"), "--namespace is for a cluster"),
        (("--archive", "there"), "--archive is for a cluster"),
        (("--status", "tired"), "tired"),
        (("--limit", "0"), "--limit"),
        (("--colour",), "--colour"),
    ],
)
def test_options_that_make_no_sense_are_usage_errors(
    cli: Cli, options: tuple[str, ...], said: str
) -> None:
    failed = cli("tasks", *options, expect=2)
    assert said in failed.err
    assert "Traceback" not in failed.err


def test_a_data_directory_that_is_a_file_is_engine_trouble(cli: Cli) -> None:
    (cli.home / "file").touch()
    failed = cli("tasks", "--data-dir", "file", "--json", expect=5)
    assert failed.json["error"]["type"] == "ServerStartError"


def test_the_reason_of_an_error_is_traced_only_on_demand(cli: Cli) -> None:
    traced = cli("tasks", *NO_SERVER, expect=5, environment={"HOLDFAST_DEBUG": "1"})
    assert "Traceback" in traced.err
    assert "error: " in traced.err


def test_ui_without_a_server_says_what_starts_one(cli: Cli) -> None:
    assert "holdfast dev my_module:agents" in cli("ui", expect=5).err


@pytest.mark.parametrize("command", ["stop", "ui"])
def test_commands_of_the_embedded_server_refuse_a_cluster(cli: Cli, command: str) -> None:
    assert "--data-dir" in cli(command, *NO_SERVER, expect=2).err


def test_stop_without_a_server_is_fine(cli: Cli) -> None:
    assert cli("stop", "--json").json["stopped"] is False
    assert not cli.data_dir.exists()


def test_every_command_tells_its_exit_codes_and_takes_json(cli: Cli) -> None:
    listed = cli("--help").out.partition("--help")[2].partition("Exit")[0].splitlines()
    commands = [line.split()[0] for line in listed if line[:2] == "  " and line[2:3].isalpha()]
    assert {"demo", "dev", "worker", "run", "tasks", "show", "step", "stop", "ui"} <= set(commands)
    for command in commands:
        text = " ".join(cli(command, "--help").out.split())
        assert "Exit codes: 0 ok; 1" in text, command
        assert "--json" in text, command


@pytest.mark.parametrize("make", [False, True])
@pytest.mark.parametrize("command", [("tasks",), ("show", "some"), ("inbox",), ("undo", "some")])
def test_a_wrong_directory_is_told_and_no_server_started(
    cli: Cli, tmp_path: Path, command: tuple[str, ...], make: bool
) -> None:
    elsewhere = tmp_path / "elsewhere"
    if make:
        elsewhere.mkdir()
    failed = cli(*command, "--data-dir", elsewhere, expect=2)
    assert f"There is no data directory here: '{elsewhere}'" in failed.err
    assert "--data-dir" in failed.err
    assert not make or list(elsewhere.iterdir()) == []
    assert make or not elsewhere.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tasks", "--colour"), "--colour"),
        (("tasks", "--limit", "0"), "--limit"),
        (("show",), "TASK"),
        (("nonsense",), "nonsense"),
        (("run", "calc"), "question"),
    ],
)
def test_usage_errors_are_json_where_json_is_asked_for(
    cli: Cli, arguments: tuple[str, ...], said: str
) -> None:
    failed = cli(*arguments, "--json", expect=2)
    assert said in failed.json["error"]["message"]
    assert failed.json["exit_code"] == 2
    assert "Usage:" in failed.err


def test_help_shows_every_command_in_one_group(cli: Cli) -> None:
    from holdfast.cli.app import app
    from holdfast.cli.groups import GROUPS

    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(get_command(app).commands)  # type: ignore[attr-defined]
    helped = cli("--help").out
    assert [heading for heading in GROUPS if f"\n{heading}:\n" not in helped] == []
