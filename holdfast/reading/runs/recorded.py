"""The whole record of a task, read at once, from which the result of a run is made.

Archived texts are put into its steps, for readers of their messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar

from holdfast.archive.contents import ReadText, read_json, resolve_message
from holdfast.archive.segments import Part, read_messages, read_parts, read_turns, uncollected
from holdfast.errors import NotFoundError, NoWorkerError, QueryFailedError
from holdfast.models.openai.items import shown_items
from holdfast.reading.reader import Reader
from holdfast.task.data.calls import Approval
from holdfast.task.data.head import AgentSnapshot, SessionRef, TaskHead
from holdfast.task.data.records import Entry, OpenState, StepRecord
from holdfast.task.ledger.recording import output_of
from holdfast.task.step_body import JournalPart, StepBody, StepCall, body_of
from holdfast.task.undo import active_steps
from holdfast.values.base import Json
from holdfast.values.messages import Message
from holdfast.values.runs.usage import CallCost
from holdfast.values.steps import HistoryRef, Task, TaskStep
from holdfast.values.text.logs import log

PartT = TypeVar("PartT", StepBody, JournalPart)

AT_ONCE = 32
"""Steps whose texts are read before other work of the event loop has its turn."""

LONG_STEPS = 64
"""A run of more steps is long: to make its result takes more than 10 ms."""


class Steps:
    """The steps of a task; their bodies are made when they are first asked for.

    Attributes:
        records: The steps as the ledger has them.
        whole: The same, if their bodies can be made of them alone, and that is little work; else
            empty.
    """

    def __init__(
        self,
        records: Sequence[StepRecord | OpenState],
        *,
        whole: Sequence[StepRecord] = (),
        bodies: list[StepBody] | None = None,
    ) -> None:
        """Take the steps.

        Args:
            records: The steps as the ledger has them.
            whole: The same, if they are completed, without archived texts, and not many.
            bodies: Their bodies with the archived texts put in, of other steps.
        """
        self.records = tuple(records)
        self.whole = tuple(whole)
        self._bodies = bodies

    def costs(self) -> Iterator[CallCost]:
        """Yield the cost of each model call that was answered in them, oldest first."""
        for of in self.records:
            for entry in of.journal:
                if entry.answer is not None:
                    yield CallCost(entry.answer.usage, entry.answer.failed)

    @property
    def bodies(self) -> list[StepBody]:
        """The steps as readers see them, archived texts put in."""
        if self._bodies is None:
            self._bodies = [body_of(of) for of in self.records]
        return self._bodies


async def resolved_steps(records: Sequence[StepRecord | OpenState], text: ReadText) -> Steps:
    """Put the archived texts into steps; what need not be made at once is left for later.

    Args:
        records: The steps as the ledger has them.
        text: Reads a text of the archive, as `Reader.text`.
    """
    whole = [of for of in records[:LONG_STEPS] if _is_whole(of)]
    if len(whole) == len(records):
        return Steps(records, whole=[of for of in whole if isinstance(of, StepRecord)])
    is_long = len(records) > LONG_STEPS
    made = await asyncio.to_thread(_bodies, records) if is_long else _bodies(records)
    bodies, unread = made
    for k, place in enumerate(unread, 1):
        bodies[place] = await resolved(bodies[place], text)
        if k % AT_ONCE == 0:
            await asyncio.sleep(0)
    return Steps(records, bodies=bodies)


def _bodies(records: Sequence[StepRecord | OpenState]) -> tuple[list[StepBody], list[int]]:
    """Make the bodies of steps; say which of them may have texts in the archive."""
    with uncollected():
        unread = [k for k, of in enumerate(records) if not _is_whole(of)]
        return [body_of(of) for of in records], unread


def _is_whole(of: StepRecord | OpenState) -> bool:
    """Whether this is a completed step in which there is nothing that `resolved` has to read."""
    if not isinstance(of, StepRecord):
        return False
    answers = [entry.answer.message for entry in of.journal if entry.answer is not None]
    if any(
        each.kept is not None or not isinstance(each.content, str) for each in (*of.adds, *answers)
    ):
        return False
    return all(isinstance(outcome.content, str) for _, _, _, outcome in of.made())


async def resolved(body: StepBody, text: ReadText) -> StepBody:
    """Put the archived texts of a step's messages and results into it.

    Args:
        body: The step.
        text: Reads a text of the archive, as `Reader.text`.
    """
    given = body.input
    adds = tuple([await resolve_message(message, text) for message in body.adds])
    return _with(
        body,
        input=None if given is None else await resolve_message(given, text),
        adds=adds,
        journal=tuple([await _part(part, adds, text) for part in body.journal]),
        calls=await _calls(body.calls, adds, text),
    )


async def _part(part: JournalPart, adds: Sequence[Message], text: ReadText) -> JournalPart:
    answer = part.answer
    if answer is not None:
        said = adds[part.at] if part.at is not None else await resolve_message(answer.message, text)
        if said is not answer.message:
            answer = answer.model_copy(update={"message": said})
    return _with(part, answer=answer, calls=await _calls(part.calls, adds, text))


async def _calls(
    calls: Sequence[StepCall], adds: Sequence[Message], text: ReadText
) -> tuple[StepCall, ...]:
    return tuple([await _call(call, adds, text) for call in calls])


async def _call(call: StepCall, adds: Sequence[Message], text: ReadText) -> StepCall:
    outcome, message = call.outcome, call.message
    if outcome is None or message is None:
        return call
    said = adds[outcome.at] if outcome.at is not None else await resolve_message(message, text)
    if said is call.said and said.content is outcome.content:
        return call
    return replace(call, outcome=outcome.model_copy(update={"content": said.content}), said=said)


def _with(of: PartT, **found: Any) -> PartT:
    """Return a part of the record with these fields: itself, as in most steps, if it has them."""
    mine = vars(of)
    is_same = all(mine[name] == each for name, each in found.items())  # mostly the same objects
    return of if is_same else replace(of, **found)


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
        made: The completed steps of the present branch, oldest first, then the open ones, or the
            ones that were open when the task ended.
        entries: The whole ledger, oldest first; its texts are not put in.
        approvals: What waits for a person.
        output: Output of the last completed step, JSON data.
        checked: The final output that output guardrails have checked, JSON data: that of the open
            step, which one of them may have stopped, else `output`.
        before: Messages that preceded the task, when it was given a list: all, or only the ones
            added to the state of the run before it, as it was asked for.
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
    output = None if last is None else last.output
    if last is not None and last.stored is not None:
        output = await read_json(None, last.stored, reader.text)
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
        moved: Positions of items that were moved to it.
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
        state = await reader.session(session.id)
    except (NoWorkerError, NotFoundError, QueryFailedError) as trouble:
        text = "The input of a result lacks the history of session %r, which cannot be read now: %s"
        log.warning(text, session.name, trouble)
        return []
    messages = await read_turns(reader.archive, state, session.commits)
    return [await resolve_message(message, reader.text) for message in messages]


async def read_before(reader: Reader, head: TaskHead, *, whole: bool = True) -> list[Message]:
    """Read the messages that preceded a task; arguments are those of `read_recorded`."""
    newest = None if whole or head.follows is None else head.follows.added
    return await _messages(reader, head.history, newest) if head.history and newest != 0 else []


async def _messages(reader: Reader, sha256: str, newest: int | None = None) -> list[Message]:
    found = await read_messages(reader.archive, sha256, newest)
    return [await resolve_message(message, reader.text) for message in found]
