"""The contract of an AgentWorker: given a step, do the next piece of reasoning."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.messages import Message
from holdfast.steps import Task, TaskStep, TaskStepOutput

if TYPE_CHECKING:
    from holdfast.workers.context import StepContext


class AgentWorker(ABC):
    """Step logic. It holds no state of a task: state lives in the step and in `ctx.state`.

    `run_step` runs in an activity, from its top and perhaps several times: calls made through `ctx`
    that were answered before give their recorded answer again. What it does outside `ctx` (a file,
    a request, a random number) is done each time, so do such things in tools.
    """

    def initialize_step(self, task: Task) -> TaskStep:
        """Make the first step of a task.

        Args:
            task: The new task.
        """
        return TaskStep(task_id=task.task_id, input=task.input)

    @abstractmethod
    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        """Do one step.

        Args:
            step: The step; `step.input` is new user input, or None.
            ctx: Model, tools, transcript and state of the task.

        Returns:
            The step's output. Tool calls put into `calls` are run after this method returns, and
            their results join the transcript in call order: then the step is over.
        """

    def finalize_task(self, task: Task, transcript: Sequence[Message]) -> Sequence[Message]:
        """Choose what the session keeps of a finished task; all of it by default.

        Args:
            task: The finished task.
            transcript: The task's messages, oldest first.
        """
        del task
        return transcript
