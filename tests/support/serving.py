"""Worker processes of their own, with agents of theirs and what they have logged."""

import json
import os
import re
import subprocess
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast import AgentRunner
from holdfast.archive.encryption.keys import Keys
from holdfast.testing import FakeOpenAI
from tests.support import forked

HIDDEN = ("TEMPORAL_", "HOLDFAST_", "OPENAI_")


@dataclass(frozen=True)
class Program:
    """A program of Holdfast that runs.

    Attributes:
        process: The process.
        log: The file of what it writes on stderr.
    """

    process: subprocess.Popen[str]
    log: Path

    @property
    def text(self) -> str:
        """What it has written on stderr so far."""
        return self.log.read_text("utf-8")

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What it has written, each line as JSON."""
        return [json.loads(line) for line in self.text.splitlines()]

    def wait_for(self, said: str) -> str:
        """Wait until it has written this; return it."""
        while (found := re.search(said, self.text)) is None:
            assert self.process.poll() is None, self.text
            time.sleep(0.02)
        return found[0]


@contextmanager
def running(
    *arguments: str, home: Path, agents: str = "", program: str = "holdfast", **variables: str
) -> Generator[Program]:
    """Run a program until the block ends.

    Args:
        arguments: Its arguments.
        program: The module that is run.
        home: Where it runs.
        agents: Code of its module `mine`.
        variables: Its environment, besides that of the tests.
    """
    kept = {key: text for key, text in os.environ.items() if not key.startswith(HIDDEN)}
    home.mkdir(exist_ok=True)
    (home / "mine.py").write_text(agents, "utf-8")
    log = home / "log"
    with (
        log.open("w") as stderr,
        subprocess.Popen(
            forked.command("-m", program, *arguments),
            cwd=home,
            env={**kept, **variables},
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            text=True,
        ) as process,
    ):
        try:
            yield Program(process, log)
        finally:
            process.terminate()
            process.communicate(timeout=60)


@asynccontextmanager
async def worker_of(
    model: FakeOpenAI, home: Path, agents: str, *, keys: Keys | None = None, **variables: str
) -> AsyncGenerator[tuple[Program, AgentRunner]]:
    """Run a worker process of agent `buyer`, by the fake API, and connect with it."""
    data = str(home / "data")
    arguments = ("worker", "mine:agents", "--data-dir", data)
    api = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "sk-of-the-tests-1"}
    with running(*arguments, home=home / "w", agents=agents, **api, **variables) as worker:
        worker.wait_for("serving")
        async with await AgentRunner.connect(agent="buyer", data_dir=data, keys=keys) as runner:
            yield worker, runner
