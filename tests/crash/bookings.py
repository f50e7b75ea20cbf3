"""The program of a worker process that books and cancels; each is a line in the event file."""

from __future__ import annotations

import time
from typing import Any

from holdfast import Agent, AgentHooks, ToolContext, tool
from holdfast.agents.tools.context import Effect
from tests.crash import programs
from tests.crash.programs import AGENT, POLL_SECONDS, Job, note


class Held(AgentHooks):
    """Stops the whole process at a hold, when a model is about to be asked."""

    def __init__(self, job: Job) -> None:
        self.home = job.home

    async def on_llm_start(
        self, context: Any, agent: Any, system_prompt: Any, input_items: Any
    ) -> None:
        if (self.home / "hold.model").exists():
            note(self.home, "held", kind="model")
        while (self.home / "hold.model").exists():
            time.sleep(POLL_SECONDS)


def make_agent(job: Job) -> Agent:
    """Make an agent with one tool that can be undone; neither may be done twice."""

    def cancel(ctx: ToolContext, effect: Effect) -> None:
        note(job.home, "cancel", thing=effect.arguments["thing"], token=ctx.fencing_token)

    @tool(undo=cancel)
    def reserve(ctx: ToolContext, thing: str) -> str:
        """Reserve a thing."""
        note(job.home, "reserve", thing=thing, key=ctx.idempotency_key, token=ctx.fencing_token)
        return f"reserved({thing})"

    return Agent(name=AGENT, model="fake-model", tools=[reserve], hooks=Held(job))


def work(job: Job) -> None:
    """Serve that agent until the end of this process, which has nothing else to do."""
    programs.make_agent = make_agent
    programs.work(job)
