"""A place to crash things in: processes to kill, a model that counts, and what was observed."""

import asyncio
import itertools
import json
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from holdfast import AgentRunner, Task
from holdfast.archive.archive import record_name
from holdfast.engine.cluster import has_workers
from holdfast.engine.dev_server.server import ensure_server
from holdfast.testing import FakeOpenAI, FakeRequest, Reply, calls, hang, reply
from holdfast.values.checks.gate import as_object
from holdfast.values.checks.ids import queue_of
from tests.crash import programs
from tests.crash.programs import AGENT, POLL_SECONDS, Job, make_runner
from tests.support.rig import event_types, until

SOON = 100.0

# One process has imported everything and forks: a worker is then up in a tenth of a second, and
# two cores are enough for hundreds of them. It has no threads, so forking is safe.
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["tests.crash.preloaded"])

numbers = itertools.count(1)


def plan(request: FakeRequest) -> Reply | None:
    """Answer as the last user message says: `run NAME look:a look:b,charge:c` is two turns.

    One turn is one answer with tool calls. After the last one comes the text `final` with all
    results, in the order of the conversation.
    """
    words = request.last_user.split()
    if words[0] != "run":
        return reply(f"<{request.last_user}>")
    turns = words[2:]
    results = answers(request)
    before = 0
    for turn in turns:
        wanted = [each.split(":") for each in turn.split(",")]
        if before == len(results):
            return calls([(name, {"thing": thing}) for name, thing in wanted])
        before += len(wanted)
    return reply(" ".join(["final", *results]))


def answers(request: FakeRequest) -> list[str]:
    """Return the tool results after the last user message."""
    texts: list[str] = []
    for message in reversed(request.messages):
        if message.role == "user":
            break
        if message.role == "tool":
            texts.insert(0, message.text)
    return texts


class Lab:
    """One test: an app, its processes, its model and its event file.

    Attributes:
        job: What its programs are told.
        api: The fake model.
        runner: A client in the test's own process.
        home: Directory of the test.
        processes: Its processes, in the order in which they were started.
    """

    def __init__(self, job: Job, api: FakeOpenAI, runner: AgentRunner) -> None:
        self.job = job
        self.api = api
        self.runner = runner
        self.home = job.home
        self.processes: list[BaseProcess] = []

    # ---- processes

    def start(self, program: Callable[[Job], None] = programs.work, **changes: Any) -> BaseProcess:
        """Start a program; a worker by default. It need not be up when this returns."""
        process = context.Process(target=program, args=(replace(self.job, **changes),))
        process.start()
        self.processes.append(process)
        return process

    async def serve(self, **changes: Any) -> BaseProcess:
        """Start a worker and wait until it serves, and until the server knows."""
        process = self.start(**changes)
        await self.until_event("serving", pid=process.pid)
        while not await has_workers(self.runner.client, queue_of(self.job.app)):
            await asyncio.sleep(POLL_SECONDS)
        return process

    async def kill(self, process: BaseProcess, number: int = signal.SIGKILL) -> None:
        """Send a signal and wait for the end of the process."""
        assert process.pid is not None
        os.kill(process.pid, number)
        await self.until_dead(process)

    async def until_dead(self, process: BaseProcess) -> None:
        """Wait until a process has ended."""
        await self.until(lambda: process.exitcode is not None, f"the end of process {process.pid}")

    async def end(self) -> None:
        """Kill what is left; nothing outlives a test."""
        for process in self.processes:
            if process.exitcode is None:
                process.kill()
        for process in self.processes:
            await asyncio.to_thread(process.join)
            process.close()

    async def kill_server(self) -> None:
        """Kill the Temporal server."""
        os.kill(self.job.server.pid, signal.SIGKILL)

    async def restart_server(self) -> None:
        """Start the Temporal server again on its SQLite file and its port."""
        assert self.job.server.data_dir is not None
        before = self.job.server.address
        self.job = replace(self.job, server=await ensure_server(self.job.server.data_dir))
        assert self.job.server.address == before

    # ---- conditions

    def hold(self, tool: str) -> None:
        """Let calls of a tool stop between their start and their end; "worker": ends of steps."""
        (self.home / f"hold.{tool}").touch()

    def let_go(self, tool: str) -> None:
        """Let held calls of a tool go on."""
        (self.home / f"hold.{tool}").unlink()

    def hold_model(self, asked: int, *, times: int = 1) -> None:
        """Hold the requests of this lab that carry this many tool results."""
        self.api.when(
            lambda request: self.is_mine(request) and len(answers(request)) == asked,
            hang(),
            times=times,
        )

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition."""
        try:
            async with asyncio.timeout(SOON):
                while not condition():
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            msg = f"waited {SOON:g} s for {what}\n{self.story()}"
            raise AssertionError(msg) from None

    async def until_event(self, event: str, count: int = 1, **facts: object) -> None:
        """Wait until this many such events are in the event file."""
        await self.until(lambda: len(self.events(event, **facts)) >= count, f"{event} {facts}")

    async def until_status(self, task: Task | str, status: str) -> None:
        """Wait until a task has a status."""
        found = ""
        try:
            async with asyncio.timeout(SOON):
                while found != status:
                    await asyncio.sleep(5 * POLL_SECONDS)
                    found = (await self.runner.get_task(task)).status
        except TimeoutError:
            msg = f"waited {SOON:g} s for status {status}; it is {found!r}\n{self.story()}"
            raise AssertionError(msg) from None

    # ---- what happened

    def events(self, event: str, **facts: object) -> list[dict[str, Any]]:
        """Return the events of a kind, oldest first."""
        file = self.home / "events.jsonl"
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        lines = text[: text.rfind("\n") + 1].splitlines()  # the last one may still be written
        found: list[dict[str, Any]] = [json.loads(line) for line in lines]
        return [
            each
            for each in found
            if each["event"] == event and all(each.get(k) == v for k, v in facts.items())
        ]

    def is_mine(self, request: FakeRequest) -> bool:
        """Tell whether a request is of this lab's tasks."""
        return f" {self.job.app} " in f"{request.last_user} "

    @property
    def requests(self) -> list[FakeRequest]:
        """The model requests of this lab, in order."""
        return [request for request in self.api.requests if self.is_mine(request)]

    @property
    def asked(self) -> list[int]:
        """The model requests in order, each as the number of tool results that it carried."""
        return [len(answers(request)) for request in self.requests]

    @property
    def starts(self) -> Counter[str]:
        """How often each tool call was started, by what it acted on."""
        return Counter(each["thing"] for each in self.events("start"))

    @property
    def ends(self) -> Counter[str]:
        """How often each tool call was completed."""
        return Counter(each["thing"] for each in self.events("end"))

    def story(self) -> str:
        """Tell what was observed, for a test that failed."""
        log = self.home / "worker.log"
        tail = log.read_text(encoding="utf-8", errors="replace")[-4000:] if log.exists() else ""
        file = self.home / "events.jsonl"
        events = file.read_text(encoding="utf-8") if file.exists() else ""
        return f"model requests: {self.asked}\n{events}\n{tail}"

    # ---- tasks

    def say(self, turns: str) -> str:
        """Write the input of a task that makes these turns."""
        return f"run {self.job.app} {turns}"

    async def create(self, turns: str, **options: Any) -> Task:
        """Create a task that makes these turns."""
        return await self.runner.create_task(self.say(turns), **options)

    async def until_recorded(self, task: Task, count: int) -> None:
        """Wait until the server has recorded this many results of activities."""
        await until(
            lambda: event_types(self.runner.client, task.task_id),
            lambda kinds: kinds.count("ACTIVITY_TASK_COMPLETED") >= count,
        )

    async def until_kept(self, task: Task) -> None:
        """Wait until the archive has the outcome of a call that ran in the activity of its step."""
        await until(
            lambda: self.runner.archive.afind_record(record_name("answers", f"{task.task_id}.0")),
            lambda found: as_object(found).get("done"),
        )


class Labs:
    """Makes labs for a test that crashes several things at once, to save its waiting time."""

    def __init__(self, job: Job, home: Path, api: FakeOpenAI) -> None:
        self._job = job
        self._home = home
        self._api = api

    @asynccontextmanager
    async def named(self, name: str) -> AsyncGenerator[Lab]:
        """Make a lab; what goes wrong in it is told under its name."""
        home = self._home / f"lab-{next(numbers)}"
        try:
            async with make_lab(self._job, home, self._api) as lab:
                yield lab
        except Exception as error:
            error.add_note(f"in the lab: {name}")
            raise


@asynccontextmanager
async def make_lab(job: Job, home: Path, api: FakeOpenAI) -> AsyncGenerator[Lab]:
    """Make a lab with an app of its own; its processes end with it."""
    home.mkdir(parents=True, exist_ok=True)
    job = replace(job, home=home, app=f"c{next(numbers)}", base_url=api.base_url)
    lab = Lab(job, api, await make_runner(job))
    try:
        yield lab
    finally:
        await lab.end()


__all__ = ["AGENT", "Lab", "Labs", "make_lab", "plan"]
