"""The programs of examples/llama_index: run to the end, and killed in the middle and run again."""

import signal
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import forked

ROOT = Path(__file__).parent.parent.parent
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
