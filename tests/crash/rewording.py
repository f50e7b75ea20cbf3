"""A worker process whose module has what a resumed run is given, and a caller that resumes one."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from holdfast import Agent, RunConfig, Runner, RunState, ToolContext, tool
from holdfast.client.runner import one_run
from holdfast.client.runner.decisions import send_decisions
from tests.crash.programs import AGENT, Job, log_to, make_runner, note


def words(args: Any) -> str:
    """Word a rejected call, and note that it was asked."""
    note(Path(args.run_context.context["home"]), "words", tool=args.tool_name)
    return f"not {args.tool_name}"


def make_agent(job: Job) -> Agent:
    """Make an agent whose tools wait for a person."""

    @tool(needs_approval=True)
    async def look(ctx: ToolContext, thing: str) -> str:
        """Look at a thing."""
        note(job.home, "start", thing=thing, key=ctx.idempotency_key)
        return f"look({thing})"

    return Agent(name=AGENT, model="fake-model", tools=[look])


def resume(job: Job) -> None:
    """Reject what the run of a job waits for, with other words; the process may die before that."""
    log_to(job.home)
    asyncio.run(_resume(job))


async def _resume(job: Job) -> None:
    async def die(*_: Any, **__: Any) -> None:
        note(job.home, "die", point="decisions")
        os.kill(os.getpid(), signal.SIGKILL)

    runner, agent = await make_runner(job), Agent(name=AGENT)
    waits = await Runner.run(agent, RunState.of(job.task_id), runner=runner)
    state = waits.to_state()
    for each in waits.interruptions:
        state.reject(each)
    if job.die:
        setattr(one_run, send_decisions.__name__, die)
    config = RunConfig(tool_error_formatter=words)
    result = await Runner.run(agent, state, runner=runner, run_config=config, by="kim")
    note(job.home, "answered", text=str(result.final_output))
