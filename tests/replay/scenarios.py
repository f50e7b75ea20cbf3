"""The tasks whose histories are recorded at each release, and replayed by every later commit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from holdfast import Agent, AgentRunner, Budget, Runner, ToolCall, tool
from holdfast.errors import HoldfastError
from holdfast.testing import ScriptedModel
from tests.support.rig import Rig, until_status
from tests.support.workers import Counting

Scenario = Callable[[Rig], Awaitable[str]]


@tool(effect="read")
def look(where: str = "here") -> str:
    """Look somewhere."""
    return f"seen {where}"


@tool
def act(what: str = "it") -> str:
    """Do something."""
    return f"did {what}"


def looking(times: int) -> Agent:
    """Make an agent that looks and acts at once, a number of times, and then answers."""
    calls = (ToolCall(id="", name="look"), ToolCall(id="", name="act"))
    model = ScriptedModel([*[calls] * times, "done"])
    return Agent(name="agent", model=model, tools=[look, act])


async def stepwise(rig: Rig) -> str:
    """Run a task step by step and finalize it to a session."""
    await rig.serve(looking(2))
    runner = rig.runner()
    task = await runner.create_task("q", session="s")
    for _ in range(3):
        await runner.run_step(task)
    await runner.finalize_response(task)
    return task.task_id


async def rolled_over(rig: Rig) -> str:
    """Run a task over several rollovers."""
    await rig.serve(looking(12))
    runner = rig.runner(roll_events=40)
    return (await runner.chat("q")).task_id


async def failed_and_healed(rig: Rig) -> str:
    """Run a step that fails, and run it again."""
    await rig.serve(Agent(name="agent", model=ScriptedModel([RuntimeError("no"), "yes"])))
    runner = rig.runner()
    task = await runner.create_task("q")
    try:
        await runner.run_step(task)
    except HoldfastError:
        await runner.run_step(task)
    await runner.finalize_response(task)
    return task.task_id


async def paused_and_abandoned(rig: Rig) -> str:
    """Pause, resume and abandon a task."""
    await rig.serve(Agent(name="agent", model="offline", worker=Counting(5)))
    runner = rig.runner()
    task = await runner.create_task("q")
    await runner.run_step(task)
    await runner.pause(task, reason="lunch", by="ann")
    await runner.run_step(task)
    await runner.resume(task)
    await runner.run_step(task)
    await runner.abandon(task, reason="enough", by="ann")
    await until_status(runner, task, "abandoned")
    return task.task_id


async def over_its_budget(rig: Rig) -> str:
    """End a task by its budget."""
    await rig.serve(looking(2))
    runner = rig.runner()
    task = await runner.create_task("q", budget=Budget(max_turns=1, on_exceeded="fail"))
    try:
        await runner.run_task(task)
    except HoldfastError:
        await until_status(runner, task, "failed")
    return task.task_id


async def end_to_end(rig: Rig) -> str:
    """Run an agent in the dialect of the Agents SDK."""
    agent = looking(1)
    await rig.serve(agent)
    runner: AgentRunner = rig.runner()
    return (await Runner.run(agent, "q", runner=runner, session="s")).task_id


SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        stepwise,
        rolled_over,
        failed_and_healed,
        paused_and_abandoned,
        over_its_budget,
        end_to_end,
    )
}
