"""The whole record of a task, read at once, from which the result of a run is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from holdfast.archive.contents import read_json, resolve_message
from holdfast.archive.segments import Part, read_messages, read_parts, turns
from holdfast.errors import NotFoundError, NoWorkerError, QueryFailedError
from holdfast.models.openai.items import shown_items
from holdfast.reading.reader import Reader
from holdfast.reading.runs.resolved import Steps, resolved_steps
from holdfast.task.data.agent_snapshot import AgentSnapshot
from holdfast.task.data.calls import Approval
from holdfast.task.data.head import SessionRef, TaskHead
from holdfast.task.data.records import Entry, OpenState, StepRecord
from holdfast.task.data.state import SessionState
from holdfast.task.ledger.references import output_of
from holdfast.task.step_body import StepBody
from holdfast.task.undo import active_steps
from holdfast.values.base import Json
from holdfast.values.messages import Message
from holdfast.values.steps import HistoryRef, Task, TaskStep
from holdfast.values.text.logs import log


@dataclass(frozen=True)
class View:
    """What an agent sees since a handoff in place of the conversation before it.

    Attributes:
        ref: Where it is kept.
        messages: The messages.
        steps: Number of steps up to the one that handed the task over.
        moved: Positions of the items of its input that are items of these steps.
        dropped: Number of steps up to one that handed the task over, with the keys of its last
            items that a filter has taken out of the run's, see `turn_keys`.
    """

    ref: HistoryRef
    messages: list[Message]
    steps: int
    moved: tuple[int, ...]
    dropped: dict[int, frozenset[str]]

    @property
    def given(self) -> list[Message]:
        """The messages that are the run's input."""
        return self.messages[: self.ref.given]

    @property
    def made(self) -> list[Message]:
        """Those after it, which the run had made."""
        return [] if self.ref.given is None else self.messages[self.ref.given :]


@dataclass(frozen=True)
class Recorded:
    """A task with its record, archived texts put in.

    Attributes:
        task: The task.
        head: Agent, session and rules.
        made: The completed steps of the present branch, oldest first, then those that are open, or
            were when the task ended.
        entries: The whole ledger, oldest first; its texts are not put in.
        approvals: What waits for a person.
        output: Output of the last completed step, JSON data.
        checked: The final output that output guardrails have checked, JSON data: that of the open
            step, which one of them may have stopped, else `output`.
        before: Messages that preceded the task, when it was given a list: all, or only those that
            were added to the state of the run before it, as it was asked for.
        session: Messages before those: what the task sees of its session. A session that cannot be
            read now is left out, with a warning in the log; the result is made without it.
        last_step: The step that is in progress, else the last one.
        view: What the agent whose turn it is sees in place of the first messages, if it does.
        began: The agent as the task began with it, if that was asked for.
        data: Bytes of the archived segments of the whole ledger of a closed task, oldest first.
    """

    task: Task
    head: TaskHead
    made: Steps
    entries: list[Entry]
    approvals: list[Approval]
    output: Json
    checked: Json
    before: list[Message]
    session: list[Message]
    last_step: TaskStep
    view: View | None
    began: AgentSnapshot | None = None
    data: tuple[bytes, ...] = ()

    @property
    def steps(self) -> list[StepBody]:
        """The steps as readers see them; they are made when they are first asked for."""
        return self.made.bodies


async def read_recorded(
    reader: Reader, task_id: str, *, servers: bool = False, whole: bool = True
) -> Recorded:
    """Read a task, open or closed.

    Args:
        reader: Reads it.
        task_id: The task.
        servers: Whether its agents have MCP servers: their tools are those it began with.
        whole: Whether to read all messages that preceded it. Those of a run that goes on from
            another one grow with each run of a conversation; else only what was added is read.

    Raises:
        TaskNotFoundError: No task has this id.
        NoWorkerError: It is open, and no worker process is up to answer.
    """
    record = await reader.records.read(task_id)
    approvals: list[Approval] = []
    parts: list[Part] = []
    if record is None:
        task = await reader.task(task_id)
        head = await reader.head(task_id)
        entries, opens = await reader.ledger(task_id)
        if task.status == "waiting":
            approvals = [a for a in await reader.approvals(task_id) if a.status == "open"]
    else:
        parts = await read_parts(reader.archive, record.segment)
        task, head, opens = Task.model_validate(record.task), record.head, record.opens
        if task.unsettled:
            task = await reader.settled(task)
        entries = [entry for part in parts for entry in part.entries]
        if task.stored is not None:
            task = task.model_copy(update={"input": await reader.text(task.stored)})
    steps = active_steps(entries)
    last = steps[-1] if steps else None
    last_step = opens[0].open.step if opens else last.step if last else TaskStep()
    output = await read_json(last.output, last.stored, reader.text) if last else None
    return Recorded(
        task=task,
        head=head,
        made=await resolved_steps([*steps, *opens], reader.text),
        entries=entries,
        approvals=approvals,
        output=output,
        checked=await _final_of(reader, opens, output),
        before=await read_before(reader, head, whole=whole),
        session=await _of_session(reader, head.session),
        last_step=last_step,
        view=await _view(reader, steps, last_step),
        began=await read_snapshot(reader, head) if servers else None,
        data=tuple(part.data for part in parts),
    )


async def _final_of(reader: Reader, opens: Iterable[OpenState], ended: Json) -> Json:
    """Return the final output of the open step that has one, else that of the last step."""
    for current in opens:
        found = output_of(current)
        if found is not None and current.result is not None and current.result.last:
            return await read_json(found.output, found.stored, reader.text)
    return ended


async def _view(reader: Reader, steps: Sequence[StepRecord], last_step: TaskStep) -> View | None:
    """Read what the agent sees whose turn it is; None for the whole conversation."""
    at, moved = 0, tuple[int, ...]()
    ref: HistoryRef | None = None
    dropped: dict[int, frozenset[str]] = {}
    for k, of in enumerate(steps, 1):
        following = of.next[0].history if of.next else None
        if following is None or following.is_same(of.step.history):
            continue
        # An input that was left as it was has the items that were moved to it before.
        if not following.kept:
            before = [] if ref is None or not moved else await _read_view(reader, ref)
            now = await _read_view(reader, following) if before else []
            moved = _moved(following.moved, now, there=[before[i] for i in moved])
        at, ref = k, following
        if following.dropped:
            dropped[k] = frozenset(following.dropped)
    if ref is None:
        ref = last_step.history
    if ref is None:
        return None
    return View(ref, await _messages(reader, ref.sha256), at, moved, dropped)


async def _read_view(reader: Reader, ref: HistoryRef) -> list[dict[str, Json]]:
    """Read the items of the input of an agent that sees a view."""
    return shown_items((await _messages(reader, ref.sha256))[: ref.given])


def _moved(
    moved: tuple[int, ...], items: Sequence[dict[str, Json]], *, there: Iterable[dict[str, Json]]
) -> tuple[int, ...]:
    """Return the positions of items of an input that were moved to it, or to the one before it.

    Args:
        moved: Positions of those that were moved to it.
        items: The input.
        there: Items that were moved to the one before it. A filter may have left them out.
    """
    found = set(moved)
    for was in there:
        same = (k for k, item in enumerate(items) if k not in found and item == was)
        found.update(islice(same, 1))
    return tuple(sorted(found))


async def read_snapshot(reader: Reader, head: TaskHead) -> AgentSnapshot | None:
    """Read the agent as a task began with it; None before the task has begun."""
    if not head.snapshot:
        return None
    return AgentSnapshot.model_validate_json(await reader.archive.aget(head.snapshot))


async def _of_session(reader: Reader, session: SessionRef | None) -> list[Message]:
    """Read the turns that a session had when the task began."""
    if session is None or not session.commits:
        return []
    try:
        state = await reader.query(session.id, "state", SessionState, even_closed=True)
    except (NoWorkerError, NotFoundError, QueryFailedError) as trouble:
        text = "The input of a result lacks the history of session %r, which cannot be read now: %s"
        log.warning(text, session.name, trouble)
        return []
    seen = await turns(reader.archive, state, session.commits)
    return [message for turn in seen for message in await _messages(reader, turn.sha256)]


async def read_before(reader: Reader, head: TaskHead, *, whole: bool = True) -> list[Message]:
    """Read the messages that preceded a task; arguments are those of `read_recorded`."""
    newest = None if whole or head.follows is None else head.follows.added
    return await _messages(reader, head.history, newest) if head.history and newest != 0 else []


async def _messages(reader: Reader, sha256: str, newest: int | None = None) -> list[Message]:
    found = await read_messages(reader.archive, sha256, newest)
    return [await resolve_message(message, reader.text) for message in found]
