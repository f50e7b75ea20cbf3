"""Step logic that was written for LlamaIndex, with what llama-index-core still has."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from types import SimpleNamespace
from typing import Any

import pytest
from llama_index.core.agent.react.types import ObservationReasoningStep
from llama_index.core.callbacks import trace_method  # pyright: ignore[reportUnknownVariableType]
from llama_index.core.tools import FunctionTool
from pydantic import Field

from holdfast.errors import StepFailedError
from holdfast.llama_index import (
    AgentChatResponse,
    AgentRunner,
    BaseAgent,
    BaseAgentWorker,
    ChatMessage,
    ChatResponse,
    CustomSimpleAgentWorker,
    OpenAI,
    OpenAIAgent,
    QueryPipelineAgentWorker,
    ReActAgent,
    ReActChatFormatter,
    ReActOutputParser,
    Task,
    TaskStep,
    TaskStepOutput,
    ToolOutput,
)
from holdfast.llama_index import FunctionTool as OurTool
from holdfast.llama_index.query_pipeline import (
    AgentFnComponent,
    AgentInputComponent,
    CustomAgentComponent,
    QueryPipeline,
)
from holdfast.llama_index.values import NodeWithScore
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


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


DOUBLE = OurTool.from_defaults(double)


@dataclass
class Answer:
    """What a query engine gave: a text, and the nodes that it rests on."""

    text: str
    source_nodes: list[NodeWithScore]

    def __str__(self) -> str:
        return self.text


class Doubling(BaseAgentWorker):
    """Doubles a number in two steps, by a tool, and collects what the tool gave."""

    def initialize_step(self, task: Task, **kwargs: Any) -> TaskStep:
        del kwargs
        task.extra_state["sources"] = []
        return TaskStep(task.task_id, "first", task.input, {"number": 3, "pair": (1, 2)})

    def run_step(self, step: TaskStep, task: Task, **kwargs: Any) -> TaskStepOutput:
        del kwargs
        source = DOUBLE(number=step.step_state["number"])
        node = NodeWithScore(source.content, node_id=source.content)
        source.raw_output = Answer(source.content, [node])
        step.step_state["number"] = int(source.content)
        task.extra_state["sources"].append(source)
        is_last = step.input is None
        response = AgentChatResponse(source.content, [source], metadata={"lock": Lock(), "by": 2})
        following = [] if is_last else [step.get_next_step("second")]
        return TaskStepOutput(response, step, following, is_last)


def test_step_logic_has_its_sources_its_states_and_its_task_step_by_step() -> None:
    runner = AgentRunner(Doubling())
    task = runner.create_task("twice")
    first = runner.run_step(task)
    state = {"number": 6, "pair": (1, 2)}
    assert first.task_step.step_state == first.next_steps[0].step_state == state
    assert runner.get_upcoming_steps(task)[0].step_state == state
    assert len(task.extra_state["sources"]) == 1
    last = runner.run_step(task)
    assert len(task.extra_state["sources"]) == 2
    assert runner.get_task(task.task_id) is task
    numbers = [each.task_step.step_state["number"] for each in runner.get_completed_steps(task)]
    assert numbers == [6, 12]
    answer = runner.finalize_response(task.task_id)
    shown = (first.output, last.output, answer)
    assert [[str(each) for each in output.sources] for output in shown] == [
        ["6"],
        ["6", "12"],
        ["6", "12"],
    ]
    assert [each.node_id for each in answer.source_nodes] == ["6", "12"]
    assert answer.sources[0].raw_input["kwargs"] == {"number": 3}
    assert answer.sources[0].raw_output.text == "6"
    assert first.output.metadata == {"by": 2}
    assert answer.metadata == {"by": 2, "task_id": task.task_id}
    assert [str(each) for each in runner.chat("again").sources] == ["6", "12"]


class Plain:
    """An LLM of the program's own, without function calls: it answers with Holdfast's response."""

    metadata = SimpleNamespace(model_name="plain", is_function_calling_model=False)

    async def achat(self, messages: list[Any], **options: Any) -> ChatResponse:
        del messages, options
        answer = ChatMessage("Thought: I know.\nAnswer: 6", role="assistant")
        return ChatResponse(
            message=answer, raw={"usage": {"prompt_tokens": 7, "completion_tokens": [3]}}
        )


def test_the_agent_for_an_llm_is_the_one_that_it_can_serve() -> None:
    assert isinstance(AgentRunner.from_llm([DOUBLE], llm=OpenAI("offline")), OpenAIAgent)
    runner = AgentRunner.from_llm([DOUBLE], llm=Plain(), verbose=False)
    assert isinstance(runner, ReActAgent)
    task = runner.create_task("Twice 3?")
    assert str(runner.run_step(task).output) == "6"
    assert runner.durable.get_task(task.task_id).usage.input_tokens == 7


class Secretive:
    """Cannot say what it holds."""

    def to_string(self) -> str:
        msg = "It is closed."
        raise RuntimeError(msg)

    @classmethod
    def from_string(cls, text: str) -> Secretive:
        del text
        return cls()


@dataclass
class Fragile:
    """Is made once, and not again."""

    made: bool = False

    def __post_init__(self) -> None:
        if self.made:
            msg = "It was made before."
            raise RuntimeError(msg)
        self.made = True


class Leaving(BaseAgentWorker):
    """Leaves in its response, and in the task, what cannot be written or made again."""

    def initialize_step(self, task: Task, **kwargs: Any) -> TaskStep:
        del kwargs
        return TaskStep(task.task_id, "first", task.input)

    def run_step(self, step: TaskStep, task: Task, **kwargs: Any) -> TaskStepOutput:
        del kwargs
        task.extra_state["fragile"] = Fragile()
        metadata = {"secret": Secretive(), "fragile": Fragile(), "by": 2}
        source = ToolOutput("a table", raw_output=["x" * 1000] * 9000)  # a memo holds 8 MB
        response = AgentChatResponse("done", [source], metadata=metadata)
        return TaskStepOutput(response, step, [], True)


def test_a_step_is_done_also_if_what_it_leaves_cannot_be_written_or_made_again() -> None:
    runner = AgentRunner(Leaving())
    task = runner.create_task("leave")
    output = runner.run_step(task).output
    assert (str(output), output.metadata["by"], "secret" in output.metadata) == ("done", 2, False)
    assert [(each.content, each.raw_output) for each in output.sources] == [("a table", "a table")]
    assert (task.extra_state, runner.get_completed_steps(task)[0].output.metadata["by"]) == ({}, 2)


class ClosedError(Exception):
    """An error of the program's own, with data."""

    def __init__(self, until: int) -> None:
        super().__init__(f"closed until {until}")
        self.until = until


class Closed(Doubling):
    """Step logic that fails."""

    def run_step(self, step: TaskStep, task: Task, **kwargs: Any) -> TaskStepOutput:
        raise ClosedError(9)


def test_an_error_of_the_programs_own_is_raised_as_itself() -> None:
    runner = Closed().as_agent()
    task = runner.create_task("foo")
    for run_step in (runner.run_step, runner.durable.run_step):
        with pytest.raises(ClosedError, match="closed until 9") as caught:
            run_step(task.task_id)
        assert caught.value.until == 9
        assert isinstance(caught.value, StepFailedError)


def test_members_of_old_programs_are_there() -> None:
    def end(task: Task, state: dict[str, Any]) -> tuple[str, bool]:
        del state
        return task.input, True

    def begin(task: Task, state: dict[str, Any]) -> dict[str, Any]:
        return {"task": task, **state}

    manager, first = object(), AgentInputComponent(begin)
    worker = QueryPipelineAgentWorker(QueryPipeline(chain=[first, AgentFnComponent(end)]), manager)
    assert worker.callback_manager is manager
    assert worker.agent_input_component is worker.agent_components[0]
    assert (worker.task_key, worker.step_state_key) == ("task", "step_state")
    assert isinstance(worker.as_agent(), BaseAgent)
    task = Task("t", "foo", None, {})
    step = Doubling().initialize_step(task)
    output = Doubling().stream_step(step, task)
    assert output.next_steps


def test_parser_of_react_reads_actions_and_answers() -> None:
    read = ReActOutputParser().parse('Thought: x\nAction: add\nAction Input: {"a": 1}')
    assert (read.thought, read.action, read.action_input) == ("x", "add", {"a": 1})
    done = ReActOutputParser().parse("Thought: y\nAnswer: 3")
    assert (done.is_done, done.response) == (True, "3")
    with pytest.raises(ValueError, match="Could not parse output"):
        ReActOutputParser().parse("Action Input: {}")
