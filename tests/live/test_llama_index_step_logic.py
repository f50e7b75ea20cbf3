"""Step logic that was written for LlamaIndex, with what llama-index-core still has."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.agent.react.types import ObservationReasoningStep
from llama_index.core.callbacks import trace_method  # pyright: ignore[reportUnknownVariableType]
from llama_index.core.tools import FunctionTool
from pydantic import Field

from holdfast.llama_index import (
    AgentRunner,
    CustomSimpleAgentWorker,
    QueryPipelineAgentWorker,
    ReActChatFormatter,
    Task,
    TaskStep,
    TaskStepOutput,
)
from holdfast.llama_index.query_pipeline import (
    AgentFnComponent,
    AgentInputComponent,
    CustomAgentComponent,
    QueryPipeline,
)
from tests.support.llama_index_runs import engine, run

__all__ = ["engine", "run"]


class Asking(CustomSimpleAgentWorker):
    """Asks back, with data."""

    def _initialize_state(self, task: Task, **kwargs: Any) -> dict[str, Any]:
        del task, kwargs
        return {}

    @trace_method("run_step")
    def run_step(self, step: TaskStep, task: Task, **kwargs: Any) -> TaskStepOutput:
        del kwargs
        output = {"kind": "question", "text": f"{task.input} Where?"}
        return TaskStepOutput(output, step, [], is_last=True)


def test_a_traced_step_finds_a_callback_manager_and_its_output_stays_a_dict() -> None:
    runner = Asking.from_tools([]).as_agent()
    task = runner.create_task("How large?")
    step_output = runner.run_step(task.task_id)
    assert step_output.output == {"kind": "question", "text": "How large? Where?"}
    assert runner.get_completed_steps(task)[0].output["kind"] == "question"
    assert task.callback_manager is runner.callback_manager


class Joining(CustomAgentComponent):
    """Joins its input with itself."""

    separator: str = Field(default=":")

    def _run_component(self, **kwargs: Any) -> dict[str, Any]:
        return {"output": f"{kwargs['a']}{self.separator}{kwargs['a']}"}

    @property
    def _input_keys(self) -> set[str]:
        return {"a"}


def test_a_component_of_the_programs_own_has_fields() -> None:
    def begin(task: Task, state: dict[str, Any]) -> dict[str, Any]:
        del state
        return {"a": task.input}

    def end(task: Task, state: dict[str, Any], output: str) -> tuple[str, bool]:
        del task, state
        return output, True

    chain = [AgentInputComponent(begin), Joining(separator="/"), AgentFnComponent(end)]
    runner = AgentRunner(QueryPipelineAgentWorker(QueryPipeline(chain=chain)))
    assert str(runner.chat("foo")) == "foo/foo"


def test_the_formatter_of_react_writes_messages_for_step_logic() -> None:
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    seen = [ObservationReasoningStep(observation="It is 5.")]
    first, last = ReActChatFormatter(system_header="Tools: {tool_names}.").format(
        [FunctionTool.from_defaults(add)], [], seen
    )
    assert "Tools: add." in str(first.content)
    assert str(last.content) == "Observation: It is 5."


def test_the_formatter_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "llama_index.core.agent.react.formatter", None)
    with pytest.raises(ValueError, match="needs llama-index-core"):
        ReActChatFormatter().format([], [])
