"""A sub-task done by another AgentWorker: its steps, one after the other, within one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.errors import InvalidArgumentError
from holdfast.values.base import Json, as_text
from holdfast.values.code.user_calls import calling, invoke_here
from holdfast.values.messages import Message, system
from holdfast.values.steps import Task, TaskStep, TaskStepOutput
from holdfast.values.text.shown import shown
from holdfast.workers.base import AgentWorker
from holdfast.workers.plan_and_solve.prompts import OUT_OF_TURNS

if TYPE_CHECKING:
    from holdfast.workers.context.context import StepContext


class SubTaskRun:
    """Runs the steps of an AgentWorker on a conversation next to the transcript.

    The steps are not steps of the task: all of their model and tool calls are in the journal of the
    one step that does the sub-task, which answers them when that step is run again.
    """

    def __init__(
        self, worker: AgentWorker, ctx: StepContext, before: Sequence[Message], *, max_steps: int
    ) -> None:
        """Begin.

        Args:
            worker: The step logic.
            ctx: The step that does the sub-task.
            before: Messages that the conversation begins with.
            max_steps: Most steps; after them, one model call without tools gives the result.
        """
        self._worker = worker
        self._ctx = ctx
        self._conversation = list(before)
        self._max_steps = max_steps
        self._queue: dict[str, TaskStep] = {}
        self._outputs: dict[str, Json] = {}

    async def result(self, prompt: Message, first_choice: str) -> tuple[str, bool]:
        """Run steps until the sub-task has its result.

        Args:
            prompt: The sub-task.
            first_choice: Tool choice of the first step.

        Returns:
            The result, and whether the budget made it the task's last.

        Raises:
            InvalidArgumentError: The worker did something that only steps of a task can do.
        """
        self._enqueue(await self._first(prompt), "1")
        lasts: dict[str, Json] = {}
        while self._queue:
            done = len(self._outputs)
            if done == self._max_steps:
                return await self._out_of_turns()
            output = await self._run(self._next(), first_choice if done == 0 else "auto")
            id = output.task_step.step_id
            self._outputs[id] = output.output
            if self._ctx.finished:
                return as_text(output.output), True
            if output.is_last:
                lasts[id] = output.output
            for at, step in enumerate(output.next_steps):
                self._enqueue(step, f"{done + 2}.{at}")
        if len(lasts) != 1:
            return as_text(await invoke_here(self._worker.join, lasts)), False
        return as_text(next(iter(lasts.values()))), False

    async def _first(self, prompt: Message) -> TaskStep:
        task = Task(
            task_id=self._ctx.task_id,
            agent=self._ctx.agent.name,
            input=prompt.text,
            images=prompt.images,
        )

        async def make() -> Json:
            step: TaskStep = await invoke_here(self._worker.initialize_step, task)
            return step.wire()

        made = await self._ctx.memo("first step of the sub-task", make, costly=False)
        return TaskStep.model_validate(made)

    def _enqueue(self, step: TaskStep, id: str) -> None:
        named = step if step.step_id else step.model_copy(update={"step_id": id})
        self._queue[named.step_id] = named

    def _next(self) -> TaskStep:
        """Take the oldest step whose inputs are there.

        Raises:
            InvalidArgumentError: All steps wait for others.
        """
        for id, step in self._queue.items():
            waits = not step.is_ready and not step.prev_steps
            if not waits and all(each in self._outputs for each in step.prev_steps):
                return self._queue.pop(id)
        msg = (
            f"{type(self._worker).__name__} left steps that nothing makes ready:"
            f" {', '.join(map(repr, self._queue))}."
        )
        raise InvalidArgumentError(msg)

    async def _run(self, step: TaskStep, choice: str) -> TaskStepOutput:
        beside = self._ctx.aside(self._conversation)
        beside.tool_choice = choice
        beside.inputs = {id: self._outputs[id] for id in step.prev_steps}
        name = type(self._worker).__name__
        with calling(f"{name}.run_step"):
            made: Any = await self._worker.run_step(step, beside)
        if not isinstance(made, TaskStepOutput):
            msg = f"{name}.run_step must return a TaskStepOutput; it returned {shown(made)}."
            raise InvalidArgumentError(msg)
        self._conversation += beside.adds
        if made.calls:
            results = await self._ctx.call_tools(made.calls)
            self._conversation += [result.message for result in results]
        return made.model_copy(update={"task_step": step})

    async def _out_of_turns(self) -> tuple[str, bool]:
        beside = self._ctx.aside([*self._conversation, system(OUT_OF_TURNS)])
        answer = await beside.call_model(tools=())
        return answer.text, self._ctx.finished
