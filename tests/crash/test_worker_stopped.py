"""Worker processes that stop for a while, are replaced, and go on as if nothing had happened.

So does a laptop that was suspended, or a virtual machine that was moved. What they were about to do
has been done by others meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from multiprocessing.process import BaseProcess
from typing import Any

import psutil
import pytest

from holdfast import Agent, AgentHooks, Task, ToolContext, tool
from holdfast.agents.tools.context import Effect
from tests.crash.lab import Lab
from tests.crash.programs import AGENT, POLL_SECONDS, Job, note
from tests.support.people import ask
from tests.support.rig import until


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


ACTING: dict[str, Any] = {"workflows": [], "max_concurrent_activities": 1}
"""Options of a worker that runs one activity at a time and polls for nothing else: while it is
stopped, the server hands nothing else to it."""

THINKING: dict[str, Any] = {"no_remote_activities": True}
"""Options of a worker that is not stopped and decides."""


async def serve(lab: Lab) -> None:
    """Start a worker that decides, and one that acts and never hears that it was given up."""
    await lab.serve(make=make_agent, options=THINKING)
    await lab.serve(make=make_agent, options=ACTING, mute=True)


async def stopped_before(lab: Lab, kind: str, hold: str = "") -> BaseProcess:
    """Wait until a worker has received an activity of a kind, stop it there, and start another."""
    hold = hold or f"begin.{kind}"
    await lab.until_event("held", kind=kind)
    [held] = lab.events("held", kind=kind)
    [process] = [each for each in lab.processes if each.pid == held["pid"]]
    seen = psutil.Process(held["pid"])

    async def has_stopped() -> bool:
        return seen.status() == psutil.STATUS_STOPPED

    os.kill(held["pid"], signal.SIGSTOP)
    # One of its threads takes the signal and stops the others: until it is scheduled, they go on.
    await until(has_stopped)
    lab.let_go(hold)
    await lab.serve(make=make_agent, options=ACTING)
    return process


async def goes_on(lab: Lab, process: BaseProcess, kind: str) -> None:
    """Let a stopped worker go on, and wait until it has come to the end of its activity."""
    assert process.pid is not None
    os.kill(process.pid, signal.SIGCONT)
    await lab.until_event("left", kind=kind, pid=process.pid)


async def reserved(lab: Lab) -> Task:
    """Create a task that reserves one thing."""
    await serve(lab)
    return await lab.create("reserve:a", step_mode="automatic")


async def test_a_tool_is_not_run_by_a_worker_that_was_stopped_before_it(lab: Lab) -> None:
    lab.hold("begin.tool")
    task = await reserved(lab)
    process = await stopped_before(lab, "tool")
    asked = await ask(lab.runner, task)
    assert asked.kind == "unknown", lab.story()
    await lab.runner.approve(asked, by="ann")
    await lab.until_event("reserve", thing="a")
    await goes_on(lab, process, "tool")
    await lab.until_status(task, "answered")
    assert len(lab.events("reserve")) == 1, lab.story()


@pytest.mark.exhaustive
async def test_a_model_is_not_asked_by_a_worker_that_was_stopped_before_it(lab: Lab) -> None:
    lab.hold("model")
    task = await reserved(lab)
    process = await stopped_before(lab, "model", "model")
    await lab.until_status(task, "answered")
    await goes_on(lab, process, "step")
    assert lab.asked == [0, 1], lab.story()


@pytest.mark.exhaustive
async def test_an_undo_is_not_called_by_a_worker_that_was_stopped_before_it(lab: Lab) -> None:
    await serve(lab)
    task = await lab.create("reserve:a")
    await lab.runner.run_step(task)
    lab.hold("begin.undo")
    undone = asyncio.create_task(lab.runner.undo_step(task))
    process = await stopped_before(lab, "undo")
    await lab.runner.approve(await ask(lab.runner, task), by="ann")
    await lab.until_event("cancel", thing="a")
    await goes_on(lab, process, "undo")
    await undone
    assert len(lab.events("cancel")) == 1, lab.story()
