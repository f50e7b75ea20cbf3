"""The examples, run by the commands in their own docstrings; all are offline."""

import ast
import re
import shlex
import shutil
import signal
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import forked
from tests.support.programs import printed_by

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("[!_]*.py"))


def command_of(example: str) -> list[str]:
    """Return the first command that the docstring names, without the name of Python."""
    text = (ROOT / "examples" / example).read_text(encoding="utf-8")
    found = re.search(
        r"^python (.+?)(?:   .*)?$", ast.get_docstring(ast.parse(text)) or "", re.MULTILINE
    )
    assert found is not None, f"{example} does not say how to run it"
    return shlex.split(found[1])


def output_of(example: str, directory: Path) -> str:
    """Run an example in a checkout of its own, `holdfast` installed; return what it printed."""
    checkout, installed = directory / "checkout", directory / "installed"
    if not checkout.exists():
        shutil.copytree(ROOT / "examples", checkout / "examples")
        installed.mkdir()
        (installed / "holdfast").symlink_to(ROOT / "holdfast")
    environment = {**forked.bare_environment(), "PYTHONPATH": str(installed)}
    return printed_by(forked.command(*command_of(example)), checkout, environment)


def test_an_example_names_itself_in_its_command_and_needs_no_other() -> None:
    own = {"examples", *(each.removesuffix(".py") for each in EXAMPLES)}
    for example in EXAMPLES:
        assert command_of(example)[0] == f"examples/{example}"
        tree = ast.parse((ROOT / "examples" / example).read_text(encoding="utf-8"))
        named = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        for node in ast.walk(tree):
            named += [each.name for each in node.names] if isinstance(node, ast.Import) else []
        assert not {name.partition(".")[0] for name in named} & own, example


PRINTED: dict[str, str] = tomllib.loads(
    Path(__file__).with_name("examples.toml").read_text(encoding="utf-8")
)
"""What each example prints, in this order; `make test` runs those with a star."""


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(each.strip("*"), marks=() if each[0] == "*" else pytest.mark.exhaustive)
        for each in PRINTED
    ],
)
def test_an_example_prints_what_it_shows(tmp_path: Path, example: str) -> None:
    printed, at = output_of(f"{example}.py", tmp_path), 0
    for line in (PRINTED.get(example) or PRINTED[f"*{example}"]).splitlines():
        at = printed.find(line.strip(), at)
        assert at >= 0, (line, printed)


@pytest.mark.exhaustive
def test_a_task_is_gone_on_with_by_one_process_after_the_other(tmp_path: Path) -> None:
    printed = [output_of("step_by_step.py", tmp_path) for _ in range(4)]
    seen = zip(("multiply", "add", "405", "Done before"), printed, strict=True)
    assert [word for word, text in seen if word not in text] == []


# ---- the programs of examples/llama_index, also killed in the middle and run again


PROGRAMS = ROOT / "examples" / "llama_index"


@dataclass(frozen=True)
class Program:
    """A program and what it prints.

    Attributes:
        killed_at: Begin of the line at which it is killed.
        asked: How often its model is asked, lines that begin with "(".
        ends: The last lines that it prints.
        at_once: Most of these in one step: those of a step that was cut off are asked again.
        typed: What a person types, also when it was killed and is started again.
    """

    killed_at: str
    asked: int
    ends: str
    at_once: int = 1
    typed: str = ""


ALL = {
    name: Program(**told)
    for name, told in tomllib.loads(
        Path(__file__).with_name("programs.toml").read_text(encoding="utf-8")
    ).items()
}
USUAL = ("agent_runner", "query_pipeline_agent")
"""Those that `make test` kills: by steps and chats, and a pipeline."""
each_program = pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=() if each in USUAL else pytest.mark.exhaustive) for each in ALL],
)


def start(name: str, directory: Path) -> subprocess.Popen[str]:
    """Start a program in a directory of its own."""
    started = subprocess.Popen(
        forked.command(str(PROGRAMS / f"{name}.py")),
        cwd=directory,
        env={**forked.bare_environment(), "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stdin is not None
    started.stdin.write(ALL[name].typed)
    started.stdin.close()
    started.stdin = None
    return started


def finished(started: subprocess.Popen[str]) -> list[str]:
    """Wait for a program's end; return the lines that it printed."""
    printed, errors = started.communicate(timeout=100)
    assert started.returncode == 0, errors
    return printed.splitlines()


def asked(lines: list[str]) -> int:
    return sum("(the" in line for line in lines)


def check(program: Program, lines: list[str]) -> None:
    own = [line.rpartition(">> A remark? ")[2] for line in lines]
    wanted = program.ends.strip().splitlines()
    assert [line for line in own if not line.startswith("(")][-len(wanted) :] == wanted


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ALL)
def test_a_program_of_the_old_api_runs(name: str, tmp_path: Path) -> None:
    lines = finished(start(name, tmp_path))
    check(ALL[name], lines)
    assert asked(lines) == ALL[name].asked


@each_program
def test_a_killed_program_goes_on_when_it_is_started_again_and_pays_no_answer_twice(
    name: str, tmp_path: Path
) -> None:
    program, killed = ALL[name], start(name, tmp_path)
    assert killed.stdout is not None
    before: list[str] = []
    for line in killed.stdout:
        before.append(line.rstrip("\n"))
        if program.killed_at in line:
            break
    killed.send_signal(signal.SIGKILL)
    before += killed.stdout.read().splitlines()  # with what is buffered, which communicate skips
    killed.communicate()
    lines = finished(start(name, tmp_path))
    check(program, lines)
    # What was on its way at the kill is asked for once more.
    assert program.asked <= asked(before) + asked(lines) <= program.asked + program.at_once
    assert asked(lines) < program.asked
