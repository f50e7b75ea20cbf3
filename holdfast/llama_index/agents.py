"""Agents that bring their worker along, and the runner of steps side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from holdfast.llama_index.agent_runner import AgentRunner
from holdfast.llama_index.reads import awaited, id_of, settled
from holdfast.llama_index.values import Task, TaskStepOutput
from holdfast.llama_index.workers.base import AGENTS, options_of_runner
from holdfast.llama_index.workers.react import ReActAgentWorker
from holdfast.llama_index.workers.tools import (
    CoAAgentWorker,
    FunctionCallingAgentWorker,
    OpenAIAgentWorker,
    ToolAgentWorker,
)
from holdfast.values import steps


class _WorkerAgent(AgentRunner):
    """A runner that makes its worker of tools."""

    worker_class: ClassVar[type[ToolAgentWorker]]

    def __init_subclass__(cls) -> None:
        """Be the agent that `AgentRunner.from_llm` makes with this worker."""
        super().__init_subclass__()
        AGENTS.setdefault(cls.worker_class, cls.from_tools)

    def __init__(self, tools: Sequence[Any] = (), llm: Any = None, **options: Any) -> None:
        """Make the worker, then the runner.

        Args:
            tools: The tools.
            llm: The model.
            options: Those of AgentRunner, and all of the worker's.
        """
        own = options_of_runner(options)
        worker = self.worker_class(tools or (), llm, **options)
        super().__init__(worker, **own)

    @classmethod
    def from_tools(
        cls,
        tools: Sequence[Any] | None = None,
        tool_retriever: Any = None,
        llm: Any = None,
        **options: Any,
    ) -> Self:
        """Make an agent of tools.

        Args:
            tools: The tools: ours, LlamaIndex's, Holdfast's, or plain functions.
            tool_retriever: Chooses among tools for each step, instead of `tools`.
            llm: The model: LlamaIndex's, Holdfast's or its name; None for the default.
            options: Those of AgentRunner, and all of the worker's.
        """
        return cls(tools or (), llm, tool_retriever=tool_retriever, **options)


class OpenAIAgent(_WorkerAgent):
    """Function calling with OpenAI's models."""

    worker_class = OpenAIAgentWorker


class FunctionCallingAgent(_WorkerAgent):
    """Function calling with any model that can."""

    worker_class = FunctionCallingAgentWorker


class ReActAgent(_WorkerAgent):
    """Thought, action and observation as text, for any model."""

    worker_class = ReActAgentWorker


class CoAAgentPack:
    """An agent that reasons with placeholders, and one method to run it.

    Attributes:
        agent: The agent.
    """

    def __init__(self, tools: Sequence[Any] | None = None, llm: Any = None, **options: Any) -> None:
        """Make the agent; the options are those of CoAAgentWorker."""
        self.agent = AgentRunner(CoAAgentWorker.from_tools(tools, llm=llm, **options))

    def get_modules(self) -> dict[str, Any]:
        """Return the parts by name."""
        return {"agent": self.agent, "worker": self.agent.agent_worker}

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Chat with the agent."""
        return self.agent.chat(*args, **kwargs)


class ParallelAgentRunner(AgentRunner):
    """Runs all steps that are ready at the same time."""

    async def _round(self, task_id: str) -> list[TaskStepOutput]:
        outputs = await self._tasks.run_round(task_id)
        return [await self._shown(task_id, each) for each in outputs]

    def run_steps_in_queue(self, task_id: Task | str, **_: Any) -> list[TaskStepOutput]:
        """Run all steps that are ready, and return their outputs in the order of the queue.

        Raises:
            IndexError: No step is left.
        """
        return settled(self._round(id_of(task_id)))

    async def arun_steps_in_queue(self, task_id: Task | str, **_: Any) -> list[TaskStepOutput]:
        """Do what `run_steps_in_queue` does."""
        return await awaited(self._round(id_of(task_id)))

    async def _run(self, task_id: str) -> steps.AgentResponse:
        """Run round after round until one has the answer.

        Raises:
            ValueError: More than one step gave an answer.
        """
        outputs: list[TaskStepOutput] = []
        while not any(output.is_last for output in outputs):
            outputs = await self._round(task_id)
        if len(outputs) > 1:
            msg = "More than one step output returned in final step."
            raise ValueError(msg)
        return await self._tasks.finalize(task_id)
