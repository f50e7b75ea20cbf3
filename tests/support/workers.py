"""AgentWorkers that need no model, for tests of stepping."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from holdfast import Message, Task, TaskStep, TaskStepOutput
from holdfast.values.messages import assistant, user
from holdfast.workers import AgentWorker, StepContext

Body = Callable[[TaskStep, StepContext], Awaitable[TaskStepOutput]]


class Counting(AgentWorker):
    """Counts to `last`, one number per step; says what input each step had."""

    def __init__(self, last: int = 2) -> None:
        self.last = last

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        count = step.step_state.get("count", 0) + 1
        if step.input:
            ctx.add(user(step.input))
        is_last = count >= self.last
        if is_last:
            ctx.add(assistant(f"counted to {count}"))
        following = () if is_last else (step.get_next_step(step_state={"count": count}),)
        return TaskStepOutput(
            output={"count": count, "input": step.input},
            task_step=step,
            next_steps=following,
            is_last=is_last,
        )


class Forking(AgentWorker):
    """Queues steps as a plan says: step id to the ids that follow; the id `last` ends the task."""

    def __init__(self, plan: Mapping[str, Sequence[str]], last: str = "") -> None:
        self.plan = plan
        self.last = last

    def initialize_step(self, task: Task) -> TaskStep:
        return TaskStep(task_id=task.task_id, step_id="start", input=task.input)

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        following = tuple(step.get_next_step(step_id=id) for id in self.plan.get(step.step_id, ()))
        return TaskStepOutput(
            output=step.step_id,
            task_step=step,
            next_steps=following,
            is_last=step.step_id == self.last,
        )


class Doing(AgentWorker):
    """Does in each step what a function does, which a test may exchange at any time."""

    def __init__(self, body: Body) -> None:
        self.body = body

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        return await self.body(step, ctx)


def ends(step: TaskStep, output: Any = "done") -> TaskStepOutput:
    """Make a last output."""
    return TaskStepOutput(output=output, task_step=step, is_last=True)


def said(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Return role and text of each message."""
    return [(message.role, message.text) for message in messages]
