"""Kills at random points: whatever was completed is never executed again, and the answer is right.

A failing run prints its seed; HOLDFAST_CRASH_SEED repeats it, `make test-all` makes more runs.
"""

from __future__ import annotations

import asyncio
import os
import random
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from holdfast import TaskStepOutput
from holdfast.testing import FakeOpenAI
from tests.crash.lab import Lab, make_lab
from tests.crash.programs import Job
from tests.support.scale import times

RUNS = times(3, 50)
SEED = int(os.environ.get("HOLDFAST_CRASH_SEED", "0")) or random.SystemRandom().randrange(10**6)
AT_ONCE = 8
THINGS = "abcd"


@dataclass(frozen=True)
class Kill:
    """How one worker dies.

    Attributes:
        inside: The worker kills itself when it has passed this many points of its own; 0: never.
        seen: It is killed from outside once this many further events were seen; 0: never.
    """

    inside: int = 0
    seen: int = 0


def draw(chance: random.Random) -> list[Kill]:
    """Draw one to three kills."""
    return [
        Kill(inside=chance.randint(1, 9))
        if chance.random() < 0.6
        else Kill(seen=chance.randint(1, 5))
        for _ in range(chance.randint(1, 3))
    ]


def seen(lab: Lab) -> int:
    """Count what can be seen of a task from outside."""
    return len(lab.asked) + len(lab.events("start")) + len(lab.events("end"))


async def die(
    lab: Lab, worker: BaseProcess, kill: Kill, running: asyncio.Task[TaskStepOutput]
) -> None:
    """Wait until a worker has died as drawn, or the task needs it no more."""
    limit = seen(lab) + kill.seen
    while not running.done() and worker.exitcode is None:
        if kill.seen and seen(lab) >= limit:
            await lab.kill(worker)
        await asyncio.sleep(0.01)


async def story(job: Job, home: Path, api: FakeOpenAI, seed: int) -> str:
    """Run one task under kills; return what is wrong with it, or nothing."""
    chance = random.Random(seed)
    kills = draw(chance)
    counting = chance.choice(["book", "charge"])
    async with make_lab(job, home, api) as lab:
        task = await lab.create(f"look:a {counting}:b look:c {counting}:d")
        running = asyncio.create_task(lab.runner.run_task(task))
        for kill in kills:
            worker = lab.start(die=(("any", kill.inside),) if kill.inside else ())
            await die(lab, worker, kill, running)
        lab.start()
        output = await running
        try:
            check(lab, output, counting, await lab.lost(task))
            if output.status == "done":
                assert 3 <= await lab.scheduled(task, "step") <= 5  # a fast look has none
                # A look has an activity of its own only where that of its step was killed in it.
                assert 2 <= await lab.scheduled(task, "tool") <= 4
        except AssertionError as error:
            return f"seed {seed}, {kills}, {counting}: {error}\n{output}\n{lab.story()}"
    return ""


def check(lab: Lab, output: TaskStepOutput, counting: str, lost: int) -> None:
    """Check the answer and that nothing completed was executed again.

    Raises:
        AssertionError: Something was.
    """
    # Each call has its place in the conversation. One that was completed lets a later one begin,
    # so places never go back: what is repeated is only the call that a lost attempt was in.
    places = [(r.at, 2 * asked) for r, asked in zip(lab.requests, lab.asked, strict=True)]
    places += [(e["at"], 2 * THINGS.index(e["thing"]) + 1) for e in lab.events("start")]
    order = [place for _, place in sorted(places)]
    assert order == sorted(order), order
    assert len(order) - len(set(order)) <= lost, order
    if output.status == "done":
        expected = f"final look(a) {counting}(b) look(c) {counting}(d)"
        assert output.output == expected, output.output
        assert set(order) == set(range(9)), order
    else:
        assert counting == "charge"
        assert "charge" in output.waiting_for[0]
    if counting == "charge":
        assert all(lab.starts[thing] <= 1 for thing in "bd"), lab.starts
    keys = {(event["thing"], event["key"]) for event in lab.events("start")}
    assert len(keys) == len({thing for thing, _ in keys}), keys


@pytest.mark.timeout(300)
async def test_nothing_completed_is_executed_again(
    shared_job: Job, tmp_path: Path, api: FakeOpenAI
) -> None:
    free = asyncio.Semaphore(AT_ONCE)

    async def one(seed: int) -> str:
        async with free:
            return await story(shared_job, tmp_path / str(seed), api, seed)

    wrong = [text for text in await asyncio.gather(*(one(SEED + i) for i in range(RUNS))) if text]
    assert not wrong, "\n\n".join(wrong)
