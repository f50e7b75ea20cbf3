"""The program of a worker process that refunds; each refund is a line in the event file."""

from __future__ import annotations

import asyncio
import random

from holdfast import Agent, ToolContext, tool
from holdfast.values.settings import ModelSettings
from tests.crash import programs
from tests.crash.programs import AGENT, Job, note

LONGEST_SECONDS = 0.03


def make_agent(job: Job) -> Agent:
    """Make an agent with one tool, which is neither idempotent nor reversible."""
    chance = random.SystemRandom()

    @tool
    async def refund(ctx: ToolContext, thing: str) -> str:
        """Refund an order."""
        note(job.home, "start", thing=thing, key=ctx.idempotency_key)
        await asyncio.sleep(chance.uniform(0, LONGEST_SECONDS))
        note(job.home, "refund", thing=thing, key=ctx.idempotency_key)
        await asyncio.sleep(chance.uniform(0, LONGEST_SECONDS))
        note(job.home, "end", thing=thing, key=ctx.idempotency_key)
        return f"refunded({thing})"

    return Agent(
        name=AGENT,
        model="fake-model",
        tools=[refund],
        model_settings=ModelSettings(max_attempts=10),
    )


def work(job: Job) -> None:
    """Serve that agent until the end of this process, which has nothing else to do."""
    programs.make_agent = make_agent
    programs.work(job)
