"""Random operations on the real server, with worker restarts and rollovers between them.

A failing run prints its seed; HOLDFAST_CRASH_SEED repeats it.
"""

from __future__ import annotations

import copy
import json
import os
import random
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from holdfast import Agent, AgentRunner, Task, TaskStep, TaskStepOutput, ToolContext, tool
from holdfast.errors import UndoRefusedError
from holdfast.messages import ToolCall, assistant
from holdfast.tool_context import Effect
from holdfast.workers import StepContext
from tests.support.people import World, asked
from tests.support.rig import MakeAgent, Rig
from tests.support.scale import times
from tests.support.workers import Doing

SEED = int(os.environ.get("HOLDFAST_CRASH_SEED", "0")) or random.SystemRandom().randrange(10**6)
RUNS = times(1, 8)
OPERATIONS = 25


@dataclass
class Now:
    """What the task must be.

    Attributes:
        outputs: Outputs of the completed steps.
        booked: What is in the state, and in the world.
    """

    outputs: list[int] = field(default_factory=list[int])
    booked: list[str] = field(default_factory=list[str])


class Story:
    """One task under random operations, beside its model."""

    def __init__(self, rig: Rig, agent: Agent, world: World, seed: int) -> None:
        self.rig = rig
        self.agent = agent
        self.world = world
        self.chance = random.Random(seed)
        self.log: list[str] = []
        self.past: list[Now] = [Now()]
        self.runner: AgentRunner
        self.task: Task

    @property
    def now(self) -> Now:
        return self.past[-1]

    async def begin(self) -> None:
        await self.restart()
        self.runner = self.rig.runner(roll_events=60)
        self.task = await self.runner.create_task("q", extra_state={"booked": []})

    async def restart(self) -> None:
        """Stop the worker without grace, as far as one process can, and start another."""
        await self.rig.serve(self.agent, graceful_shutdown_timeout=timedelta(0))

    async def step(self) -> None:
        """Run a step; two of three wait for a person, whose mood decides."""
        output = await self.runner.run_step(self.task)
        n = len(self.now.outputs) + 1
        later = copy.deepcopy(self.now)
        later.outputs.append(n)
        if n % 3 == 0:  # asks nobody
            later.booked.append(f"{n}:0")
        while output.status == "waiting":
            if output.waiting_for:
                [approval] = await asked(self.runner, self.task)
                if self.chance.random() < 0.3:
                    await self.restart()
                match self.chance.choice(["approve", "edit", "reject", "undo"]):
                    case "approve":
                        await self.runner.approve(approval.id, "ann")
                        later.booked.append(json.loads(approval.arguments)["thing"])
                    case "edit":
                        await self.runner.approve(approval.id, "ann", {"thing": f"edited {n}"})
                        later.booked.append(f"edited {n}")
                    case "reject":
                        await self.runner.reject(approval.id, "ann", "no")
                    case _:
                        await self.runner.undo_step(self.task, by="ann")
                        return
            output = await self.runner.run_step(self.task)
        assert output.output == n
        self.past.append(later)

    async def undo(self) -> None:
        if len(self.past) > 1:
            receipt = await self.runner.undo_step(self.task, by="ann")
            gone = self.now.booked[len(self.past[-2].booked) :]
            assert [f"book({json.dumps({'thing': g})})" for g in gone] == list(receipt.undone)
            self.past.pop()

    async def rewind(self) -> None:
        if len(self.past) > 2:
            to = self.chance.randrange(1, len(self.past) - 1)
            outputs = await self.runner.get_completed_steps(self.task)
            await self.runner.rewind(self.task, to=outputs[to - 1], by="ann")
            del self.past[to + 1 :]

    async def fork(self) -> None:
        if len(self.past) > 1:
            at = self.chance.randrange(1, len(self.past))
            outputs = await self.runner.get_completed_steps(self.task)
            fork = await self.runner.fork(self.task, at=outputs[at - 1])
            assert fork.extra_state["booked"] == self.past[at].booked
            found = await self.runner.get_completed_steps(fork)
            assert [o.output for o in found] == self.past[at].outputs
            assert await self.runner.verify(fork) == []
            await self.runner.abandon(fork, "only looked", by="ann")

    async def feedback(self) -> None:
        await self.runner.give_feedback(self.task, "more", by="ann")

    async def pause(self) -> None:
        await self.runner.pause(self.task, by="ann")
        assert (await self.runner.run_step(self.task)).waiting_for[0].startswith("paused")
        await self.restart()
        await self.runner.resume(self.task, by="ann")

    async def check(self) -> None:
        task = await self.runner.get_task(self.task)
        assert (task.steps, task.extra_state) == (
            len(self.now.outputs),
            {"booked": self.now.booked},
        )
        outputs = await self.runner.get_completed_steps(self.task)
        assert [o.output for o in outputs] == self.now.outputs
        said = [m.text for m in await self.runner.transcript(self.task) if m.role == "assistant"]
        assert said == [f"step {n}" for n in self.now.outputs]
        assert sorted(self.world.done) == sorted(self.now.booked)
        assert await self.runner.pending_approvals(self.task) == []
        assert await self.runner.verify(self.task) == []


@pytest.mark.parametrize("run", range(RUNS))
async def test_a_task_under_random_operations_is_what_a_model_says(
    make_agent: MakeAgent, rig: Rig, run: int
) -> None:
    world = World()

    def cancel(effect: Effect) -> None:
        world.done.remove(str(effect.arguments["thing"]))

    @tool(undo=cancel, needs_approval=lambda arguments: not arguments["thing"].endswith("0"))
    async def book(ctx: ToolContext, thing: str) -> str:
        """Book."""
        assert ctx.idempotency_key not in world.keys
        world.keys.append(ctx.idempotency_key)
        world.done.append(thing)
        ctx.state["booked"] = [*ctx.state["booked"], thing]
        return f"booked {thing}"

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        thing = json.dumps({"thing": f"{ctx.n}:{ctx.n % 3}"})
        await ctx.call_tools([ToolCall(id=f"c{ctx.n}", name="book", arguments=thing)])
        ctx.add(assistant(f"step {ctx.n}"))
        return TaskStepOutput(output=ctx.n, task_step=step, next_steps=(step.get_next_step(),))

    story = Story(rig, make_agent(book, worker=Doing(body)), world, SEED + run)
    await story.begin()
    operations = {
        story.step: 8,
        story.undo: 3,
        story.rewind: 1,
        story.fork: 1,
        story.feedback: 1,
        story.pause: 1,
        story.restart: 3,
    }
    for _ in range(OPERATIONS):
        [operation] = story.chance.choices(list(operations), list(operations.values()))
        story.log.append(operation.__name__)
        try:
            await operation()
            await story.check()
        except (AssertionError, UndoRefusedError) as error:
            msg = f"seed {SEED}, run {run}: {story.log}\n{error}"
            raise AssertionError(msg) from error
