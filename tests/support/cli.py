"""The command line as its users have it: processes of their own, in a directory of their own."""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import holdfast

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
            raise ModelRequestError("the key was refused", status=401)
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
        return {
            **kept,
            "PYTHONPATH": str(ROOT),
            "HOLDFAST_DATA_DIR": str(self.data_dir),
            **more,
        }

    def __call__(
        self,
        *arguments: object,
        expect: int = 0,
        environment: Mapping[str, str] | None = None,
        lines: str = "",
    ) -> Result:
        """Run a command to its end, with lines to read, and check its exit code."""
        with TemporaryDirectory() as directory:
            files = {name: Path(directory, name) for name in ("in", "out", "err")}
            files["in"].write_text(lines, "utf-8")
            command = {
                "arguments": [*map(str, arguments)],
                "directory": str(self.home),
                "environment": self.environment(**(environment or {})),
                **{name: str(file) for name, file in files.items()},
            }
            code = _commands().run(command)
            done = Result(code, files["out"].read_text("utf-8"), files["err"].read_text("utf-8"))
        assert code == expect, f"{arguments}: {code}\n{done.err}"
        return done

    @contextmanager
    def running(
        self, *arguments: object, environment: Mapping[str, str] | None = None
    ) -> Generator[Running]:
        """Run a command in the background; it is killed when the block leaves it running."""
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli", *map(str, arguments)],
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


class _Commands:
    """The process whose forks the short commands are."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.commands"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that it can be killed with its forks
        )
        atexit.register(self.stop)

    def run(self, command: Mapping[str, Any]) -> int:
        """Run a command to its end; return its exit code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE_SECONDS)
            assert ready, f"{command['arguments']} did not end in {PATIENCE_SECONDS} s"
            return int(self._process.stdout.readline())
        except BaseException:  # its answer would be taken for the next command's
            self.stop()
            _commands.cache_clear()
            raise

    def stop(self) -> None:
        """End the process and the command that it runs, if any."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


_commands = functools.cache(_Commands)


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


def make_cli(home: Path) -> Cli:
    """Write the agents into a directory."""
    (home / "my_agents.py").write_text(AGENTS, encoding="utf-8")
    return Cli(home)
