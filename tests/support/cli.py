"""The command line as its users have it: processes in a directory of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

from temporalio.client import Client
from typer import testing
from typer.main import get_command

import holdfast
from holdfast import AgentRunner
from holdfast.cli.app import app
from holdfast.cli.connection import Engine
from tests.support import forked
from tests.support.programs import ran

# Else each call makes all commands again, which takes longer than most of them.
setattr(testing, "_get_command", cache(get_command))  # noqa: B010  private to Typer

PATIENCE_SECONDS = 100
ROOT = Path(holdfast.__file__).parents[1]
HIDDEN = ("TEMPORAL_", "HOLDFAST_", "OPENAI_", "NO_COLOR", "FORCE_COLOR")

AGENTS = '''
"""Agents for tests of the command line."""
import asyncio
import time
from pathlib import Path

from holdfast import Agent, tool
from holdfast.errors import ModelRequestError
from holdfast.models import OfflineModel


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(effect="read")
def multiply(a: int, b: int) -> int:
    """Multiply once the file `open` is there; until then the file `inside` tells of the call."""
    Path("inside").touch()
    while not Path("open").exists():
        time.sleep(0.02)
    return a * b


class Broken:
    """A model that refuses until the file `healed` is there."""

    name = "broken"

    async def respond(self, request):
        if not Path("healed").exists():
            raise ModelRequestError(f"the key was refused{' again' * 50}", status=401)
        return await OfflineModel().respond(request)


class Slow:
    """A model that answers once the file `open` is there."""

    name = "slow"

    async def respond(self, request):
        Path("inside").touch()
        while not Path("open").exists():
            await asyncio.sleep(0.02)
        return await OfflineModel().respond(request)


calc = Agent(name="calc", model=OfflineModel(), tools=[add, multiply])
sick = Agent(name="sick", model=Broken(), tools=[add])
slow = Agent(name="slow", model=Slow(), tools=[add])
agents = [calc, sick, slow]
'''


def unforked(*arguments: str) -> list[str]:
    """Return the command line of a process of its own, whose children are its children."""
    return [sys.executable, *arguments]


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON object on stdout."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The JSON objects on stdout, one per line."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True)
class Cli:
    """A directory with agents and, below it, the data directory."""

    home: Path

    @property
    def data_dir(self) -> Path:
        return self.home / "data"

    def environment(self, **more: str) -> dict[str, str]:
        """Leave out what would choose another engine or model."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(HIDDEN)}
        return {**kept, "PYTHONPATH": str(ROOT), "HOLDFAST_DATA_DIR": str(self.data_dir), **more}

    def __call__(
        self,
        *arguments: object,
        expect: int = 0,
        environment: Mapping[str, str] | None = None,
        lines: str = "",
    ) -> Result:
        """Run a command to its end, with lines to read, and check its exit code."""
        command = forked.command("-m", "holdfast.cli", *map(str, arguments))
        ended = ran(command, self.home, self.environment(**(environment or {})), input=lines)
        done = Result(ended.returncode, ended.stdout, ended.stderr)
        assert done.code == expect, f"{arguments}: {done.code}\n{done.err}"
        return done

    @contextmanager
    def running(
        self,
        *arguments: object,
        environment: Mapping[str, str] | None = None,
        python: Callable[..., list[str]] = forked.command,
    ) -> Generator[Running]:
        """Run a command in the background; it is killed when the block leaves it running."""
        process = subprocess.Popen(
            python("-m", "holdfast.cli", *map(str, arguments)),
            cwd=self.home,
            env=self.environment(**(environment or {})),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                yield Running(process)
            finally:
                process.kill()


@dataclass(frozen=True)
class Running:
    """A command in the background."""

    process: subprocess.Popen[str]

    @property
    def out(self) -> IO[str]:
        assert self.process.stdout is not None
        return self.process.stdout

    @property
    def err(self) -> IO[str]:
        assert self.process.stderr is not None
        return self.process.stderr

    def first_json(self) -> Any:
        """Wait for the first line on stdout."""
        line = self.out.readline()
        assert line, self.err.read()
        return json.loads(line)

    def until_said(self, text: str) -> str:
        """Wait until a line with this text is on stderr; return the line."""
        said: list[str] = []
        while line := self.err.readline():
            said.append(line)
            if text in line:
                return line
        raise AssertionError(f"{text!r} was never said:\n{''.join(said)}")

    def end(self, number: int = signal.SIGTERM) -> Result:
        """Send a signal and wait for the end."""
        self.process.send_signal(number)
        return self.finish()

    def finish(self) -> Result:
        """Wait for the end; of stderr it gives what came after the last line asked for."""
        out, err = self.process.communicate(timeout=PATIENCE_SECONDS)
        return Result(self.process.returncode, out, err)


@dataclass(frozen=True)
class Here:
    """Runs commands in this process: what is claimed is what they print and their exit code.

    Attributes:
        home: The directory with the agents; who imports them here takes them out of `sys.modules`.
        data_dir: The data directory.
    """

    home: Path
    data_dir: Path

    def __call__(
        self, *arguments: object, expect: int = 0, environment: Mapping[str, str] | None = None
    ) -> Result:
        """Run a command and check its exit code."""
        given: dict[str, str | None] = {
            name: None for name in os.environ if name.startswith(HIDDEN)
        }
        given |= {"HOLDFAST_DATA_DIR": str(self.data_dir), **(environment or {})}
        with chdir(self.home):
            done = testing.CliRunner(env=given).invoke(
                app, [str(each) for each in arguments], catch_exceptions=False
            )
        assert done.exit_code == expect, f"{arguments}: {done.exit_code}\n{done.output}"
        return Result(done.exit_code, done.stdout, done.stderr)


def engine_of(runner: AgentRunner) -> Engine:
    """Return what commands read by, which makes no further client."""

    async def unused() -> Client:
        raise AssertionError

    return Engine(runner.client, runner.archive, unused)


def make_cli(home: Path) -> Cli:
    """Write the agents into a directory."""
    (home / "my_agents.py").write_text(AGENTS, encoding="utf-8")
    return Cli(home)
