"""What a runner says of its tasks and prompts, and how its methods reach Holdfast's own loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from holdfast.engine.loop import shared_loop
from holdfast.errors import InvalidArgumentError
from holdfast.llama_index.step_code.errors import known_errors
from holdfast.llama_index.tasks import Tasks
from holdfast.llama_index.values import Task, TaskStep, TaskStepOutput, output_view, step_view
from holdfast.llama_index.workers.base import BaseAgentWorker
from holdfast.values import steps
from holdfast.values.text.shown import shown

T = TypeVar("T")


def settled(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the shared loop and block until it is done."""
    with known_errors():
        return shared_loop().run(work)


async def awaited(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the shared loop and await it."""
    with known_errors():
        return await shared_loop().wrap(work)


def id_of(task: Task | str) -> str:
    """Return the id of a task, given as a Task or by its id.

    Raises:
        InvalidArgumentError: It is neither.
    """
    given: object = getattr(task, "task_id", task)
    if isinstance(given, str):
        return given
    msg = f"A task is given as a Task or by its id; this is {shown(task)}."
    raise InvalidArgumentError(msg)


class TaskState(Task):
    """A task as a runner lists it, with its steps; these are read when they are asked for.

    Attributes:
        task: The task itself.
    """

    def __init__(self, task: Task, reads: TaskReads) -> None:
        """Take the task, and what reads its steps."""
        super().__init__(
            task.task_id, task.input, task.memory, task.extra_state, task.callback_manager
        )
        self.task = task
        self._reads = reads

    @property
    def completed_steps(self) -> list[TaskStepOutput]:
        """The outputs of the completed steps, oldest first."""
        return self._reads.get_completed_steps(self.task_id)

    @property
    def step_queue(self) -> deque[TaskStep]:
        """The step in progress and the queued ones, in order."""
        return self._reads.get_step_queue(self.task_id)


class TaskReads:
    """The part of AgentRunner that reads tasks, and that reads and changes prompts.

    Attributes:
        agent_worker: The step logic.
    """

    agent_worker: BaseAgentWorker
    _tasks: Tasks

    async def _list(self) -> list[TaskState]:
        listed = await self._tasks.list()
        return [TaskState(await self._tasks.describe(each), self) for each in listed]

    def list_tasks(self, **_: Any) -> list[TaskState]:
        """List the tasks of this run of the program, the newest last."""
        return settled(self._list())

    def get_task(self, task_id: Task | str, **_: Any) -> Task:
        """Describe a task.

        Raises:
            KeyError: There is no such task.
        """
        return settled(self._tasks.describe(id_of(task_id)))

    async def _upcoming(self, task_id: str) -> list[TaskStep]:
        return [step_view(each) for each in await self._tasks.upcoming(task_id)]

    def get_upcoming_steps(self, task_id: Task | str, **_: Any) -> list[TaskStep]:
        """List the step in progress and the queued ones, in order."""
        return settled(self._upcoming(id_of(task_id)))

    def get_step_queue(self, task_id: Task | str, **_: Any) -> deque[TaskStep]:
        """Return what `get_upcoming_steps` lists."""
        return deque(self.get_upcoming_steps(task_id))

    @property
    def task_dict(self) -> dict[str, TaskState]:
        """The tasks by id, the newest last."""
        return {each.task_id: each for each in self.list_tasks()}

    async def _completed(self, task_id: str) -> list[TaskStepOutput]:
        runner = await self._tasks.connect()
        return await self._views(await runner.get_completed_steps(task_id))

    async def _views(self, outputs: Sequence[steps.TaskStepOutput]) -> list[TaskStepOutput]:
        """Show outputs of steps; a last one has all results of tools of those before it."""
        worker = self.agent_worker
        views: list[TaskStepOutput] = []
        before: list[steps.ToolOutput] = []
        for output, own in await self._tasks.with_records(outputs):
            view = output_view(
                output,
                observes=worker.observes,
                before=before,
                gives_data=worker.gives_data,
                own=own,
            )
            views.append(view)
            before += output.sources
        return views

    async def _shown(self, task_id: str, output: steps.TaskStepOutput) -> TaskStepOutput:
        """Show the output of a step that was run; the last one has all results of tools."""
        if output.is_last:
            for each in await self._completed(task_id):
                if each.task_step.step_id == output.task_step.step_id:
                    return each
        return (await self._views([output]))[0]

    def get_completed_steps(self, task_id: Task | str, **_: Any) -> list[TaskStepOutput]:
        """List the outputs of the completed steps, oldest first."""
        return settled(self._completed(id_of(task_id)))

    def get_completed_step(self, task_id: Task | str, step_id: str, **_: Any) -> TaskStepOutput:
        """Return the output of one completed step.

        Raises:
            ValueError: There is no such id.
        """
        for output in self.get_completed_steps(task_id):
            if output.task_step.step_id == step_id:
                return output
        msg = f"Could not find step_id: {step_id}"
        raise ValueError(msg)

    def get_task_output(self, task_id: Task | str, **_: Any) -> TaskStepOutput:
        """Return the output of the newest completed step.

        Raises:
            ValueError: No step is completed.
        """
        outputs = self.get_completed_steps(task_id)
        if not outputs:
            msg = f"No completed steps for task_id: {id_of(task_id)}"
            raise ValueError(msg)
        return outputs[-1]

    def get_completed_tasks(self, **_: Any) -> list[Task]:
        """List the tasks that have their answer, finalized or not."""
        return [each.task for each in self.list_tasks() if self._is_answered(each.task_id)]

    def _is_answered(self, task_id: str) -> bool:
        outputs = self.get_completed_steps(task_id)
        return bool(outputs) and outputs[-1].is_last

    def delete_task(self, task_id: Task | str) -> None:
        """Delete a task with its record; what the conversation has of it stays.

        Raises:
            KeyError: There is no such task.
        """
        settled(self._tasks.delete(id_of(task_id)))

    # ---- prompts

    def get_prompts(self) -> dict[str, Any]:
        """Return the prompts that may be changed: "agent_worker:system_prompt" and so on."""
        found = self.agent_worker.get_prompts()
        return {f"agent_worker:{name}": prompt for name, prompt in found.items()}

    def update_prompts(self, prompts: Mapping[str, Any]) -> None:
        """Change prompts, for the steps that follow.

        Raises:
            ValueError: There is no such name.
        """
        own = {name.removeprefix("agent_worker:"): prompt for name, prompt in prompts.items()}
        self.agent_worker.update_prompts(own)
