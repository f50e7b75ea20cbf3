"""The programs of examples/llama_index: run to the end, and killed in the middle and run again."""

from __future__ import annotations

import os
import signal
import subprocess
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
        name: Its file.
        killed_at: Begin of the line at which it is killed.
        ends: The last lines that it prints.
        asked: How often its model is asked, lines that begin with "(".
        at_once: Most of these in one step: those of a step that was cut off are asked again.
        typed: What a person types.
        again: What a person types when it was killed and is started again.
    """

    name: str
    killed_at: str
    ends: tuple[str, ...]
    asked: int
    at_once: int = 1
    typed: str = ""
    again: str = ""


REPL = "risks?\nI meant June\n\nexit\n"

ALL = [
    Program(
        "agent_runner",
        killed_at="Observation: 363",
        ends=(
            "Observation: 363",
            "It is 405.",
            (
                "['user: Hi', 'assistant: Hello! Ask me for a sum.',"
                " 'user: What is (121 * 3) + 42?', 'assistant: It is 405.']"
            ),
        ),
        asked=4,
    ),
    Program(
        "forced_function_call",
        killed_at="auto: It is 7.",
        ends=("say_nothing: It is 7. ['say_nothing', 'add']", "none: It is 7, I think. []"),
        asked=6,
    ),
    Program(
        "return_direct",
        killed_at="My name is Ada.",
        ends=(
            "I would like a table. -> The booking is open. Which name, and which day?",
            "My name is Ada. -> Thank you. Which day?",
            "Friday would be fine. -> The booking of Ada is confirmed.",
            "{'name': 'Ada', 'day': 'Friday'}",
        ),
        asked=5,
    ),
    Program(
        "controllable_rag",
        killed_at="Observation: The risks in June",
        ends=(
            "Agent: The risks in June were strikes and heat.",
            ">> Human: user: risks?",
            "assistant: The risks in June were strikes and heat.",
        ),
        asked=3,
        typed=REPL,
        again=REPL,
    ),
    Program(
        "custom_agent",
        killed_at="One step: Which city?",
        ends=(
            "Subclass: Osterhamn has trams and ferries.",
            "Tries: 2",
            (
                "['user: Which transport has the city?',"
                " 'assistant: Osterhamn has trams and ferries.']"
            ),
        ),
        asked=4,
    ),
    Program(
        "query_pipeline_agent",
        killed_at="ReAct: True",
        ends=(
            "ReAct: True They made three.",
            ("['user: How many albums did The Tin Boats make?', 'assistant: They made three.']"),
            "Retry: The Tin Boats made 3 albums.",
        ),
        asked=6,
        at_once=2,
    ),
    Program(
        "structured_planner",
        killed_at="trams: Trams fear strikes.",
        ends=("both: Ferries fear storms. Trams fear strikes.",),
        asked=14,
    ),
    Program(
        "llm_compiler",
        killed_at="> multiply 121 3",
        ends=("405 ['363', '405']", "['user: What is (121 * 3) + 42?', 'assistant: 405']"),
        asked=2,
    ),
    Program(
        "chain_of_abstraction",
        killed_at="The chain is written.",
        ends=(
            "Trams grew more.",
            "['user: Which grew more, trams or ferries?', 'assistant: Trams grew more.']",
        ),
        asked=2,
    ),
    Program(
        "multimodal_react",
        killed_at="Observation: Shoes",
        ends=("1 image: shoes. Shoes are made in Osterhamn.",),
        asked=2,
    ),
]


KILLED = ("agent_runner", "controllable_rag")
"""Those of which `make test` kills each: one by steps and chats, one that a person types to."""


def start(program: Program, directory: Path, typed: str) -> subprocess.Popen[str]:
    """Start a program in a directory of its own."""
    hidden = ("TEMPORAL_", "HOLDFAST_", "OPENAI_")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(hidden)}
    started = subprocess.Popen(
        forked.command(str(PROGRAMS / f"{program.name}.py")),
        cwd=directory,
        env={**kept, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stdin is not None
    started.stdin.write(typed)
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
    ends = [line for line in own if not line.startswith("(")][-len(program.ends) :]
    assert ends == list(program.ends)


@pytest.mark.parametrize("program", ALL, ids=lambda program: program.name)
def test_a_program_of_the_old_api_runs(program: Program, tmp_path: Path) -> None:
    lines = finished(start(program, tmp_path, program.typed))
    check(program, lines)
    assert asked(lines) == program.asked


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(each, marks=() if each.name in KILLED else pytest.mark.exhaustive)
        for each in ALL
    ],
    ids=lambda program: program.name,
)
def test_a_killed_program_goes_on_when_it_is_started_again_and_pays_no_answer_twice(
    program: Program, tmp_path: Path
) -> None:
    killed = start(program, tmp_path, program.typed)
    assert killed.stdout is not None
    before: list[str] = []
    for line in killed.stdout:
        before.append(line.rstrip("\n"))
        if program.killed_at in line:
            break
    killed.send_signal(signal.SIGKILL)
    before += killed.communicate()[0].splitlines()
    lines = finished(start(program, tmp_path, program.again))
    check(program, lines)
    # What was on its way at the kill is asked for once more.
    assert program.asked <= asked(before) + asked(lines) <= program.asked + program.at_once
    assert asked(lines) < program.asked
