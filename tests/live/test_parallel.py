"""Steps side by side: rounds, links, joins, and what a failing branch does to the others."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import pytest

from holdfast import TaskStep, TaskStepOutput, errors, tool
from holdfast.values.base import Json
from holdfast.values.messages import ToolCall, assistant, user
from holdfast.workers import AgentWorker, StepContext
from tests.support.rig import Rig, step_a_task, until, until_steps

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
        await until(lambda: self.inside == set(step_ids))


async def test_a_round_runs_at_once_and_answers_in_queue_order(rig: Rig) -> None:
    doors = Doors()
    runner = await rig.make(worker=Graph({"x": (), "y": (), "z": ()}, doors))
    task = await step_a_task(runner)
    running = [
        asyncio.create_task(runner.run_steps_in_queue(task, request_id="r")) for _ in range(2)
    ]
    await doors.are_inside("x", "y", "z")
    doors.open("z")
    await doors.are_inside("x", "y")
    doors.open("x", "y")
    outputs, again = await asyncio.gather(*running)
    assert outputs == again  # two requests of one id are one
    assert sorted(doors.entered) == ["x", "y", "z"]
    assert [o.task_step.step_id for o in outputs] == ["x", "y", "z"]
    completed = [o.task_step.step_id for o in await runner.get_completed_steps(task)]
    assert (completed[:2], set(completed[2:])) == (["s1", "z"], {"x", "y"})


# ---- failing branches


def failing(*broken: str, error: Callable[[], Exception] = lambda: ValueError("broken")) -> Any:
    """Make a `do` that fails for these steps until they are taken out of the list."""
    left = list(broken)
    ran: list[str] = []

    async def do(step: TaskStep, ctx: StepContext) -> Json:
        ran.append(step.step_id)
        if step.step_id in left:
            raise errors.InvalidArgumentError(str(error()))
        return step.step_id

    do.left, do.ran = left, ran  # type: ignore[attr-defined]
    return do


async def test_one_of_two_failed_steps_is_tried_again_and_the_other_is_not(rig: Rig) -> None:
    do = failing("x", "z")
    runner = await rig.make(worker=Graph({"x": (), "y": (), "z": ()}, do))
    task = await step_a_task(runner)
    with pytest.raises(errors.StepFailedError, match="broken") as failed:
        await runner.run_steps_in_queue(task)
    assert failed.value.step_id in ("x", "z")
    done = {o.task_step.step_id for o in await runner.get_completed_steps(task)}
    assert (done, (await runner.get_task(task)).status) == ({"s1", "y"}, "needs_attention")
    do.left.clear()
    assert (await runner.run_step(task, step="z")).output == "z"
    assert sorted(do.ran) == ["x", "y", "z", "z"]
    with pytest.raises(errors.InvalidArgumentError, match="has failed and stays first"):
        await runner.run_step(task, step="y")
    assert (await runner.run_step(task)).output == "x"


# ---- people


@tool(effect="reversible", undo=lambda effect: None, needs_approval=True)
def pay(to: str) -> str:
    """Pay somebody.

    Args:
        to: Who.
    """
    return f"paid {to}"


async def paying(step: TaskStep, ctx: StepContext) -> Json:
    if step.step_id not in ("x", "y"):
        return step.step_id
    call = ToolCall(id=f"call_{step.step_id}", name="pay", arguments=f'{{"to": "{step.step_id}"}}')
    [result] = await ctx.call_tools([call])
    return result.content


async def test_a_round_answers_with_what_waits_and_later_with_the_rest(rig: Rig) -> None:
    runner = await rig.make(pay, worker=Graph({"x": (), "y": (), "z": ()}, paying))
    task = await step_a_task(runner)
    outputs = await runner.run_steps_in_queue(task)
    found = [(o.task_step.step_id, o.status) for o in outputs]
    assert found == [("x", "waiting"), ("y", "waiting"), ("z", "done")]
    assert "pay" in outputs[0].waiting_for[0]
    asked = await runner.pending_approvals(task)
    [first, second] = sorted(asked, key=lambda approval: approval.arguments)
    assert (await runner.run_step(task, request_id="r")).task_step.step_id == "x"
    await runner.reject(second, by="ann", reason="no money")
    await until_steps(runner, task, 3)
    await runner.approve(first, by="ann")
    await until_steps(runner, task, 4)
    assert (await runner.run_step(task, request_id="r")).task_step.step_id == "x"  # its own
    outputs = await runner.run_steps_in_queue(task)
    assert [o.output for o in outputs] == [
        "The call was not run: it was rejected by ann: no money",
        "paid x",
    ]


# ---- state and limits


async def test_changes_of_the_state_are_merged_and_conflicts_recorded(rig: Rig) -> None:
    doors = Doors()

    async def do(step: TaskStep, ctx: StepContext) -> Json:
        await doors(step, ctx)
        ctx.state["last"] = step.step_id
        ctx.state["log"] = [*ctx.state["log"], step.step_id]
        return None

    runner = await rig.make(worker=Graph({"x": (), "y": ()}, do))
    task = await step_a_task(runner, extra_state={"log": []})
    running = asyncio.create_task(runner.run_steps_in_queue(task))
    await doors.are_inside("x", "y")
    doors.open("x")
    await until_steps(runner, task, 2)
    doors.open("y")
    await running
    assert (await runner.get_task(task)).extra_state == {"last": "y", "log": ["x", "y"]}
    steps = [entry.step for entry in await runner.ledger(task) if entry.step is not None]
    assert [list(step.conflicts) for step in steps] == [[], [], ["last"]]
