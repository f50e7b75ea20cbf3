"""QueryPipelineAgentWorker: each step runs a QueryPipeline once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from holdfast.errors import InvalidArgumentError
from holdfast.llama_index.llms.messages import ChatMemoryBuffer
from holdfast.llama_index.query_pipeline.pipeline import (
    AgentFnComponent,
    AgentInputComponent,
    CustomAgentComponent,
    QueryPipeline,
)
from holdfast.llama_index.values import Task, TaskStep, TaskStepOutput
from holdfast.llama_index.workers.base import BaseAgentWorker
from holdfast.llama_index.workers.custom import new_step_id
from holdfast.values.text.shown import shown


class QueryPipelineAgentWorker(BaseAgentWorker):
    """Runs a pipeline once per step; its output is `(response, is_done)`.

    Components see the task and the state that steps share: "sources" and "memory", and what they
    put there. The state is recorded with each step, so it holds data.
    """

    kind = "pipeline"

    def __init__(
        self,
        pipeline: QueryPipeline,
        callback_manager: Any = None,
        update_state_fn: Any = None,
        *,
        task_key: str = "task",
        step_state_key: str = "step_state",
    ) -> None:
        """Take a pipeline.

        Args:
            pipeline: The pipeline.
            callback_manager: Kept as it is.
            update_state_fn: Called as `(step, task)` before each step.
            task_key: Key at which a StatefulFnComponent finds the task.
            step_state_key: Key at which it finds the state that steps share.
        """
        self.pipeline = pipeline
        self.callback_manager = callback_manager
        self._update = update_state_fn
        self.task_key = task_key
        self.step_state_key = step_state_key

    @property
    def agent_components(self) -> list[Any]:
        """The components of the pipeline that are made for agents."""
        kinds = (AgentFnComponent, CustomAgentComponent)
        return [each for each in self.pipeline.module_dict.values() if isinstance(each, kinds)]

    @property
    def agent_input_component(self) -> AgentInputComponent:
        """The component with which the pipeline begins.

        Raises:
            ValueError: It begins with another one.
        """
        found = next(iter(self.pipeline.module_dict.values()), None)
        if not isinstance(found, AgentInputComponent):
            msg = "The pipeline of an agent begins with an AgentInputComponent."
            raise ValueError(msg)  # noqa: TRY004  as in LlamaIndex
        return found

    def preprocess(self, task: Task, step: TaskStep) -> None:
        """Prepare a step: `update_state_fn` is called."""
        if self._update is not None:
            self._update(step, task)

    def owned_objects(self) -> Mapping[str, Any]:
        """Return the objects that the state may hold by name."""
        return {"pipeline": self.pipeline, "callback_manager": self.callback_manager}

    def initialize_step(self, task: Task, **kwargs: Any) -> TaskStep:
        """Begin with an empty state."""
        del kwargs
        state: dict[str, Any] = {"sources": [], "memory": ChatMemoryBuffer()}
        return TaskStep(task.task_id, new_step_id(), task.input, state)

    def run_step(self, step: TaskStep, task: Task, **kwargs: Any) -> TaskStepOutput:
        """Run the pipeline once.

        Raises:
            InvalidArgumentError: Its output is not `(response, is_done)`.
        """
        del kwargs
        self.preprocess(task, step)
        state: dict[str, Any] = {"task": task, "step_state": step.step_state}
        state |= {self.task_key: task, self.step_state_key: step.step_state}
        made: Any = self.pipeline.run_with({}, state)["output"]
        try:
            response, is_done = made
        except (TypeError, ValueError) as error:
            msg = f"The pipeline of an agent must give (response, is_done): {shown(made)}"
            raise InvalidArgumentError(msg) from error
        task.extra_state.update(step.step_state)
        following = [] if is_done else [step.get_next_step(new_step_id())]
        return TaskStepOutput(response, step, following, bool(is_done))

    async def arun_step(self, step: TaskStep, task: Task, **kwargs: Any) -> TaskStepOutput:
        """Run the pipeline once, in a thread."""
        return await asyncio.to_thread(self.run_step, step, task, **kwargs)

    def finalize_task(self, task: Task, **kwargs: Any) -> None:
        """Put what the steps put into the state's memory into the conversation."""
        del kwargs
        memory: Any = task.extra_state.get("memory")
        if memory is not None and memory.get_all():
            task.memory.put_messages(memory.get_all())
