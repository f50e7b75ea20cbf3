"""A campaign: workers, server and clients are killed, stopped and continued at random.

`make soak CAMPAIGN=60` runs one of 60 minutes and ends with exit code 1 when a task was lost, an
effect was doubled or is told by no audit, a decision was not kept, or a record is not intact. The
seed is printed first; HOLDFAST_SOAK_SEED repeats what is drawn, though not the machine's timing.

All is encrypted, and tasks are erased meanwhile, by people and by a retention: what is left of one,
or stands anywhere in plain text, is a violation as well.
"""

import argparse
import asyncio
import base64
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast import AgentRunner
from holdfast.archive.bytestore import key_in
from holdfast.engine.dev_server.server import ensure_server, stop_server
from holdfast.errors import ErasedError, HoldfastError
from holdfast.testing import FakeOpenAI
from holdfast.values.checks.gate import as_object
from holdfast.values.messages import Message
from holdfast.values.steps import ListedTask
from tests.crash.programs import AGENT, KEYS, Job, make_runner
from tests.soak.agents import answer
from tests.soak.checks import Told, summary, violations
from tests.soak.clients import HEARTBEAT_SECONDS, OPEN, Person, settle
from tests.soak.faults import Cluster, Kind
from tests.soak.world import World
from tests.support.rig import until

FAULTS_A_MINUTE = 40.0
SETTLE_SECONDS = 300.0
"""How long people have, once nothing is killed any more, to bring one task to its end."""
APP = "soak"
PLAIN = f"run {APP} ".encode()
"""Stands in the input of each task."""


@dataclass(frozen=True)
class Report:
    """What came of a campaign.

    Attributes:
        seconds: How long faults were caused.
        faults: How many, by kind.
        violations: What must not be, in words.
        counts: What happened.
        requests: Model requests that the fake API answered.
    """

    seconds: float
    faults: dict[Kind, int]
    violations: list[str]
    counts: dict[str, object]
    requests: int

    def wire(self) -> dict[str, object]:
        """Return it as JSON data."""
        faults = {" ".join(kind): count for kind, count in sorted(self.faults.items())}
        return {
            "seconds": round(self.seconds),
            "faults": {"all": sum(self.faults.values()), **faults},
            "model_requests": self.requests,
            **self.counts,
            "violations": self.violations,
        }


async def campaign(home: Path, *, faults: int, seed: int) -> Report:
    """Cause this many faults, then let people end every task, and compare with the world.

    Args:
        home: An empty directory.
        faults: How many faults.
        seed: Of what is drawn.
    """
    chance = random.Random(seed)
    began = time.monotonic()
    (home / KEYS).write_text(f"k1 {base64.b64encode(os.urandom(32)).decode()}\n", "utf-8")
    with FakeOpenAI(answer, strict=False) as api:
        async with _cluster(home, api, chance) as cluster:
            runner = await make_runner(cluster.job, heartbeat=HEARTBEAT_SECONDS)
            days = faults / FAULTS_A_MINUTE / 2 / 1440  # half as long as this takes
            await runner.set_retention(AGENT, days, by="soak", every="5 s", rate=600)
            cluster.start()
            while sum(cluster.faults.values()) < faults:
                await asyncio.sleep(chance.expovariate(FAULTS_A_MINUTE / 60))
                await cluster.hit()
            seconds = time.monotonic() - began
            await cluster.calm()
            await runner.end_retention(AGENT)
            erased, left = await _erased(runner, home / "server")
            tasks = await _settled(Person(cluster.job, runner))
            world = World(home)
            lines = world.lines()
            names = {line["session"] for line in lines if line.get("session")}
            sessions = {name: await _remembered(runner, name) for name in names}
            return Report(
                seconds=seconds,
                faults=dict(cluster.faults),
                violations=left + violations(lines, tasks, sessions, erased),
                counts=summary(lines, tasks) | {"erased": len(erased)},
                requests=len(api.requests),
            )


@asynccontextmanager
async def _cluster(home: Path, api: FakeOpenAI, chance: random.Random) -> AsyncGenerator[Cluster]:
    data_dir = home / "server"
    server = await ensure_server(data_dir)
    job = Job(server=server, home=home, app=APP, base_url=api.base_url)
    cluster = Cluster(job, chance)
    try:
        await make_runner(job)  # the archive is recorded before anything is killed
        yield cluster
    finally:
        await cluster.end()
        await stop_server(data_dir)


async def _settled(person: Person) -> dict[str, Told]:
    """Bring every task to its end as people would; return what each says then."""
    runner = person.runner
    for task in await person.open_tasks():
        await _settle(person, task)
    told: dict[str, Told] = {}
    for task in await runner.list_tasks():
        audit, found = await runner.audit(task), await runner.verify(task)
        told[task.task_id] = Told(task.status, tuple(audit), tuple(found))
    return told


async def _settle(person: Person, task: ListedTask) -> None:
    """Decide, run and finalize one task; a task that cannot be ended stays open and is told."""
    runner, until = person.runner, time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < until:
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                for asked in await runner.pending_approvals(task):
                    await settle(person, asked)
                known = await runner.get_task(task)
                if known.status not in OPEN:
                    return
                if known.status == "paused":
                    await runner.resume(task, by=person.name)
                output = await runner.run_task(task)
                if output.is_last:
                    await runner.finalize_response(task)
        except (HoldfastError, TimeoutError) as error:
            print(f"{task.task_id}: {error}", file=sys.stderr)
            await asyncio.sleep(1)


async def _erased(runner: AgentRunner, data_dir: Path) -> tuple[set[str], list[str]]:
    """Wait for all erasures; return the erased tasks, and what is left of them."""

    async def are_over() -> bool:
        running = "ExecutionStatus = 'Running' AND WorkflowType = 'Erasure'"
        return not (await runner.client.count_workflows(running)).count

    await until(are_over, seconds=SETTLE_SECONDS)
    erased, left = set[str](), list[str]()
    for name in await runner.archive.alist_records("tasks"):
        record = as_object(await runner.archive.afind_record(name))
        if "erased" in record:
            erased.add(key_in(name))
            if not await runner.archive.ahas_record(str(record["by"])):
                left.append(f"{name} is erased without a certificate")
    there = {each.id async for each in runner.client.list_workflows()}
    left += [f"Temporal has {each}, which is erased" for each in erased & there]
    files = [each for each in data_dir.rglob("*") if each.is_file()]
    left += [f"{each} has plain text" for each in files if PLAIN in each.read_bytes()]
    return erased, left


async def _remembered(runner: AgentRunner, session: str) -> list[str]:
    def is_asked(message: Message) -> bool:
        return message.role == "user"

    try:
        history = await runner.session(session).chat_history()
    except ErasedError:
        return []
    return [message.text for message in filter(is_asked, history)]


def main() -> int:
    """Run a campaign from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("minutes", type=float)
    minutes = parser.parse_args().minutes
    seed = int(os.environ.get("HOLDFAST_SOAK_SEED", "0")) or random.SystemRandom().randrange(10**6)
    print(f"seed {seed}", file=sys.stderr)
    home = Path(tempfile.mkdtemp(prefix="holdfast-soak-"))
    faults = max(round(minutes * FAULTS_A_MINUTE), 1)
    report = asyncio.run(campaign(home, faults=faults, seed=seed))
    print(json.dumps(report.wire(), indent=2))
    if report.violations:
        print(
            f"error: {len(report.violations)} violations; the lines are in {home}", file=sys.stderr
        )
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
