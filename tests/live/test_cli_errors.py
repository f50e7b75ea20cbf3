"""Bad input and engine trouble: a clear line, the right exit code, no traceback, nothing lost."""

import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from typer.main import get_command

from holdfast.cli.app import app
from holdfast.cli.groups import GROUPS
from holdfast.reading import queries
from tests.support.cli import Here, make_cli

NO_SERVER = ("--address", "127.0.0.1:1")


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Here]:
    """Give commands in this process, which import agents and start a server."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(queries, "PATIENCE_SECONDS", 0.2)  # nobody comes
    home = make_cli(tmp_path).home
    yield (cli := Here(home, tmp_path / "data"))
    cli("stop")
    for file in home.glob("*.py"):
        sys.modules.pop(file.stem, None)


def test_agents_that_cannot_be_loaded_are_a_usage_error(cli: Here) -> None:
    (cli.home / "my_bug.py").write_text("agents = []\n1 / 0\n")
    (cli.home / "my_typo.py").write_text("agents = [\n")
    for command, target, said in (
        ("dev", "my_missing:agents", "no such module"),
        ("worker", "my_missing:agents", "no such module"),
        ("worker", "my_agents:nothing", "no attribute 'nothing'"),
        ("worker", "my_agents", "module:attribute"),
        ("worker", "my_agents:AGENTS_TYPO", "AGENTS_TYPO"),
        ("worker", "my_agents:Path", "must be an Agent"),
        ("worker", "my_bug:agents", "ZeroDivisionError: division by zero (my_bug.py, line 2)"),
        ("worker", "my_typo:agents", "SyntaxError"),
    ):
        failed = cli(command, target, "--json", expect=2)
        assert said in failed.json["error"]["message"]
        assert said in failed.err
        assert "Traceback" not in failed.err
    failed = cli("run", "nobody", "hi", "--agents", "my_agents:agents", "--json", expect=4)
    assert failed.json["error"]["type"] == "AgentNotFoundError"
    assert "It has: calc, sick, slow." in failed.err
    failed = cli("run", "clac", "hi", "--agents", "my_agents:agents", expect=4)
    assert "Did you mean 'calc'? It has" in failed.err
    assert not cli.data_dir.exists()


def test_run_without_a_worker_creates_nothing_and_says_what_to_start(cli: Here) -> None:
    failed = cli("run", "calc", "What is 1 + 1?", "--json", expect=5)
    assert failed.json["error"]["type"] == "NoWorkerError"
    assert failed.err.count("holdfast worker my_module:agents") == 1
    failed = cli("run", "calc", "What is 1 + 1?", "--queue", "mine", "--json", expect=5)
    assert failed.json["error"]["type"] == "NoWorkerError"
    assert "queue 'mine', so no task was created. Start yours" in failed.err
    here = ("--queue", "mine", "--agents", "my_agents:agents")
    assert "give one of them" in cli("run", "calc", "q", *here, expect=2).err
    assert cli("tasks", "--json").out == ""
    cli("run", "calc", "q", "--detach", "--task-id", "early")
    assert "Or serve the agents here, with --agents" in cli("undo", "early", expect=5).err


def test_a_closed_port_is_told_in_one_line_and_no_key_with_it(cli: Here) -> None:
    archive = ("--archive", str(cli.home / "archive"))
    key = {"TEMPORAL_API_KEY": "tmprl-of-the-tests-0123456789"}
    question = ("run", "calc", "What is 1 + 1?")
    served = [(*question, "--agents", "my_agents:agents"), ("worker", "my_agents:agents")]
    for command in (("tasks",), ("show", "a"), question, ("pause", "a"), *served):
        failed = cli(*command, *NO_SERVER, *archive, "--json", expect=5, environment=key)
        assert failed.json["error"]["type"] == "ConnectError"
        assert "'127.0.0.1:1' cannot be reached" in failed.err
        assert "Traceback" not in failed.err
        assert key["TEMPORAL_API_KEY"] not in failed.out + failed.err
    assert key["TEMPORAL_API_KEY"] not in cli("tasks", "--help", environment=key).out
    told = cli("tasks", *NO_SERVER, expect=5, environment={"HOLDFAST_DEBUG": "1"}).err
    assert "nothing listens there" in told  # before the missing archive
    assert "Traceback" in told  # on demand
    failed = cli("tasks", expect=5, environment={"TEMPORAL_ADDRESS": "127.0.0.1:1"})
    assert "'127.0.0.1:1'" in failed.err
    assert not cli.data_dir.exists()


def test_options_that_make_no_sense_are_usage_errors(cli: Here) -> None:
    for arguments, said in (
        (("tasks", "--data-dir", "here", "--address", "127.0.0.1:1"), "give one of them"),
        (("tasks", "--namespace", "default"), "--namespace is for a cluster"),
        (("tasks", "--archive", "there"), "--archive is for a cluster"),
        (("tasks", "--status", "tired"), "tired"),
        (("tasks", "--limit", "0"), "--limit"),
        (("tasks", "--colour"), "--colour"),
        (("stop", *NO_SERVER), "--data-dir"),
        (("show",), "TASK"),
        (("nonsense",), "nonsense"),
    ):
        failed = cli(*arguments, expect=2)
        assert said in failed.err
        assert "Traceback" not in failed.err
        failed = cli(*arguments, "--json", expect=2)
        assert said in failed.json["error"]["message"]
        assert failed.json["exit_code"] == 2


def test_every_command_tells_its_exit_codes_takes_json_and_is_in_one_group(cli: Here) -> None:
    commands: list[str] = sorted(get_command(app).commands)  # type: ignore[attr-defined]
    assert sorted(name for names in GROUPS.values() for name in names) == commands
    helped = cli("--help").out
    assert [heading for heading in GROUPS if f"\n{heading}:\n" not in helped] == []
    assert [name for name in commands if f"\n  {name} " not in helped] == []
    made = get_command(app).commands  # type: ignore[attr-defined]
    leaves = [
        (name, sub)
        for name, command in made.items()
        for sub in (getattr(command, "commands", None) or [""])
        if name != "desk"
    ]
    for command in [("desk",), *leaves]:
        text = " ".join(cli(*filter(None, command), "--help").out.split())
        assert "Exit codes: 0 ok; 1" in text, command
        assert "--json" in text, command


def test_a_wrong_directory_is_told_and_no_server_started(cli: Here) -> None:
    elsewhere = cli.home / "elsewhere"
    elsewhere.mkdir()
    for command in (("tasks",), ("undo", "some")):
        failed = cli(*command, "--data-dir", elsewhere, expect=2)
        assert f"There is no data directory here: '{elsewhere}'" in failed.err
        assert "--data-dir" in failed.err
    assert list(elsewhere.iterdir()) == []
