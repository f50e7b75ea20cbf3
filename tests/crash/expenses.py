"""The program of a worker process that files and pays expenses, and that of a desk."""

import asyncio

from holdfast import Agent, ToolContext, tool
from holdfast.agents.tools.context import Effect
from tests.crash import programs
from tests.crash.programs import AGENT, POLL_SECONDS, Job, note
from tests.support.desk import serve_desk

TOKENS = "desk-tokens.json"
"""File of the desk's tokens, in the directory of the test."""


def make_agent(job: Job) -> Agent:
    """Make an agent that files, which can be undone, and pays, which cannot and needs approval."""
    home = job.home

    async def act(ctx: ToolContext, thing: str) -> str:
        note(home, "start", tool=ctx.tool_name, thing=thing)
        while (home / f"hold.{ctx.tool_name}").exists():
            await asyncio.sleep(POLL_SECONDS)
        note(home, "end", tool=ctx.tool_name, thing=thing)
        return f"{ctx.tool_name}({thing})"

    def unfile(effect: Effect) -> str:
        note(home, "unfiled", thing=effect.arguments["thing"])
        return "taken out of the file"

    @tool(undo=unfile)
    async def file(ctx: ToolContext, thing: str) -> str:
        """File a receipt."""
        return await act(ctx, thing)

    @tool(needs_approval=True)
    async def pay(ctx: ToolContext, thing: str) -> str:
        """Pay an expense.

        Args:
            ctx: The call.
            thing: How much.
        """
        return await act(ctx, thing)

    return Agent(name=AGENT, model="fake-model", tools=[file, pay])


def desk(job: Job) -> None:
    """Serve the desk on the port that is the input of a job."""
    programs.log_to(job.home)
    asyncio.run(_desk(job))


async def _desk(job: Job) -> None:
    runner = await programs.make_runner(job)
    async with serve_desk(runner, int(job.input), tokens=job.home / TOKENS):
        note(job.home, "desk")
        await asyncio.Event().wait()
