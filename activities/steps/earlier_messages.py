"""The conversation before a task: its session, or the messages it was given."""

from __future__ import annotations

from temporalio import activity
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.data.source import Source
from holdfast.archive.segments import read_messages, turns
from holdfast.task.data.head import SessionRef, TaskHead
from holdfast.task.data.state import SessionState
from holdfast.values.hash_chain import ChainRef
from holdfast.values.messages import Message
from holdfast.values.steps import TaskStep


async def history_before(source: Source, head: TaskHead) -> tuple[Message, ...]:
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
        history = tuple([await source.resolve(message) for message in messages])
        memory.put_history(history)
        return history
    return memory.history


async def seen_before(
    source: Source, head: TaskHead, step: TaskStep, at: ChainRef
) -> tuple[tuple[Message, ...], list[Message]]:
    """Return what a step's agent sees: what comes before the task's messages, and those."""
    transcript = await source.transcript(at)
    if step.history is None:
        return await history_before(source, head), transcript
    messages = await source.stored_list(step.history.sha256)
    return messages, transcript[step.history.skip :]


async def commits_now(head: TaskHead) -> ChainRef:
    """Return the commits that the task's session has now; an unused session has none."""
    if head.session is None or head.session.unread:
        return ChainRef()
    handle = activity.client().get_workflow_handle(head.session.id)
    try:
        state: SessionState = await handle.query("state", result_type=SessionState)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return ChainRef()
        raise
    return ChainRef(state.base + len(state.commits), state.digest)


async def _session(source: Source, session: SessionRef) -> list[Message]:
    """Read the turns that the session had when the task began."""
    handle = activity.client().get_workflow_handle(session.id)
    state = await handle.query("state", result_type=SessionState)
    messages: list[Message] = []
    for turn in await turns(source.archive, state, session.commits):
        messages.extend(await read_messages(source.archive, turn.sha256))
    return messages
