"""Undos whose worker is lost inside them."""

import asyncio
from datetime import timedelta
from typing import Any

from holdfast import AgentRunner, Task, tool
from holdfast.agents.tools.context import Effect
from holdfast.agents.tools.decorator import Tool
from holdfast.task.undo import UNDONE
from tests.support.people import kinds
from tests.support.rig import Rig, World, until


def hanging(world: World, cut: asyncio.Event, **options: Any) -> Tool:
    """Make a tool whose `undo=` acts and then does not end, the first time.

    Args:
        world: What it acts on.
        cut: Set once it has acted.
        options: Options of the tool.
    """

    async def cancel(effect: Effect) -> str:
        world.done.append(f"cancel {effect.arguments['city']}")
        if len(world.done) == 1:
            cut.set()
            await asyncio.Event().wait()
        return "cancelled"

    @tool(undo=cancel, **options)
    def book(city: str) -> str:
        """Book."""
        return f"booked {city}"

    return book


async def cut_off(
    rig: Rig, world: World, *, before: Tool | None = None, roll_events: int = 2000, **options: Any
) -> tuple[AgentRunner, Task, asyncio.Task[Any]]:
    """Undo a booking and stop the worker while the undo runs; another one takes its place.

    Args:
        rig: Where it is served.
        world: What the undo acts on.
        before: A tool that is called in the same step, before the booking.
        roll_events: When the task rolls over.
        options: Options of `hanging`.
    """
    cut = asyncio.Event()
    book = hanging(world, cut, **options)
    agent = rig.agent(*([book] if before is None else [before, book]))
    await rig.serve(agent, graceful_shutdown_timeout=timedelta(seconds=0))
    runner = rig.runner(roll_events=roll_events)
    task = await runner.create_task("q")
    wanted = [("book", {"city": "rome"})]
    rig.model.calls(wanted if before is None else [(before.name, {}), *wanted])
    await runner.run_step(task)
    undone = asyncio.create_task(runner.undo_step(task, by="ann"))
    await cut.wait()
    await rig.serve(agent)
    return runner, task, undone


async def until_undone(runner: AgentRunner, task: Task) -> None:
    """Wait until an undo in progress has come to its end."""

    async def condition() -> bool:
        is_told = UNDONE in await kinds(runner, task)  # perhaps of an earlier undo
        return is_told and await runner.get_completed_steps(task) == []

    await until(condition)
