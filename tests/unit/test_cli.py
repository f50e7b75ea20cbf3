"""Which engine the options mean, and which exit code an error gives."""

import importlib
import inspect
import json
import math
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from typer.main import get_command
from typer.testing import CliRunner

from holdfast import AgentRunner, sync
from holdfast.cli.app import app
from holdfast.cli.commands.start import doctor
from holdfast.cli.commands.start.init import write_project
from holdfast.cli.commands.start.origin import origin
from holdfast.cli.demo.command import expected_value, is_right, join_calls
from holdfast.cli.demo.log import ExecutionLog, count, in_flight
from holdfast.cli.exits import ExitCode, exit_code_of
from holdfast.cli.options import Common
from holdfast.desk.api.writes import writes
from holdfast.desk.identity.tokens import ALLOWED
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
from holdfast.task.data.commands import ENVELOPE
from holdfast.task.data.records import StepRecord
from holdfast.values.code.extras import DISTRIBUTION
from holdfast.values.messages import Usage
from holdfast.values.runs.verbs import NAMES, VERBS, Verb
from holdfast.values.steps import TaskStep, ToolOutput
from tests.support.pages import PAGES, ROOT, blocks


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


def test_an_empty_name_of_who_asks_is_not_the_user_s() -> None:
    failed = CliRunner().invoke(app, ["pause", "t", "--by", ""])
    assert failed.exit_code == 2
    assert "it is empty. Name who asks" in failed.output


def test_no_option_takes_an_api_key() -> None:
    names = {name for command in get_command(app).commands.values() for name in options(command)}  # type: ignore[attr-defined]
    assert "--address" in names
    assert not [name for name in names if "key" in name]


def options(command: Any) -> list[str]:
    """List the options of a command."""
    return [name for each in command.params for name in each.opts]


@pytest.mark.parametrize(
    ("code", "errors"),
    [
        (2, [InvalidArgumentError, UserError, TaskExistsError]),
        (4, [TaskNotFoundError, AgentNotFoundError]),
        (5, [ConnectError, NoWorkerError, ArchiveMismatchError]),
        (1, [StepFailedError, MaxTurnsExceeded, TaskClosedError, CommandRefusedError]),
    ],
)
def test_the_exit_code_tells_whose_turn_it_is(code: int, errors: list[type[HoldfastError]]) -> None:
    assert [exit_code_of(kind.__new__(kind)) for kind in errors] == [code] * len(errors)


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


# ---- the demo's pure parts: what the answer must be, and what was executed how often


@pytest.mark.parametrize(
    ("question", "expression", "value"),
    [
        ("What is (121 * 3) + 42?", "(121 * 3) + 42", 405),
        ("12 divided by 5, please", "12 / 5", 2.4),
        ("2 to the power of 3 to the power of 2", "2^3^2", 512),
        ("-2^2", "-2^2", -4),
        ("2 ^ -1", "2^-1", 0.5),
        ("1,000 + 007", "1,000 + 007", 1007),
        ("0.1 + 0.2", "0.1 + 0.2", 0.3),
        ("2 ^ 0.5", "2^0.5", math.sqrt(2)),
    ],
)
def test_the_value_is_worked_out_apart(question: str, expression: str, value: float) -> None:
    found, worked_out = expected_value(question)
    assert found == expression
    assert worked_out == pytest.approx(value)


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("hello", "no arithmetic"),
        ("42", "no arithmetic"),
        ("1 / 0", "divides by zero"),
        ("0 ^ -1", "divides by zero"),
        ("9 ^ 9 ^ 9", "too large"),
        ("10 ^ 500", "too large"),
        ("10 ^ 200 * 10 ^ 200", "too large"),
        ("10 ^ 200 * 10 ^ 200 - 10 ^ 200 * 10 ^ 200", "too large"),
        ("(0 - 8) ^ 0.5", "not a real number"),
    ],
)
def test_what_has_no_value_is_refused(question: str, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        expected_value(question)


@pytest.mark.parametrize(
    ("answer", "value", "right"),
    [
        ("The result of (121 * 3) + 42 is 405.", 405, True),
        ("**405**", 405, True),
        ("It is 1,234,567.", 1234567, True),
        ("It is -0.5", -0.5, True),
        ("It is \u22127.", -7, True),
        ("It is 406.", 405, False),
        ("405 is less than 406", 405, False),
        ("I cannot say.", 405, False),
        ("", 0, False),
    ],
)
def test_the_last_number_of_an_answer_decides(answer: str, value: float, right: bool) -> None:
    assert is_right(answer, value) is right


def test_the_log_counts_what_was_started_and_what_was_completed(tmp_path: Path) -> None:
    log = ExecutionLog(tmp_path / "log")
    assert log.read() == []
    with log.execution("tool", "a"):
        pid = log.read()[0].pid
        assert in_flight(log.read(), "tool", "a", pid)
        assert not in_flight(log.read(), "tool", "a", pid + 1)
    assert not in_flight(log.read(), "tool", "a", pid)
    with pytest.raises(ZeroDivisionError), log.execution("tool", "a"):
        _ = 1 / 0
    counted = count(log.read())["tool", "a"]
    assert (counted.starts, counted.completions, counted.pids) == (2, 1, (pid, pid))


def test_a_line_that_a_kill_cut_short_is_left_out(tmp_path: Path) -> None:
    log = ExecutionLog(tmp_path / "log")
    with log.execution("model", "1"):
        pass
    with (tmp_path / "log").open("a") as file:
        file.write('{"kind": "mod')
    assert [each.event for each in log.read()] == ["start", "end"]


def test_calls_of_the_ledger_stand_beside_their_executions(tmp_path: Path) -> None:
    log = ExecutionLog(tmp_path / "log")
    with log.execution("model", "1"):
        pass
    with log.execution("tool", "c1"):
        pass
    steps = [
        StepRecord(n=1, step=TaskStep(), usage=Usage(requests=1)),
        StepRecord(n=2, step=TaskStep(), usage=Usage(requests=1), output="It is 3."),
    ]
    output = ToolOutput(tool_name="add", call_id="c1", raw_input='{"a": 1}', content="3")
    calls = join_calls("offline", steps, [[output], []], count(log.read()))
    assert [(c.name, c.text, c.starts, c.recorded) for c in calls] == [
        ("offline", 'asks for add {"a": 1}', 1, "answered"),
        ("add", '{"a": 1} -> 3', 1, "done"),
        ("offline", "It is 3.", 0, "answered"),  # the ledger has it, but nobody says to have run it
    ]


# ---- the commands in blocks of the documentation that no test runs: each is one that there is

SHELLS = ("sh", "bash")


def commands() -> Iterator[tuple[str, str]]:
    """Find the lines that call `holdfast` in blocks that are not run, each with its place."""
    for page in PAGES:
        for block in blocks(page):
            if block.info in SHELLS and block.said and not block.runner:
                for line in block.text.replace("\\\n", " ").splitlines():
                    if re.match(r"holdfast [a-z]", line):
                        yield block.place, line


@pytest.mark.parametrize(("place", "line"), [*commands()])
def test_a_command_that_is_shown_is_understood(place: str, line: str) -> None:
    command: Any = get_command(app)
    name, *given = shlex.split(re.split(r" [|>]", line)[0], comments=True)
    while given and given[0] in getattr(command, "commands", ()):
        name, *given = given
        command = command.commands[name]
    assert name != "holdfast", f"{place}: there is no such command"
    command.make_context(name, given)  # raises what the command would say of a wrong option


# ---- each verb is declared once, and has all that a user can reach it by

SERVED = [verb for verb in NAMES if VERBS[verb].role]


def rows(page: str, column: int) -> Iterator[tuple[set[str], str]]:
    """Yield the code in a column of each row of a page's tables, and the row."""
    for line in (ROOT / "docs" / page).read_text().splitlines():
        cells = line.split(" | ")
        if line.startswith("|") and len(cells) > column:
            yield set(re.findall(r"`(\w+)", cells[column])), line


def test_the_table_has_every_verb_and_no_other() -> None:
    assert set(VERBS) == set(NAMES)


@pytest.mark.parametrize("verb", NAMES)
def test_a_verb_has_a_method_with_a_twin(verb: Verb) -> None:
    method = VERBS[verb].method or verb
    assert getattr(sync.AgentRunner, method).__wrapped__ is getattr(AgentRunner, method)


@pytest.mark.parametrize("verb", SERVED)
def test_a_verb_can_be_reached_from_everywhere(verb: Verb) -> None:
    declared, commands = VERBS[verb], get_command(app)
    assert verb in {getattr(route, "name", "") for route in writes.routes}
    assert verb in ALLOWED[declared.role or "viewer"]
    known: Any = getattr(commands, "commands", {})
    assert verb.replace("_", "-") in known or verb == "uncover"  # which is seen at the desk alone


@pytest.mark.parametrize("verb", NAMES)
def test_the_texts_of_a_verb_name_fields_that_it_knows_and_the_tables_have_it(verb: Verb) -> None:
    declared = VERBS[verb]
    fields = set(re.findall(r'(?<!: )"(\w+)":', declared.body))
    assert fields <= {*declared.arguments, *ENVELOPE, "same", "scope", "until"}
    if declared.role:
        assert [line for names, line in rows("people.md", 1) if (declared.method or verb) in names]
        [row] = [line for names, line in rows("desk.md", 0) if declared.role in names]
        assert f"`{verb}`" in row


# ---- a new project asks for the Holdfast that made it, wherever that was installed from

COMMIT = "0123456789abcdef0123456789abcdef01234567"
GIT = {"vcs_info": {"vcs": "git", "commit_id": COMMIT, "requested_revision": "main"}}


def install(place: Path, monkeypatch: pytest.MonkeyPatch, direct: object = None) -> None:
    """Leave in a folder what an installer does, and let that folder be the only one."""
    about = place / "holdfast_agents-0.9.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: 0.9\n")
    if direct is not None:
        (about / "direct_url.json").write_text(json.dumps(direct))
    monkeypatch.setattr(sys, "path", [str(place)])


@pytest.mark.parametrize(
    ("direct", "wanted"),
    [
        (None, "==0.9"),
        ({"url": "https://host/a.git", **GIT}, f" @ git+https://host/a.git@{COMMIT}"),
        ({"url": "https://ann:pw@host/a.git", **GIT}, f" @ git+https://host/a.git@{COMMIT}"),
        ({"url": "https://token@host:81/a.git", **GIT}, f" @ git+https://host:81/a.git@{COMMIT}"),
        ({"url": "ssh://git:pw@host/a.git", **GIT}, f" @ git+ssh://git@host/a.git@{COMMIT}"),
        (
            {"url": "https://host/a.git", "subdirectory": "sub", **GIT},
            f" @ git+https://host/a.git@{COMMIT}#subdirectory=sub",
        ),
        (
            {"url": "https://host/a.whl?sig=s1", "archive_info": {"hashes": {"sha256": "ab"}}},
            " @ https://host/a.whl#sha256=ab",
        ),
        ({"url": "file:///a%20b/c.whl", "archive_info": {}}, " @ file:///a%20b/c.whl"),
        ({"url": "file:///a%20b", "dir_info": {"editable": True}}, " @ file:///a%20b"),
    ],
)
def test_requirement_names_the_origin_without_credentials(
    direct: object, wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, direct)
    text = origin().requirement("local", "desk")
    assert text == f"{DISTRIBUTION}[local,desk]{wanted}"
    assert Requirement(text).extras == {"local", "desk"}


@pytest.mark.parametrize(
    ("direct", "fetched", "mounted"),
    [
        (None, False, None),
        ({"url": "https://host/a.git", **GIT}, True, None),
        ({"url": "file:///a%20b/c.whl", "archive_info": {}}, False, ("/a b/c.whl", "/a b/c.whl")),
        ({"url": "file:///a%20%24b", "dir_info": {}}, True, ("/a $b", "/holdfast")),
    ],
)
def test_container_of_a_new_project_has_what_its_requirement_names(
    direct: object,
    fetched: bool,
    mounted: tuple[str, str] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(tmp_path / "site", monkeypatch, direct)
    project = write_project(tmp_path / "rooms")
    compose = yaml.safe_load((project / "docker-compose.yml").read_text("utf-8").replace("$$", "$"))
    worker = compose["services"]["worker"]
    [_, _, script] = worker["command"]
    assert script.startswith("cp /src/*.py") is not fetched
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)
    binds: list[object] = [each for each in worker["volumes"] if "source" in each]
    expected = [] if mounted is None else [dict(zip(("source", "target"), mounted, strict=True))]
    assert binds == [{"type": "bind", **each, "read_only": True} for each in expected]


def test_doctor_warns_of_the_other_project_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch)
    assert [each.level for each in doctor._packages()] == ["ok"]
    about = tmp_path / "holdfast-0.5.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: holdfast\nVersion: 0.5.1\n")
    [_, found] = doctor._packages()
    assert found.level == "warning"
    assert "pip uninstall holdfast" in found.remedy
