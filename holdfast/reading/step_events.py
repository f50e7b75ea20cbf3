"""Events of a task's steps, as values for a program, a log or a terminal.

They are read from the task's own record, so any process may follow a task, while it runs or years
later, and gets each event once and in the order in which it happened. Steps that run side by side
have their events interleaved; `step_id` distinguishes them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, assert_never, cast

from holdfast.errors import InvalidArgumentError
from holdfast.values.base import Value
from holdfast.values.messages import ToolCall
from holdfast.values.steps import AgentResponse, TaskStatus, TaskStep, TaskStepOutput, ToolOutput
from holdfast.values.text.shown import shown
from holdfast.values.text.terminal import printable

LONGEST_TEXT = 200
"""Characters of a text that a printed line shows."""


class TaskEvent(Value):
    """Something that happened in a task.

    Attributes:
        number: Its place in the life of the task, growing; reading can go on `after` it. Numbers
            may be left out: a step that was undone before its end has no events for later readers.
        task_id: The task.
    """

    number: int
    task_id: str


class ChatStart(TaskEvent):
    """The task was created: number 0.

    Attributes:
        input: What was asked.
    """

    kind: Literal["chat_start"] = "chat_start"
    input: str


class StepStart(TaskEvent):
    """A step began.

    Attributes:
        step: The step.
    """

    kind: Literal["step_start"] = "step_start"
    step: TaskStep

    @property
    def step_id(self) -> str:
        """The step's id."""
        return self.step.step_id


class ToolCalled(TaskEvent):
    """A tool was called for; it may have to wait for a person before it runs.

    Attributes:
        step_id: The step.
        call: The call as it was asked for.
    """

    kind: Literal["tool_called"] = "tool_called"
    step_id: str
    call: ToolCall


class ToolDone(TaskEvent):
    """A call has its result. Calls that ran side by side are done in any order.

    Attributes:
        step_id: The step.
        output: The result.
    """

    kind: Literal["tool_done"] = "tool_done"
    step_id: str
    output: ToolOutput


class StepEnd(TaskEvent):
    """A step is done.

    Attributes:
        output: What it gave.
    """

    kind: Literal["step_end"] = "step_end"
    output: TaskStepOutput

    @property
    def step_id(self) -> str:
        """The step's id."""
        return self.output.task_step.step_id


class StepUndone(TaskEvent):
    """Steps were undone: their earlier events are void, and they may be run anew.

    Attributes:
        steps: Ids of the steps, oldest first, also of those that were in progress.
        by: Who asked for it.
        reason: Why.
    """

    kind: Literal["step_undone"] = "step_undone"
    steps: tuple[str, ...]
    by: str = ""
    reason: str = ""


class ChatEnd(TaskEvent):
    """The task is closed; nothing follows.

    Attributes:
        status: How it was closed: "finished", "failed" or "abandoned".
        response: Its answer, when it is finished.
        error: Why it has no answer, else empty.
    """

    kind: Literal["chat_end"] = "chat_end"
    status: TaskStatus
    response: AgentResponse | None = None
    error: str = ""


StepEvent = ChatStart | StepStart | ToolCalled | ToolDone | StepEnd | StepUndone | ChatEnd
"""What `AgentRunner.step_events` yields."""

EventHandler = Callable[[StepEvent], Awaitable[object] | object]
"""Called with each event; async or not. An exception that it raises is logged, nothing more."""


def event_text(event: StepEvent) -> str:
    """Say in one line what happened; empty for what the events around it say already.

    Raises:
        InvalidArgumentError: It is something else than an event.
    """
    if not isinstance(cast("object", event), TaskEvent):
        msg = f"An event of `step_events` has a text; this is {shown(event)}."
        raise InvalidArgumentError(msg)
    match event:
        case ChatStart():
            return f"> Task {event.task_id}: {_short(event.input)}"
        case StepStart():
            return f"> Running step {event.step_id}. Step input: {_short(event.step.input)}"
        case ToolCalled():
            return f"  {event.step_id} calls {event.call.name} {_short(event.call.arguments)}"
        case ToolDone():
            verb = "failed" if event.output.is_error else "gave"
            return f"  {event.step_id} {event.output.tool_name} {verb} {_short(str(event.output))}"
        case StepEnd() if event.output.is_last:
            return f"> Step {event.step_id} has the answer: {_short(str(event.output))}"
        case StepEnd():
            return ""
        case StepUndone():
            by = f" by {event.by}" if event.by else ""
            reason = f": {_short(event.reason)}" if event.reason else ""
            return f"> Undone{by}: {', '.join(event.steps)}{reason}"
        case ChatEnd():
            return f"> Task {event.status}{f': {_short(event.error)}' if event.error else ''}"
        case _:
            assert_never(event)


def print_event(event: StepEvent) -> None:
    """Print an event for people: the handler of `verbose=True`."""
    text = event_text(event)
    if text:
        print(printable(text), flush=True)  # noqa: T201  printing is its work


def _short(text: str | None) -> str:
    line = " ".join((text or "none").split())
    return line if len(line) <= LONGEST_TEXT else f"{line[: LONGEST_TEXT - 3]}..."
