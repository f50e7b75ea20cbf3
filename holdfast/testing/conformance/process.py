"""The agent of the conformance suite, and a worker process that serves it until it is killed."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Protocol

from holdfast.agents.agent import Agent
from holdfast.agents.tools.context import Effect, ToolContext
from holdfast.agents.tools.decorator import Tool, tool
from holdfast.archive.archive import Archive
from holdfast.engine.connect import connect_embedded
from holdfast.engine.dev_server.serverinfo import ServerInfo
from holdfast.models.openai.responses import ResponsesModel
from holdfast.serving.plugin import HoldfastPlugin
from holdfast.serving.worker_process import build_worker
from holdfast.workers.base import AgentWorker

AGENT = "conformance"
POLL_SECONDS = 0.02


class Notebook:
    """The record of the tool `note`, in a file that outlives the process that ran the tool."""

    def __init__(self, home: Path) -> None:
        """Keep it in this directory."""
        self._home = home
        self._file = home / "notes.jsonl"
        self._hold = home / "hold"

    def write(self, event: str, text: str) -> None:
        """Append an event, safe from a kill in the next moment."""
        line = json.dumps({"event": event, "text": text}).encode() + b"\n"
        file = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, line)
            os.fsync(file)
        finally:
            os.close(file)

    def texts(self, event: str = "noted") -> list[str]:
        """List the texts of an event: "begun", "noted" or "erased"."""
        lines = self._file.read_text(encoding="utf-8").splitlines() if self._file.exists() else []
        events = [json.loads(line) for line in lines]
        return [each["text"] for each in events if each["event"] == event]

    def kept(self) -> list[str]:
        """List what is written down and was not erased, sorted."""
        left = self.texts()
        for text in self.texts("erased"):
            left.remove(text)
        return sorted(left)

    def hold(self) -> None:
        """Hold calls between their beginning and their end."""
        self._hold.touch()

    @property
    def held(self) -> int:
        """Number of held calls; 0 when calls are not held."""
        if not self._hold.exists():
            return 0
        return len(self.texts("begun")) - len(self.texts("noted"))

    def let_go(self) -> None:
        """Let held calls go on."""
        self._hold.unlink(missing_ok=True)

    async def pass_hold(self) -> None:
        """Wait while calls are held."""
        while self._hold.exists():  # noqa: ASYNC110  the file is of another process
            await asyncio.sleep(POLL_SECONDS)


class Suite(Protocol):
    """The part of a conformance class that the agent needs."""

    uses_tools: ClassVar[bool]

    def make_worker(self) -> AgentWorker:
        """Make the worker under test."""
        ...

    def agent_options(self) -> Mapping[str, Any]:
        """More arguments of Agent."""
        ...


def make_note(book: Notebook, *, asks: bool) -> Tool:
    """Make the tool `note`; with `asks` each call needs approval."""

    def erase(effect: Effect) -> None:
        book.write("erased", str(effect.arguments["text"]))

    @tool(undo=erase, needs_approval=asks)
    async def note(ctx: ToolContext, text: str) -> str:
        """Write a text down.

        Args:
            text: The text.
        """
        del ctx
        book.write("begun", text)
        await book.pass_hold()
        book.write("noted", text)
        return noted(text)

    return note


def noted(text: str) -> str:
    """Return the answer of the tool `note`."""
    return f"noted: {text}"


def make_agent(
    suite: Suite, worker: AgentWorker, *, base_url: str, book: Notebook, asks: bool = False
) -> Agent:
    """Make the agent that the suite runs."""
    given: dict[str, Any] = {
        "name": AGENT,
        "instructions": "Do what is asked. Use the tools that you have.",
        "model": ResponsesModel("gpt-5-mini", base_url=base_url, api_key="sk-of-the-suite-1"),
        "tools": [make_note(book, asks=asks)] if suite.uses_tools else [],
        "worker": worker,
        **suite.agent_options(),
    }
    return Agent(**given)


@dataclass(frozen=True)
class Job:
    """The arguments of a worker process.

    Attributes:
        server: The Temporal server.
        archive: Directory of the archive.
        app: Name of the app.
        base_url: The fake model API.
        home: Directory of the notebook and of the log.
        module: Module of the conformance class.
        file: Its file, for a module that cannot be imported by name.
        qualname: The class within the module.
    """

    server: ServerInfo
    archive: str
    app: str
    base_url: str
    home: str
    module: str
    file: str
    qualname: str


def serve(job: Job) -> None:
    """Serve the agent of a conformance class until this process is killed."""
    log = os.open(Path(job.home) / "process.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        asyncio.run(_serve(job))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        raise


async def _serve(job: Job) -> None:
    make_suite = find_class(job.module, job.file, job.qualname)
    suite = make_suite()
    book = Notebook(Path(job.home))
    archive = Archive(Path(job.archive))
    client = await connect_embedded(job.server, plugins=[HoldfastPlugin(archive=archive)])
    agent = make_agent(suite, suite.make_worker(), base_url=job.base_url, book=book)
    worker = build_worker(
        client,
        [agent],
        app=job.app,
        archive=archive,
        # How long a task waits for this process after the kill.
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
    )
    async with worker:
        (Path(job.home) / "serving").touch()
        await asyncio.Event().wait()


def find_class(module: str, file: str, qualname: str) -> Callable[[], Suite]:
    """Import a class by its module's name, or from its file."""
    found: Any = _module(module, file)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]


def _module(name: str, file: str) -> ModuleType:
    try:
        module = importlib.import_module(name)
        if name == "__main__" or not file or getattr(module, "__file__", None) == file:
            return module
    except ModuleNotFoundError:
        if not file:
            raise
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot import {name!r} from {file!r}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
