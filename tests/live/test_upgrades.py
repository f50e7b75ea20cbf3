"""Two builds of the code serve one queue: tasks go on, and none has a workflow task that fails."""

import itertools
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import WorkflowTaskFailedCause

from holdfast import Agent, AgentRunner, Task
from holdfast.engine.dev_server.command import find_cli
from holdfast.engine.dev_server.serverinfo import ServerInfo
from holdfast.errors import InvalidArgumentError
from holdfast.serving import deployments
from holdfast.serving.deployments import check_open_tasks, deployment_config
from holdfast.testing import FakeOpenAI, FakeRequest, Reply, ScriptedModel, calls, reply
from tests.support import forked
from tests.support.cli import ROOT, Cli, Running, unforked
from tests.support.rig import Engine, Rig, histories, roll, step_a_task, until, until_status
from tests.support.scale import times

UNHANDLED = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND
PAY = json.dumps([["pay", {"thing": "rent"}]])
TURNS: dict[str, str] = {
    "ends": "[]",
    "waits": PAY,
    "rolls": PAY,
    "holds": json.dumps([["hold", {"thing": "a door"}]]),
    "nests": json.dumps([["ask", {"input": PAY}]]),
    "steps": json.dumps([["look", {"thing": "here"}], ["look", {"thing": "there"}]]),
}
"""What a task of each kind has its model call: a list of turns, each a tool with its arguments."""

AGENTS = '''
import asyncio
from pathlib import Path

from holdfast import Agent, tool

@tool(effect="read")
def look(thing: str) -> str:
    """Look at a thing."""
    return f"{thing}, by build BUILD"

@tool(effect="read")
async def hold(thing: str) -> str:
    """Hold a thing while the file `held` is there."""
    Path("HERE/holds").touch()
    while Path("HERE/held").exists():
        await asyncio.sleep(0.02)
    return "held"

@tool(needs_approval=True, idempotent=True)
def pay(thing: str) -> str:
    """Pay for a thing."""
    return f"paid by build BUILD"

clerk = Agent(name="clerk", model="gpt-5-mini", tools=[pay])
ask = clerk.as_tool("ask", "Has a clerk do it.")
agent = Agent(name="agent", model="gpt-5-mini", tools=[look, hold, pay, ask], instructions="BUILD")
'''
INTRODUCES = "        introduce(given)\n"
TIMER = "core.background.keep(asyncio.sleep(3600))\n"
OTHER = {
    True: f"        {TIMER}",
    False: f'        if workflow.patched("an-hour"):\n            {TIMER}',
}
"""What the second build's code decides besides: a timer, which only tasks that are pinned, or a
patch, keep from those that have begun without it."""


def plan(request: FakeRequest) -> Reply:
    """Answer as the last user message says."""
    asked = [i for i, each in enumerate(request.messages) if each.role == "user"][-1]
    done = [each for each in request.messages[asked:] if each.role == "tool"]
    turns = json.loads(request.last_user)
    return calls([tuple(turns[len(done)])]) if len(done) < len(turns) else reply("final")


@dataclass
class Shop:
    """A deployment of two builds, and the tasks that they serve."""

    cli: Cli
    runner: AgentRunner
    environment: dict[str, str]
    name: str

    def build(self, build: str, pin: bool) -> dict[str, str]:
        """Return the environment of a build's workers; the second is of another checkout."""
        home = self.cli.home / build
        if not home.exists():
            home.mkdir()
            agents = AGENTS.replace("BUILD", build).replace("HERE", str(self.cli.home))
            (home / "my_agents.py").write_text(agents, "utf-8")
            if build == "2":
                for name in ("holdfast", "workflows", "activities"):
                    shutil.copytree(ROOT / name, home / name, symlinks=True)
                code = home / "workflows/agent_task.py"
                old = code.read_text("utf-8")
                code.write_text(old.replace(INTRODUCES, INTRODUCES + OTHER[pin]), "utf-8")
        return {**self.environment, "HOLDFAST_BUILD": build, "PYTHONPATH": f"{home}:{ROOT}"}

    @contextmanager
    def worker(self, build: str, pin: bool) -> Generator[Running]:
        """Run a worker process of a build, which must first be able to take over all tasks."""
        words = ["worker", "my_agents:agent", "--check", *(["--pin"] if pin else [])]
        environment = self.build(build, pin)
        python = unforked if build == "2" else forked.command
        cli = Cli(self.cli.home / build)
        with cli.running(*words, environment=environment, python=python) as process:
            process.until_said("Serving")
            deadline = time.monotonic() + 60
            while build not in self.builds():  # the server lists a build soon after its first poll
                assert time.monotonic() < deadline, build
                time.sleep(0.1)
            yield process

    def builds(self) -> dict[str, Any]:
        """Return what Temporal says of each build of the deployment that it knows."""
        try:
            known = self.temporal("worker", "deployment", "describe", "--name", self.name)
        except subprocess.CalledProcessError:
            return {}
        return {each["BuildID"]: each for each in known["versionSummaries"]}

    def temporal(self, *words: str) -> Any:
        """Run Temporal's own command."""
        where = ("--address", self.environment["TEMPORAL_ADDRESS"], "--output", "json")
        done = subprocess.run(
            [find_cli(), *words, *where], capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout or "null")

    def make_current(self, build: str) -> None:
        """Have new tasks begin with a build, and those that are not pinned go on with it."""
        self.temporal(
            *("worker", "deployment", "set-current-version", "--yes"),
            *("--deployment-name", self.name, "--build-id", build),
        )

    def deploys(self) -> dict[str, dict[str, Any]]:
        """Return what `holdfast deploys` says of each build; the states are those of Temporal."""
        words = ("deploys", "--deployment", self.name, "--json")
        found = {
            each["build"]: each for each in self.cli(*words, environment=self.environment).lines
        }
        known = self.temporal("worker", "deployment", "describe", "--name", self.name)
        current = known["routingConfig"]["currentVersionBuildID"]
        drains = {each["BuildID"]: each["drainageStatus"] for each in known["versionSummaries"]}
        assert set(found) == set(drains)
        assert [name for name, each in found.items() if each["state"] == "current"] == [current]
        said = {each["state"] for each in found.values()} - {"current", "inactive"}
        assert said == {*drains.values()} - {"unspecified"}
        return found

    async def begin(self, kinds: Iterator[str], count: int) -> dict[str, tuple[str, Task]]:
        """Create tasks, and wait until each is where it can be left."""
        made: dict[str, tuple[str, Task]] = {}
        for _, kind in zip(range(count), kinds, strict=False):
            mode: Any = "manual" if kind == "steps" else "automatic"
            session = "everyone" if kind == "ends" else None
            task = await self.runner.create_task(TURNS[kind], step_mode=mode, session=session)
            made[task.task_id] = (kind, task)
        for kind, task in made.values():
            if kind == "steps":
                await self.runner.run_step(task)
            elif kind in {"waits", "rolls", "nests"}:
                await until_status(self.runner, task, "waiting")
            elif kind == "ends":
                await self.close(task)
        return made

    async def end(self, tasks: dict[str, tuple[str, Task]]) -> None:
        """Let tasks come to their ends."""
        for kind, task in tasks.values():
            if kind == "rolls":
                await roll(self.runner, task)
            for each in await self.runner.pending_approvals(task):
                await self.runner.approve(each, by="ann")
            if kind == "steps":
                while not (await self.runner.run_step(task)).is_last:
                    pass
        for kind, task in tasks.values():
            if kind != "ends":
                await self.close(task)

    async def close(self, task: Task) -> None:
        """Wait for the answer of a task, and close it."""
        await until_status(self.runner, task, "answered")
        await self.runner.finalize_response(task)

    async def builds_of(self, workflow_id: str) -> set[str]:
        """Return which builds decided for a workflow; none may have failed at it."""
        found = set[str]()
        for history in await histories(self.runner.client, workflow_id):
            for event in history.events:
                # What comes while a task closes or rolls over has the server ask once more.
                cause = event.workflow_task_failed_event_attributes.cause
                assert cause in {0, UNHANDLED}, (workflow_id, event)
                decided = event.workflow_task_completed_event_attributes.deployment_version
                if decided.build_id:
                    found.add(decided.build_id)
        return found


@pytest.fixture
def shop(engine: Engine, server: ServerInfo, tmp_path: Path) -> Iterator[Shop]:
    rig = Rig(engine)  # not the fixture: this code does not replay what the other build decided
    with FakeOpenAI(plan) as api:
        environment = {
            "TEMPORAL_ADDRESS": server.address,
            "HOLDFAST_ARCHIVE": engine.archive.url,
            "HOLDFAST_APP": rig.app,
            "HOLDFAST_DEPLOYMENT": f"shop-{rig.app}",
            "OPENAI_BASE_URL": api.base_url,
            "OPENAI_API_KEY": "sk-of-the-tests-1",
        }
        runner = rig.runner(heartbeat=2.0, roll_events=40)
        yield Shop(Cli(tmp_path), runner, environment, f"shop-{rig.app}")


@pytest.mark.parametrize("pin", [False, True], ids=["auto", "pin"])
async def test_tasks_go_on_over_an_upgrade_a_killed_worker_and_a_rollback(
    shop: Shop, pin: bool
) -> None:
    held = shop.cli.home / "held"
    held.touch()
    with ExitStack() as stack:
        first = stack.enter_context(shop.worker("1", pin))
        shop.make_current("1")
        older = await shop.begin(itertools.cycle(TURNS), times(6, 30))
        await until_file(shop.cli.home / "holds")
        stack.enter_context(shop.worker("2", pin))
        assert not shop.deploys()["1"]["may_stop"]
        shop.make_current("2")
        newer = await shop.begin(itertools.cycle(TURNS), times(6, 30))
        # Tasks that are not pinned may leave at once: nothing but running calls is left behind.
        assert shop.deploys()["1"]["may_stop"] is not pin
        assert not shop.deploys()["2"]["may_stop"]
        first.end(signal.SIGKILL)
        held.unlink()
        if pin:
            stack.enter_context(shop.worker("1", pin))
        await shop.end({id: each for id, each in older.items() if each[0] != "waits"})
        # Back to the build before, while some of both wait for a person.
        if pin:
            shop.make_current("1")
            await shop.end(newer)
        else:
            words = ("worker", "my_agents:agent", "--check")
            old = Cli(shop.cli.home / "1")
            refused = old(*words, expect=5, environment=shop.build("1", pin))
            begun_with_patch = [id for id in newer if id in refused.err]
            assert begun_with_patch
            assert not any(id in refused.err for id in older)
            assert "[TMPRL1100]" in refused.err
            await shop.end(newer)
            stack.enter_context(shop.worker("1", pin))
            shop.make_current("1")
        await shop.end({id: each for id, each in older.items() if each[0] == "waits"})
        newest = await shop.begin(itertools.cycle(TURNS), 1)
        await shop.end(newest)
    for id, (kind, task) in {**older, **newer, **newest}.items():
        decided = await shop.builds_of(id)
        begun = "2" if id in newer else "1"
        if pin:
            assert decided == {begun}, kind
        elif id in older:
            assert decided == ({"1"} if kind in {"ends", "waits"} else {"1", "2"}), kind
        for child in await shop.runner.list_tasks(parent=task):
            assert await shop.builds_of(child.task_id) == decided
    session = await shop.builds_of(shop.runner.session("everyone").id)
    assert session == {"1", "2"}


async def until_file(path: Path) -> None:
    await until(path.exists)


@pytest.mark.parametrize(
    ("deployment", "build"), [("shop", ""), ("", "1"), ("my.shop", "1"), ("shop", "a:b")]
)
def test_a_name_that_the_server_would_give_no_work_is_refused(deployment: str, build: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"HOLDFAST_(DEPLOYMENT|BUILD)"):
        deployment_config(deployment, build)


async def test_a_check_reads_of_each_queue(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What one queue has read, the others may read as well; and to read nothing is no success."""
    rigs, sizes = [Rig(engine), Rig(engine)], list[int]()
    for rig in rigs:
        agent = Agent(name="agent", model=ScriptedModel(lambda _request: "hello"))
        runner = await rig.serving(agent)
        task = await step_a_task(runner)
        await rig.stop()
        [history] = await histories(engine.client, task.task_id)
        sizes.append(sum(event.ByteSize() for event in history.events))
        query = f"WorkflowId = '{task.task_id}'"

        async def is_listed(query: str = query) -> bool:
            return (await engine.client.count_workflows(query)).count == 1

        await until(is_listed)
    caplog.set_level("INFO", "holdfast")
    queues = [rig.queue for rig in rigs]
    # More than one history and less than two, also when a workflow task has timed out meanwhile.
    monkeypatch.setattr(deployments, "MOST_BYTES", int(1.7 * min(sizes)))
    await check_open_tasks(engine.client, queues, None, 5)
    assert "open tasks replayed: 2; all go on with this code" in caplog.text
    monkeypatch.setattr(deployments, "MOST_BYTES", min(sizes) // 2)
    await check_open_tasks(engine.client, queues, None, 5)
    assert f"no open task of these queues was replayed: {', '.join(queues)}" in caplog.text
