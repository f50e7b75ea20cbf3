"""Which engine the options mean, and which exit code an error gives."""

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from holdfast.cli.app import app
from holdfast.cli.exits import ExitCode, exit_code_of
from holdfast.cli.options import Common
from holdfast.errors import (
    AgentNotFoundError,
    ArchiveMismatchError,
    CommandRefusedError,
    ConnectError,
    HoldfastError,
    InvalidArgumentError,
    MaxTurnsExceeded,
    NoWorkerError,
    StepFailedError,
    TaskClosedError,
    TaskExistsError,
    TaskNotFoundError,
    UserError,
)


def common(**given: Any) -> Common:
    none: dict[str, Any] = dict.fromkeys(("data_dir", "address", "namespace", "archive"))
    return Common(**{**none, **given}, json=False)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TEMPORAL_ADDRESS", "HOLDFAST_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)


def test_the_engine_is_embedded_unless_an_address_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert common().embedded == Path(".holdfast")
    monkeypatch.setenv("HOLDFAST_DATA_DIR", "elsewhere")
    assert common().embedded == Path("elsewhere")
    assert common(data_dir=Path("here")).embedded == Path("here")
    assert common(address="host:7233").embedded is None
    monkeypatch.setenv("TEMPORAL_ADDRESS", "host:7233")
    assert common().embedded is None
    assert common(data_dir=Path("here")).embedded == Path("here")


def test_options_of_both_engines_contradict_each_other() -> None:
    with pytest.raises(InvalidArgumentError, match="give one of them"):
        _ = common(data_dir=Path("here"), address="host:7233").embedded
    with pytest.raises(InvalidArgumentError, match="--namespace is for a cluster"):
        _ = common(namespace="n").embedded


@pytest.mark.parametrize("url", ["s3://id:secret@bucket/x", "https://host/x?sig=secret"])
def test_a_password_on_the_command_line_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidArgumentError, match="set HOLDFAST_ARCHIVE") as caught:
        _ = common(address="host:7233", archive=url).embedded
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("place", [["--tokens", "t.json"], ["--data-dir", "d"]])
def test_an_option_of_the_desk_holds_for_the_commands_below_it(
    place: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = CliRunner().invoke
    assert run(app, ["desk", *place, "token", "make", "ann"]).exit_code == 0
    assert "ann" in run(app, ["desk", "token", "list", *place]).output
    assert "ann" not in run(app, ["desk", *place, "token", "list", "--tokens", "other"]).output


def test_no_option_takes_an_api_key() -> None:
    names = {name for command in get_command(app).commands.values() for name in options(command)}  # type: ignore[attr-defined]
    assert "--address" in names
    assert not [name for name in names if "key" in name]


def options(command: Any) -> list[str]:
    """List the options of a command."""
    return [name for each in command.params for name in each.opts]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidArgumentError("x"), 2),
        (UserError("x"), 2),
        (TaskExistsError("t"), 2),
        (TaskNotFoundError("t"), 4),
        (AgentNotFoundError("x"), 4),
        (ConnectError("x"), 5),
        (NoWorkerError("hf.x"), 5),
        (ArchiveMismatchError("x"), 5),
        (StepFailedError("x", task_id="t", step_id="s1"), 1),
        (MaxTurnsExceeded("x"), 1),
        (TaskClosedError("x"), 1),
        (CommandRefusedError("x"), 1),
    ],
)
def test_the_exit_code_tells_whose_turn_it_is(error: HoldfastError, code: int) -> None:
    assert exit_code_of(error) == code


def _commands(group: Any) -> Iterator[Any]:
    for each in group.commands.values():
        yield from _commands(each) if hasattr(each, "commands") else (each,)


def test_each_declared_command_names_a_function_that_takes_what_is_typed() -> None:
    declared = [each for each in _commands(get_command(app)) if hasattr(each.callback, "place")]
    assert len(declared) > 40
    shared = {"data_dir", "address", "namespace", "archive", "json"}
    for each in declared:
        module, function = each.callback.place
        typed = [part.name for part in each.params if part.name not in shared]
        does = getattr(importlib.import_module(module), function)
        inspect.signature(does).bind("common", **dict.fromkeys(typed))


def test_a_time_that_no_clock_shows_is_wrong_usage() -> None:
    ran = CliRunner().invoke(app, ["run", "agent", "Hello?", "--start-at", "0001-01-01"])
    assert ran.exit_code == ExitCode.USAGE
    assert "cannot be told as a local time" in ran.output
