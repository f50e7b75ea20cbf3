"""A caller whose session is a file of its own: it dies while it writes the turn of its run."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from holdfast import Agent, Runner, SQLiteSession
from holdfast.client.caller_sessions import store, turns
from tests.crash.programs import AGENT, Job, log_to, make_runner, note


class Mortal(SQLiteSession):
    """A session whose process dies before a turn is added, in between, or after.

    It adds items one by one, as stores without transactions do.
    """

    def __init__(self, home: Path, dies: str = "") -> None:
        """Name where the process dies: "before", "in", "after", or nowhere."""
        super().__init__("mine", home / "mine.db")
        self.dies = dies

    async def add_items(self, items: list[Any]) -> None:
        """Add items, or die."""
        self._die_if("before")
        for item in items:
            await super().add_items([item])
            self._die_if("in")
        self._die_if("after")

    def _die_if(self, here: str) -> None:
        if self.dies == here:
            os.kill(os.getpid(), signal.SIGKILL)


def talk(job: Job) -> None:
    """Run an agent in a session that dies where the job's `die` says, and note the answer."""
    log_to(job.home)
    asyncio.run(_talk(job))


async def _talk(job: Job) -> None:
    turns.GRACE_SECONDS = 1.0  # a claim that was left costs the tests no more
    store.FRESH_SECONDS = 600.0  # nor does a busy machine change what is read
    session = Mortal(job.home, job.die[0][0] if job.die else "")
    agent = Agent(name=AGENT)
    runner = await make_runner(job)
    result = await Runner.run(
        agent,
        job.input,
        session=session,
        task_id=job.task_id,
        exist_ok=True,
        runner=runner,
    )
    note(job.home, "answered", text=str(result.final_output))
