"""Steps side by side: rounds, links, joins, and what a failing branch does to the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import pytest

from holdfast import Task, TaskStep, TaskStepOutput, errors, tool
from holdfast.messages import ToolCall, assistant, user
from holdfast.values import Json
from holdfast.workers import AgentWorker, StepContext
from tests.support.rig import MakeRunner, Rig, activities_of, until, until_status

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Graph(AgentWorker):
    """Runs a plan: step id to the ids that it waits for. `do` says what a step does.

    The step `last`, if it is in the plan, gives the answer; a step in `lasts` ends the task too.
    """

    max_parallel: ClassVar[int] = 8

    def __init__(
        self,
        plan: Mapping[str, Sequence[str]],
        do: Callable[[TaskStep, StepContext], Any] | None = None,
        lasts: Sequence[str] = ("last",),
    ) -> None:
        self.plan = plan
        self.do = do
        self.lasts = lasts

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        if step.step_id == "s1":
            ctx.add(user(step.input or ""))
            following = tuple(
                step.get_next_step(step_id=id, step_state={}).model_copy(
                    update={"prev_steps": tuple(before)}
                )
                for id, before in self.plan.items()
            )
            return TaskStepOutput(output="planned", task_step=step, next_steps=following)
        did = self.do(step, ctx) if self.do is not None else step.step_id
        if asyncio.iscoroutine(did):
            did = await did
        is_last = step.step_id in self.lasts
        if is_last:
            ctx.add(assistant(f"answer of {step.step_id}"))
        return TaskStepOutput(output=did, task_step=step, is_last=is_last)


class Joining(Graph):
    """Joins last outputs into a list."""

    def join(self, outputs: Mapping[str, Json]) -> Json:
        return [f"{id}={output}" for id, output in outputs.items()]


class Doors:
    """Lets a test see which steps are inside, and let them out one by one."""

    def __init__(self) -> None:
        self.inside: set[str] = set()
        self.entered: list[str] = []
        self._doors: dict[str, asyncio.Event] = {}

    async def __call__(self, step: TaskStep, ctx: StepContext) -> str:
        self.inside.add(step.step_id)
        self.entered.append(step.step_id)
        await self._door(step.step_id).wait()
        self.inside.discard(step.step_id)
        return f"{step.step_id} of {sorted(ctx.inputs)}"

    def _door(self, step_id: str) -> asyncio.Event:
        return self._doors.setdefault(step_id, asyncio.Event())

    def open(self, *step_ids: str) -> None:
        for step_id in step_ids:
            self._door(step_id).set()

    async def are_inside(self, *step_ids: str) -> None:
        async def condition() -> bool:
            return self.inside == set(step_ids)

        await until(condition)


DIAMOND = {"a": (), "b": ("a",), "c": ("a",), "last": ("b", "c")}


async def test_a_round_runs_at_once_and_answers_in_queue_order(make_runner: MakeRunner) -> None:
    doors = Doors()
    runner = await make_runner(worker=Graph({"x": (), "y": (), "z": ()}, doors))
    task = await runner.create_task("q")
    await runner.run_step(task)
    running = asyncio.create_task(runner.run_steps_in_queue(task))
    await doors.are_inside("x", "y", "z")
    doors.open("z")
    await doors.are_inside("x", "y")
    doors.open("x", "y")
    outputs = await running
    assert [o.task_step.step_id for o in outputs] == ["x", "y", "z"]
    completed = [o.task_step.step_id for o in await runner.get_completed_steps(task)]
    assert (completed[:2], set(completed[2:])) == (["s1", "z"], {"x", "y"})


async def test_linked_steps_become_ready_by_themselves(make_runner: MakeRunner) -> None:
    doors = Doors()
    runner = await make_runner(worker=Graph(DIAMOND, doors))
    task = await runner.create_task("q")
    running = asyncio.create_task(runner.run_task(task))
    await doors.are_inside("a")
    doors.open("a")
    await doors.are_inside("b", "c")
    doors.open("b")
    await doors.are_inside("c")
    doors.open("c", "last")
    output = await running
    assert (output.is_last, output.output) == (True, "last of ['b', 'c']")
    assert doors.entered.count("a") == 1


async def test_a_step_sees_the_outputs_of_those_it_waited_for(make_runner: MakeRunner) -> None:
    def do(step: TaskStep, ctx: StepContext) -> Json:
        big = "x" * 40_000 if step.step_id == "b" else ""
        return {"id": step.step_id, "in": {k: v["id"] for k, v in ctx.inputs.items()}, "big": big}

    runner = await make_runner(worker=Graph(DIAMOND, do), roll_events=50)
    task = await runner.create_task("q")
    output = await runner.run_task(task)
    assert output.output == {"id": "last", "in": {"b": "b", "c": "c"}, "big": ""}
