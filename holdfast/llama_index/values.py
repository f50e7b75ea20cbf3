"""Task, TaskStep, TaskStepOutput and the responses by LlamaIndex's names.

They are views of what a task recorded, or what step logic of a user's own makes.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any

from holdfast.llama_index.llms.messages import CORE
from holdfast.llama_index.tools import Dumped, ToolOutput, tool_output
from holdfast.values import steps
from holdfast.values.base import as_text
from holdfast.values.parts.sources import SourceNode, nodes_of, union


@dataclass
class Task(Dumped):
    """One run of an agent on one input.

    Attributes:
        task_id: Names the task; it is the id of a Temporal workflow.
        input: What was asked.
        memory: The conversation that the task belongs to.
        extra_state: State that all steps share. Of a task that a runner describes, a copy.
        callback_manager: That of the runner.
    """

    task_id: str
    input: str
    memory: Any = None
    extra_state: dict[str, Any] = field(default_factory=dict[str, Any])
    callback_manager: Any = field(default=None, repr=False)


@dataclass
class TaskStep(Dumped):
    """A unit of work.

    Attributes:
        task_id: The task that it belongs to.
        step_id: Unique within the task.
        input: New user input for this step, or None when it only goes on.
        step_state: State handed from step to step.
        next_steps: Steps that were linked to come after it, by id.
        prev_steps: Steps that were linked to come before it, by id: it waits for them.
        is_ready: False keeps it in the queue until a step hands out one of the same id.
    """

    task_id: str
    step_id: str
    input: str | None = None
    step_state: dict[str, Any] = field(default_factory=dict[str, Any])
    next_steps: dict[str, TaskStep] = field(default_factory=dict[str, "TaskStep"], repr=False)
    prev_steps: dict[str, TaskStep] = field(default_factory=dict[str, "TaskStep"], repr=False)
    is_ready: bool = True
    memory: InitVar[Any] = None
    """Taken and not kept, as in LlamaIndex: the conversation is the task's."""

    def get_next_step(
        self, step_id: str, input: str | None = None, step_state: dict[str, Any] | None = None
    ) -> TaskStep:
        """Make a step that follows this one.

        Args:
            step_id: Id of the new step.
            input: New user input, or None.
            step_state: State of the new step; None hands this step's state on.
        """
        state = self.step_state if step_state is None else step_state
        return TaskStep(self.task_id, step_id, input, state)

    def link_step(self, next_step: TaskStep) -> None:
        """Have another step wait for this one."""
        self.next_steps[next_step.step_id] = next_step
        next_step.prev_steps[self.step_id] = self


@dataclass
class TaskStepOutput(Dumped):
    """What a step gave.

    Attributes:
        output: An AgentChatResponse, or what the step logic made.
        task_step: The step that was run.
        next_steps: Steps that it queues, in order.
        is_last: Whether the task has its answer.
    """

    output: Any
    task_step: TaskStep
    next_steps: list[TaskStep] = field(default_factory=list[TaskStep])
    is_last: bool = False

    def __str__(self) -> str:
        """Return the output as text."""
        return str(self.output)


@dataclass
class AgentChatResponse:
    """An answer, or what a step said.

    Attributes:
        response: The text.
        sources: Results of tools, in call order.
        source_nodes: What those results rest on.
        is_dummy_stream: Always False: a stream here is one.
        metadata: More about it. {"status": "waiting", ...} when a person must decide.
    """

    response: str = ""
    sources: list[ToolOutput] = field(default_factory=list[ToolOutput])
    source_nodes: list[Any] = field(default_factory=list[Any])
    is_dummy_stream: bool = False
    metadata: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        """Take the nodes of the sources, unless some are given."""
        self.set_source_nodes()

    def set_source_nodes(self) -> None:
        """Take what the sources' raw outputs rest on, unless there are nodes already."""
        if not self.source_nodes:
            self.source_nodes = [scored_node(node) for node in _nodes_beneath(self.sources)]

    def __str__(self) -> str:
        """Return the text."""
        return self.response

    @property
    def response_gen(self) -> Iterator[str]:
        """The text in one piece, as of a stream."""
        yield self.response

    async def async_response_gen(self) -> AsyncIterator[str]:
        """Give the text in one piece, as of a stream."""
        yield self.response


@dataclass
class NodeWithScore:
    """A piece of text that a result rests on.

    Attributes:
        text: The piece.
        node_id: Names it.
        score: How well it fits, or None.
        metadata: What else is known of it.
    """

    text: str
    node_id: str = ""
    score: float | None = None
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def node(self) -> NodeWithScore:
        """The node itself."""
        return self

    def get_content(self, **_: Any) -> str:
        """Return the text."""
        return self.text


def _nodes_beneath(sources: Sequence[Any]) -> tuple[SourceNode, ...]:
    """List what the raw outputs of sources rest on."""
    return union(nodes_of(getattr(each, "raw_output", None)) for each in sources)


def scored_node(node: SourceNode) -> Any:
    """Write a node as LlamaIndex's NodeWithScore, if the program uses it, else as ours."""
    if CORE not in sys.modules:
        return NodeWithScore(node.text, node.id, node.score, dict(node.metadata))
    from llama_index.core import schema

    made = schema.TextNode(id_=node.id, text=node.text, metadata=dict(node.metadata))
    return schema.NodeWithScore(node=made, score=node.score)


@dataclass(frozen=True)
class OwnRecord:
    """What the record of a step of the program's own step logic has next to the text of its output.

    Attributes:
        sources: Those of its response.
        nodes: What its response rests on.
        metadata: That of its response.
        all_sources: Those of the task so far, where the step logic collects them in
            `task.extra_state["sources"]`.
    """

    sources: Sequence[Any] = ()
    nodes: Sequence[SourceNode] = ()
    metadata: dict[str, Any] | None = None
    all_sources: Sequence[Any] = ()

    def answer(self, text: str, metadata: dict[str, Any] | None = None) -> AgentChatResponse:
        """Make the response of the last step: its sources are those of the task."""
        sources = [*(self.all_sources or self.sources)]
        nodes = union([_nodes_beneath(sources), self.nodes])
        more = {**(self.metadata or {}), **(metadata or {})} or None
        return AgentChatResponse(text, sources, [*map(scored_node, nodes)], metadata=more)

    def said(self, text: str) -> AgentChatResponse:
        """Make the response of a step in the middle."""
        nodes = [*map(scored_node, self.nodes)]
        return AgentChatResponse(text, [*self.sources], nodes, metadata=self.metadata)


def step_view(step: steps.TaskStep) -> TaskStep:
    """Show a recorded or queued step."""
    before = {each: TaskStep(step.task_id, each) for each in step.prev_steps}
    state = dict(step.step_state)
    return TaskStep(
        step.task_id, step.step_id, step.input, state, prev_steps=before, is_ready=step.is_ready
    )


def output_view(
    output: steps.TaskStepOutput,
    *,
    observes: bool = False,
    before: Sequence[steps.ToolOutput] = (),
    gives_data: bool = False,
    own: OwnRecord | None = None,
) -> TaskStepOutput:
    """Show a step's output.

    Args:
        output: The output.
        observes: Whether a step in the middle says what it observed, as ReAct's do.
        before: Results of tools of the steps before it, for the last one, which shows all.
        gives_data: Whether an output that is a dict or a list is shown as that.
        own: What step logic of the program's own has recorded with it.
    """
    sources = [*before, *output.sources] if output.is_last else output.sources
    nodes = union(source.nodes for source in sources)
    text = as_text(output.output)
    if observes and not output.is_last and output.sources:
        text = f"Observation: {output.sources[-1].content}"
    metadata: dict[str, Any] | None = None
    if output.status == "waiting":
        text = f"The task waits: {'; '.join(output.waiting_for)}"
        metadata = {"status": "waiting", "approvals": list(output.approvals)}
    made: Any = output.output
    if not (gives_data and metadata is None and isinstance(made, dict | list)):
        shown = [tool_output(source) for source in sources]
        found = [scored_node(node) for node in nodes]
        made = AgentChatResponse(text, shown, found, metadata=metadata)
        if own is not None and metadata is None:
            made = own.answer(text) if output.is_last else own.said(text)
    return TaskStepOutput(
        output=made,
        task_step=step_view(output.task_step),
        next_steps=[step_view(step) for step in output.next_steps],
        is_last=output.is_last,
    )


def response_view(response: steps.AgentResponse, own: OwnRecord | None = None) -> AgentChatResponse:
    """Show the answer of a finalized task; `own` is what its step logic recorded with the last."""
    metadata: dict[str, Any] = {"task_id": response.task_id}
    if response.status == "waiting":
        metadata["status"] = "waiting"
    elif own is not None:
        return own.answer(response.response, metadata)
    return AgentChatResponse(
        response.response,
        [tool_output(source) for source in response.sources],
        [scored_node(node) for node in response.source_nodes],
        metadata=metadata,
    )
