"""The step API's values: Task, TaskStep, TaskStepOutput, and what a task answers in the end."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from pydantic import Field

from holdfast.errors import InvalidArgumentError
from holdfast.values.base import Json, Value, Written, as_text
from holdfast.values.messages import Artifact, Blob, ImagePart, Message, ToolCall, Usage, user
from holdfast.values.parts.sources import SourceNode
from holdfast.values.runs.status import TaskStatus
from holdfast.values.settings import Budget
from holdfast.values.text.html import InNotebook

AFTER = -1
"""Says of a HistoryRef that it stands for the whole transcript after the step that hands it on."""


class HistoryRef(Value):
    """Other messages instead of the first ones of the transcript, for those who see them so.

    Attributes:
        sha256: Digest in the archive of the list of messages.
        skip: Messages of the transcript that they stand for; those after it follow them. `AFTER`
            until the step is done that hands it on.
        given: How many of them, from the first on, are the input of the run; None for all.
        input: What that input is: items, a text, or the one that the run began with. Empty if that
            was not recorded, as in earlier releases: the messages stand for the input as well.
        kept: Whether it is the input that the agent before has seen.
        moved: Positions of its items that are items of the run, moved there word for word. Only the
            step that begins with these messages has them: they would grow with each step.
        dropped: Keys of those items of the turn that handed over which a filter has taken out of
            the run's, see `turn_keys`; of the step that begins with these messages as well.
        since: Name of the agent that made the first message after the input; empty for the agent
            that the task began with.
        to: Name of the agent that was handed the task, and makes the messages that follow.
    """

    sha256: str
    skip: int = 0
    given: int | None = None
    input: Literal["", "items", "text", "same"] = ""
    kept: bool = False
    moved: tuple[int, ...] = ()
    dropped: tuple[str, ...] = ()
    since: str = ""
    to: str = ""

    def carried(self) -> HistoryRef:
        """Return this as the steps after the first one have it."""
        is_first = bool(self.moved or self.dropped)
        return self.model_copy(update={"moved": (), "dropped": ()}) if is_first else self

    def is_same(self, other: HistoryRef | None) -> bool:
        """Whether another one stands for the same messages in the same place."""
        return other is not None and (self.sha256, self.skip) == (other.sha256, other.skip)


class ListedTask(InNotebook, Value):
    """What a list knows of a task. `get_task` reads the rest.

    Attributes:
        task_id: The Temporal workflow id.
        input: What was asked, as it was created; inputs of later steps do not change it. A list has
            its beginning.
        agent: Name of the agent.
        status: One of `TaskStatus`.
        created: Time of creation, seconds since the epoch: of tasks from `create_task` and
            `list_tasks` when a client asked for it, by its clock; else when a worker began it, of a
            fork when the step ended that it departs from.
        blocked_by: What a running task waits for that has failed and is tried again, with the
            cause, the attempt and the time; else empty. A list names only workflow tasks that fail.
        parent: Id of the task that it works for, as a call of an agent as a tool; else empty.
    """

    task_id: str
    input: str = ""
    agent: str = ""
    status: TaskStatus = "running"
    created: float = 0.0
    blocked_by: str = ""
    parent: str = ""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in Task.model_fields:
                msg = f"A list does not know {name!r} of a task: `get_task` reads it."
                raise AttributeError(msg)
            return super().__getattr__(name)

    def _shown(self) -> tuple[str, Mapping[str, object]]:
        """Return what a notebook shows."""
        rows = {
            "status": self.status.replace("_", " "),
            "agent": self.agent,
            "input": self.input,
            "blocked by": self.blocked_by,
        }
        return f"Task {self.task_id}", rows


class Task(ListedTask):
    """One run of an agent on one input.

    Attributes:
        session: Name of the session that finalize commits to, empty for none.
        extra_state: The task's shared state, JSON data.
        steps: Number of completed steps.
        usage: What the task has cost so far: all model calls whose answer has arrived, also of
            steps that were undone, started again or blocked, and what the tasks of its calls cost.
        unsettled: Of a closed task: the tasks of its calls that go on or cannot be read, with what
            `usage` has of each.
        branch_usage: What of it the present branch has cost: an undo takes back its steps.
        error: Why the task needs attention or has failed, else empty.
        waits: What its calls wait for that goes on outside, as "sleeps until ..."; else empty.
        paused: Who paused it and why, else empty.
        paused_by_run: Whether that was a streamed run which was to stop after its turn: running its
            state resumes the task.
        stored: Where the archive keeps an input too large for history; AgentRunner resolves it.
        images: Images that came with the input.
        budget: Its limits, or None.
    """

    session: str = ""
    extra_state: dict[str, Json] = Field(default_factory=dict)
    steps: int = 0
    usage: Usage = Usage()
    unsettled: dict[str, Usage] = Field(default_factory=dict)
    branch_usage: Usage = Usage()
    error: str = ""
    waits: str = ""
    paused: str = ""
    paused_by_run: bool = False
    stored: Blob | None = None
    images: tuple[ImagePart, ...] = ()
    budget: Budget | None = None

    def _shown(self) -> tuple[str, Mapping[str, object]]:
        """Return what a notebook shows."""
        title, known = super()._shown()
        more = {
            "session": self.session,
            "steps": self.steps or "",
            "tokens": self.usage.total_tokens or "",
            "error": self.error,
            "waits": self.waits,
            "paused": self.paused,
        }
        return title, {**known, **more}


class TaskStep(InNotebook, Written):
    """A unit of work that can be run, audited and undone.

    Attributes:
        task_id: The task it belongs to.
        step_id: Unique within the task; an empty id is given by the task.
        input: New user input for this step, or None when it only goes on.
        step_state: State handed from step to step, JSON data.
        prev_steps: Ids of steps that must be done before this one can run. Their outputs are then
            in `ctx.inputs`.
        is_ready: False keeps a step without `prev_steps` in the queue until a step hands out one of
            the same id that is ready.
        is_join: Whether the task made it, to join several last outputs into one.
        images: Images that came with the input, or without one.
        agent: Name of the agent that runs it; empty for the one that ran the step before it.
        history: What its agent sees of what came before it, when that is not all; None for what the
            agent of the step before it saw.
        enters: Whether its agent begins with it: the task was handed over, or a new input came.
        behind: How many of the messages that wait for it were there before its input.
    """

    task_id: str = ""
    step_id: str = ""
    input: str | None = None
    step_state: dict[str, Json] = Field(default_factory=dict)
    prev_steps: tuple[str, ...] = ()
    is_ready: bool = True
    is_join: bool = False
    images: tuple[ImagePart, ...] = ()
    agent: str = ""
    history: HistoryRef | None = None
    enters: bool = False
    behind: int = 0

    def _shown(self) -> tuple[str, Mapping[str, object]]:
        """Return what a notebook shows."""
        rows = {
            "task": self.task_id,
            "agent": self.agent,
            "input": self.input or "",
            "waits for": ", ".join(self.prev_steps),
        }
        return f"Step {self.step_id}", rows

    def after(self, step: TaskStep) -> TaskStep:
        """Return this step as one that follows another: by the same agent, unless it names one."""
        agent, history = self.agent or step.agent, self.history
        if history is None and step.history is not None:
            history = step.history.carried()
        enters = self.enters or bool(self.agent and self.agent != step.agent)
        if (agent, history, enters) == (self.agent, self.history, self.enters):
            return self
        return self.model_copy(update={"agent": agent, "history": history, "enters": enters})

    def placed(self, length: int) -> TaskStep:
        """Return this step so that what its agent sees stands for `length` messages."""
        if self.history is None or self.history.skip != AFTER:
            return self
        history = self.history.model_copy(update={"skip": length})
        return self.model_copy(update={"history": history})

    def message(self) -> Message | None:
        """Return the step's input as a user message of text and images; None without an input."""
        if self.input is None and not self.images:
            return None
        return user(self.input or "", self.images)

    def get_next_step(
        self,
        step_id: str = "",
        input: str | None = None,
        step_state: dict[str, Json] | None = None,
        images: tuple[ImagePart, ...] = (),
    ) -> TaskStep:
        """Make a step that follows this one.

        Args:
            step_id: Id of the new step; empty lets the task give one.
            input: New user input, or None.
            step_state: State of the new step; None hands this step's state on, an empty dict
                starts from nothing.
            images: Images of the new input.
        """
        return TaskStep(
            task_id=self.task_id,
            step_id=step_id,
            input=input,
            step_state=self.step_state if step_state is None else step_state,
            images=images,
        )

    def link_step(self, next_step: TaskStep) -> TaskStep:
        """Return `next_step` so that it waits for this one as well.

        It becomes ready once all steps it waits for are done.

        Raises:
            InvalidArgumentError: One of the two has no id, or they would wait for each other.
        """
        if not self.step_id or not next_step.step_id:
            msg = "Linked steps need ids of their own: make them with step_id=..."
            raise InvalidArgumentError(msg)
        if self.step_id == next_step.step_id or next_step.step_id in self.prev_steps:
            raise InvalidArgumentError(
                f"Steps {self.step_id!r} and {next_step.step_id!r} would wait for each other:"
                " neither could ever run."
            )
        if self.step_id in next_step.prev_steps:
            return next_step
        waits = (*next_step.prev_steps, self.step_id)
        return next_step.model_copy(update={"prev_steps": waits})


class ToolOutput(InNotebook, Value):
    """What one tool call gave.

    Attributes:
        tool_name: The tool.
        call_id: The model's id of the call.
        raw_input: The arguments as the model wrote them.
        content: The result as the model saw it; a placeholder stands for each image.
        is_error: Whether it is a failure's text.
        status: "done", "failed", or "unknown" when a worker was lost inside the call and the tool
            may or may not have taken effect.
        attempts: How often the call was started.
        nodes: What the result rests on, when the tool said so.
        child_task: For a call of an agent as a tool: the task that it was.
        artifacts: Files that the tool has kept.
    """

    tool_name: str
    call_id: str = ""
    raw_input: str = "{}"
    content: str = ""
    is_error: bool = False
    status: Literal["done", "failed", "unknown"] = "done"
    attempts: int = 1
    nodes: tuple[SourceNode, ...] = ()
    child_task: str = ""
    artifacts: tuple[Artifact, ...] = ()

    def __str__(self) -> str:
        """Return the content."""
        return self.content

    def _shown(self) -> tuple[str, Mapping[str, object]]:
        """Return what a notebook shows."""
        status = "failed" if self.is_error and self.status == "done" else self.status
        rows = {"arguments": self.raw_input, "result": self.content, "status": status}
        return f"Call of {self.tool_name}", rows


class TaskStepOutput(InNotebook, Written):
    """What a step gave, or its present state.

    An AgentWorker returns one with `output`, `task_step`, `next_steps`, `is_last` and perhaps
    `calls`; the task fills in the rest.

    Attributes:
        output: Any JSON data; text for most workers.
        task_step: The step that was run.
        next_steps: Steps that it queues, in order.
        is_last: Whether the task has its answer.
        calls: Tool calls that end the step: the task runs them, then the step is over.
        quiet: Whether the results of `calls` are the step's output rather than messages of the
            transcript: text, {"content", "is_error": True} for a failure, a list for several calls.
        status: "done", "waiting" while a person must decide, or "undone".
        branch: Branch of the ledger on which it ran; each undo begins a new one.
        sources: The step's tool results, in call order.
        usage: What the step's model calls cost.
        waiting_for: While waiting: what for, one text per open point.
        approvals: Ids of the approvals among these: what a person must decide.
    """

    output: Any = None
    task_step: TaskStep = TaskStep()
    next_steps: tuple[TaskStep, ...] = ()
    is_last: bool = False
    calls: tuple[ToolCall, ...] = ()
    quiet: bool = False
    status: Literal["done", "waiting", "undone"] = "done"
    branch: int = 0
    sources: tuple[ToolOutput, ...] = ()
    usage: Usage = Usage()
    waiting_for: tuple[str, ...] = ()
    approvals: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the output as text."""
        return as_text(self.output)

    def _shown(self) -> tuple[str, Mapping[str, object]]:
        """Return what a notebook shows."""
        rows = {
            "status": "the last step" if self.is_last else self.status,
            "output": self,
            "calls": _calls_shown(self.sources),
            "waits for": "\n".join(self.waiting_for),
            "next": ", ".join(step.step_id for step in self.next_steps),
            "tokens": self.usage.total_tokens,
        }
        return f"Step {self.task_step.step_id}", rows


class UndoReceipt(Value):
    """What an undo did.

    Attributes:
        status: "waiting" while a person must decide on the undo of an effect.
        steps: Ids of the steps that were left, oldest first.
        undone: Effects that were undone, newest first, in words.
        remains: What stays in the world.
        check: What someone should look at, because no one knows if it happened.
    """

    status: Literal["done", "waiting"] = "done"
    steps: tuple[str, ...] = ()
    undone: tuple[str, ...] = ()
    remains: tuple[str, ...] = ()
    check: tuple[str, ...] = ()


class AgentResponse(InNotebook, Value):
    """The answer of a finalized task.

    Attributes:
        response: The answer's text.
        output: The last step's output as JSON data.
        sources: Results of all tool calls, over all steps, in call order.
        source_nodes: What those results rest on, in the same order, each id once.
        usage: What all model calls of the task cost, see Task.
        branch_usage: What of it the steps that led to the answer cost.
        task_id: The task that gave it.
        status: "done", or "waiting" while a person must decide and there is no answer yet.
    """

    response: str
    output: Any = None
    sources: tuple[ToolOutput, ...] = ()
    source_nodes: tuple[SourceNode, ...] = ()
    usage: Usage = Usage()
    branch_usage: Usage = Usage()
    task_id: str = ""
    status: Literal["done", "waiting"] = "done"

    def __str__(self) -> str:
        """Return the answer's text."""
        return self.response

    def _shown(self) -> tuple[str, Mapping[str, object]]:
        """Return what a notebook shows."""
        rows = {
            "answer": self.response,
            "status": self.status,
            "calls": _calls_shown(self.sources),
            "tokens": self.usage.total_tokens,
        }
        return f"Answer of task {self.task_id}", rows


def _calls_shown(calls: tuple[ToolOutput, ...]) -> str:
    return "\n".join(f"{call.tool_name}({call.raw_input}): {call.content}" for call in calls)


NameT = TypeVar("NameT", str, int)


def circle(before: Mapping[NameT, Iterable[NameT]]) -> list[NameT]:
    """Return names that wait for each other in a ring, first one repeated; nothing without a ring.

    Args:
        before: Name to the names that it waits for.
    """
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        return cast("list[NameT]", error.args[1])[::-1]
    return []


def in_order(before: Mapping[NameT, Collection[NameT]]) -> list[NameT]:
    """Return names in order: each comes after the ones it waits for, else as given.

    Args:
        before: Name to the names that it waits for; there is no ring.
    """
    waiting = list(before)
    order: list[NameT] = []
    while waiting:
        ready = next(each for each in waiting if set(before[each]).issubset(order))
        waiting.remove(ready)
        order.append(ready)
    return order
