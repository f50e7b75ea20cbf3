"""Events of a task's steps, as values for a program, a log or a terminal.

They are read from the task's own record, so any process may follow a task, while it runs or years
later, and gets each event once and in the order in which it happened. Steps that run side by side
have their events interleaved; `step_id` distinguishes them. Most events of the kind `Attempt` are
the exception: the server knows them only meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, assert_never, cast

from holdfast.errors import InvalidArgumentError
from holdfast.models.openai.hosted_items import HostedCall
from holdfast.task.data.calls import ApprovalKind, asked_for
from holdfast.values.base import Value
from holdfast.values.messages import ToolCall
from holdfast.values.runs.status import TaskStatus
from holdfast.values.steps import AgentResponse, TaskStep, TaskStepOutput, ToolOutput
from holdfast.values.text.shown import shortened, shown, time_shown
from holdfast.values.text.terminal import printable

LONGEST_TEXT = 200
"""Characters of a text that a printed line shows."""


class TaskEvent(Value):
    """Something that happened in a task.

    Attributes:
        number: Its place in the life of the task, growing; reading can go on `after` it. Numbers
            may be left out: a step that was undone before its end has no events for later readers.
            An `Attempt` that is not recorded has the number of the last recorded event.
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


class Thought(TaskEvent):
    """A model said something before the task's answer: with its calls, or in mid-step.

    The words that end the task are those of `StepEnd`.

    Attributes:
        step_id: The step.
        text: What it said.
    """

    kind: Literal["thought"] = "thought"
    step_id: str
    text: str


class HostedToolRan(TaskEvent):
    """A tool of the provider ran inside a model call; the task learns of it with the answer.

    Attributes:
        step_id: The step.
        call: What it did, in short.
    """

    kind: Literal["hosted_tool"] = "hosted_tool"
    step_id: str
    call: HostedCall


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


class Waiting(TaskEvent):
    """The task waits until a person approves, rejects or responds.

    What a child task waits for is among the events of the child task.

    Attributes:
        step_id: The step; empty for an approval that belongs to none.
        approval: Id of the approval, by which it is decided.
        approval_kind: "tool" (a call that needs approval), "unknown" (a call that may have
            happened), "limit" (the budget is used up), "undo" or "question" (of a tool).
        tool: The tool's name, if it is about a call.
        arguments: The call's arguments, JSON text.
        text: Why a person must decide, as far as the call does not say it.
        expires: When it expires to rejected, seconds since the epoch; 0 for never.
    """

    kind: Literal["waiting"] = "waiting"
    step_id: str = ""
    approval: str
    approval_kind: ApprovalKind = "tool"
    tool: str = ""
    arguments: str = ""
    text: str = ""
    expires: float = 0.0


class ApprovalDecided(TaskEvent):
    """The task waits no longer for an approval.

    Attributes:
        step_id: The step; empty for an approval that belongs to none.
        approval: Id of the approval.
        tool: The tool's name, if it is about a call.
        status: How it was decided; "expired" when no one did in time, "withdrawn" when there is
            nothing to decide any more.
        by: Who decided.
        note: What they said about it.
    """

    kind: Literal["approval_decided"] = "approval_decided"
    step_id: str = ""
    approval: str
    tool: str = ""
    status: Literal["approved", "rejected", "responded", "expired", "withdrawn"]
    by: str = ""
    note: str = ""


class CommandGiven(TaskEvent):
    """A person or a program steered the task: feedback, pause, abandon and so on.

    A decision on an approval is an `ApprovalDecided`, unless it is refused.

    Attributes:
        verb: The command.
        by: Who gave it.
        text: Its words: feedback, a new input, a reason.
        is_refused: Whether the task did not carry it out.
        reason: Why not.
    """

    kind: Literal["command_given"] = "command_given"
    verb: str
    by: str = ""
    text: str = ""
    is_refused: bool = False
    reason: str = ""


class StepFailed(TaskEvent):
    """A step stopped with an error; the task waits until it is run again.

    Attributes:
        step_id: The step; empty when the failure is of none.
        error: Type and text of the error.
    """

    kind: Literal["step_failed"] = "step_failed"
    step_id: str = ""
    error: str


class Attempt(TaskEvent):
    """Something is tried again: a model call or a tool call whose worker process was lost, say.

    Most attempts are not recorded: only a reader that follows the task meanwhile gets them, and
    `number` is that of the last recorded event. One is recorded, with a number of its own: a tool
    call that is made again because its worker process was lost.

    Attributes:
        step_id: The step; empty when it belongs to none, or when it is not known.
        name: "model", the tool's name, or the name of another activity.
        attempt: Number of the attempt, from 2.
        why: How the one before ended; "worker lost" when its worker process fell silent.
        seconds: Seconds until it begins; 0 when it has begun.
    """

    kind: Literal["attempt"] = "attempt"
    step_id: str = ""
    name: str
    attempt: int
    why: str
    seconds: float = 0.0


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
    """Steps were undone: their earlier events are void, and they may be run again.

    Attributes:
        steps: Ids of the steps, oldest first, also of steps in progress.
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


StepEvent = (
    ChatStart
    | StepStart
    | Thought
    | HostedToolRan
    | ToolCalled
    | ToolDone
    | Waiting
    | ApprovalDecided
    | CommandGiven
    | StepFailed
    | Attempt
    | StepEnd
    | StepUndone
    | ChatEnd
)
"""What `AgentRunner.step_events` yields."""

EventHandler = Callable[[StepEvent], Awaitable[object] | object]
"""Called with each event; async or not. An exception that it raises is logged, nothing more."""


def event_text(event: StepEvent) -> str:
    """Say in one line what happened; empty for what the events around it say already.

    Raises:
        InvalidArgumentError: It is something else than an event.
    """
    if not isinstance(cast("object", event), TaskEvent):
        raise InvalidArgumentError(f"An event of `step_events` has a text; this is {shown(event)}.")
    match event:
        case ChatStart():
            return f"> Task {event.task_id}: {_short(event.input)}"
        case StepStart():
            return f"> Running step {event.step_id}. Step input: {_short(event.step.input)}"
        case Thought():
            return f"  {event.step_id} says {_short(event.text)}"
        case HostedToolRan() | ToolCalled() | ToolDone():
            return f"  {event.step_id} {_tool_text(event)}"
        case Waiting() | ApprovalDecided() | CommandGiven() | StepFailed() | Attempt():
            return _aside_text(event)
        case StepEnd() if event.output.is_last:
            return f"> Step {event.step_id} has the answer: {_short(str(event.output))}"
        case StepEnd():
            return ""
        case StepUndone():
            return f"> Undone{_by(event.by)}: {', '.join(event.steps)}{_because(event.reason)}"
        case ChatEnd():
            return f"> Task {event.status}{_because(event.error)}"
        case _:
            assert_never(event)


def _tool_text(event: HostedToolRan | ToolCalled | ToolDone) -> str:
    """Say what a tool is to do, or has done."""
    match event:
        case HostedToolRan(call=call):
            verb = "failed" if call.is_error else "ran"
            asked = f" {_short(call.arguments)}" if call.arguments else ""
            return f"{call.tool} {verb} at the provider{asked}"
        case ToolCalled():
            return f"calls {event.call.name} {_short(event.call.arguments)}"
        case ToolDone():
            verb = "failed" if event.output.is_error else "gave"
            return f"{event.output.tool_name} {verb} {_short(str(event.output))}"


def _aside_text(event: Waiting | ApprovalDecided | CommandGiven | StepFailed | Attempt) -> str:
    """Say what a person is asked for or did, or what went wrong."""
    match event:
        case Waiting():
            until = f" until {time_shown(event.expires)}" if event.expires else ""
            what = f"{asked_for(event.approval_kind, event.tool)} ({event.approval})"
            why = ": ".join(part for part in (event.arguments, event.text) if part)
            return f"{_of_step(event.step_id)}waits{until} for {what}{_because(why)}"
        case ApprovalDecided():
            what = f"{_of_step(event.step_id)}{event.tool or 'approval'} {event.status}"
            return f"{what}{_by(event.by)}{_because(event.note)}"
        case CommandGiven():
            refused = " was refused" if event.is_refused else ""
            why = event.reason if event.is_refused else event.text
            return f"> {event.verb.replace('_', ' ')}{_by(event.by)}{refused}{_because(why)}"
        case StepFailed():
            what = f"Step {event.step_id}" if event.step_id else "Task"
            return f"> {what} failed: {_short(event.error)}"
        case Attempt():
            when = f" in {event.seconds:.0f} s" if event.seconds >= 1 else ""
            again = f"{_short(event.why)}; attempt {event.attempt}{when}"
            return f"{_of_step(event.step_id)}{event.name}: {again}"


def _of_step(step_id: str) -> str:
    return f"  {step_id} " if step_id else "  "


def _by(who: str) -> str:
    return f" by {who}" if who else ""


def _because(text: str) -> str:
    return f": {_short(text)}" if text else ""


def print_event(event: StepEvent) -> None:
    """Print an event for people: the handler of `verbose=True`."""
    text = event_text(event)
    if text:
        print(printable(text), flush=True)  # noqa: T201  printing is its work


def _short(text: str | None) -> str:
    return shortened(text or "none", LONGEST_TEXT)
