"""What an activity asks its task for, and the answer."""

from __future__ import annotations

from pydantic import Field

from holdfast.task.data.failures import Failure
from holdfast.task.data.head import TaskHead
from holdfast.task.data.records import Handed, JournalEntry, OpenStep, SegmentRef
from holdfast.values.base import Json, Value
from holdfast.values.messages import Message, ToolCall, Usage


class ViewRequest(Value):
    """Query of an activity for the parts of the task that it does not have.

    Attributes:
        n: The open step.
        have: Messages of the transcript that it holds.
        upto: Messages that it needs.
        head: Whether it needs the task's head.
        open: Whether it needs the open step.
        journal: Journal entries that it holds.
        calls: Whether it needs the open calls.
        output: Whether it needs the step's output.
        state: Whether it needs the state that the open calls see, and not the calls.
        failure: Whether it needs the failure with which the task waits.
    """

    n: int = 0
    have: int = 0
    upto: int = 0
    head: bool = False
    open: bool = False
    journal: int = -1
    calls: bool = False
    output: bool = False
    state: bool = False
    failure: bool = False


class View(Value):
    """Answer to a ViewRequest; lists are pages, ask again for the rest.

    Attributes:
        head: The task's head.
        messages: Messages of the transcript.
        segment: Newest archived segment of the ledger, when messages are asked for that are
            archived.
        base: Number of messages of the present branch that are there.
        open: The open step.
        journal: Its answered calls.
        calls: Its open calls.
        state: The extra_state that those see, or that the step leaves.
        output: The step's output.
        usage: Cost of the task so far.
        failure: The failure with which the task waits, if any.
    """

    head: TaskHead | None = None
    messages: tuple[Message, ...] = ()
    segment: SegmentRef | None = None
    base: int = 0
    open: OpenStep | None = None
    journal: tuple[JournalEntry, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    state: dict[str, Json] = Field(default_factory=dict)
    output: Handed | None = None
    usage: Usage = Usage()
    failure: Failure | None = None
