"""The conversation that a step's agent sees: what came before its task, and the task's own."""

from __future__ import annotations

from typing import NamedTuple

from temporalio import activity
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.data.conversation import Conversation
from holdfast.activities.data.source import Source
from holdfast.archive.segments import read_messages, turns
from holdfast.reading.queries import while_busy
from holdfast.task.data.head import SessionRef, TaskHead
from holdfast.task.data.state import SessionState
from holdfast.values.base import ChainRef
from holdfast.values.messages import Message
from holdfast.values.steps import TaskStep


class Seen(NamedTuple):
    """The messages that a step's agent sees, without those that the step adds.

    Attributes:
        whole: All of them.
        transcript: The task's own.
        given: Number of those before the task's own, or instead of the first of them.
    """

    whole: Conversation
    transcript: tuple[Message, ...]
    given: int


async def history_before(source: Source, head: TaskHead) -> Conversation:
    """Return the messages that the model sees before the task's own, oldest first."""
    memory = source.memory()
    if memory.history is None:
        messages: list[Message] = []
        if head.session is not None and head.session.commits:
            messages.extend(await _session(source, head.session))
        if head.reads is not None and head.reads.commits:
            messages.extend(await _session(source, head.reads))
        if head.history:
            messages.extend(await read_messages(source.archive, head.history))
        history = Conversation.of([await source.resolve(message) for message in messages])
        memory.put_history(history)
        return history
    return memory.history


async def seen_before(source: Source, head: TaskHead, step: TaskStep, at: ChainRef) -> Seen:
    """Return what a step's agent sees of the conversation before the step."""
    own, skip = await source.conversation(at), 0
    if step.history is None:
        history = await history_before(source, head)
    else:
        history, skip = await source.stored_list(step.history.sha256), step.history.skip
    given, transcript = len(history.messages), own.messages[skip:]
    places = (given - skip + k for k in own.not_text if k >= skip)
    # Added, not unpacked: with one that is empty, the other is not copied.
    whole = Conversation(history.messages + transcript, (*history.not_text, *places))
    return Seen(whole, transcript, given)


async def commits_now(head: TaskHead) -> ChainRef:
    """Return the commits that the task's session has now; an unused session has none."""
    if head.session is None or head.session.unread:
        return ChainRef()
    handle = activity.client().get_workflow_handle(head.session.id)
    try:
        state = await while_busy(lambda: handle.query("state", result_type=SessionState))
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return ChainRef()
        raise
    return ChainRef(state.base + len(state.commits), state.digest)


async def _session(source: Source, session: SessionRef) -> list[Message]:
    """Read the turns that the session had when the task began."""
    handle = activity.client().get_workflow_handle(session.id)
    state = await while_busy(lambda: handle.query("state", result_type=SessionState))
    messages: list[Message] = []
    for turn in await turns(source.archive, state, session.commits):
        messages.extend(await read_messages(source.archive, turn.sha256))
    return messages
