"""Events of a task's Temporal history, for the live view and for `show` with no worker up.

This is a second source next to the ledger, and no map of `holdfast.task.happenings`: history has
each start and retry of an activity, which the ledger leaves out, and the server answers without a
worker process. It has neither branches nor decisions, so it needs a vocabulary of its own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Literal, TypeVar

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.common import RawValue

from holdfast.engine.search_attributes import APPROVALS_MEMO
from holdfast.reading.queries import cause_of, said_by
from holdfast.task.data.calls import Approval, Outcome
from holdfast.task.data.commands import Command, decode
from holdfast.task.data.records import JournalEntry, OpenState, OpenStep, StepResult
from holdfast.task.data.wire import Advanced, AdvanceInput, TaskResult, ToolInput
from holdfast.task.ledger.recording import new_entries, resolve_calls
from holdfast.task.refusals import ABANDONED
from holdfast.task.requests.command_effects import HEARD
from holdfast.values.base import Value
from holdfast.values.messages import Blob, Content, ToolCall, shown
from holdfast.values.steps import TaskStep

T = TypeVar("T")

Kind = Literal[
    "asking", "answered", "calling", "returned", "retried", "failed", "waiting", "command", "ended"
]

_ENDS = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED: "abandoned",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED: "terminated from outside",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT: "timed out",
}


class LiveEvent(Value):
    """An event of a task, as its Temporal history shows it.

    Attributes:
        kind: "asking" and "answered": a model call. "calling" and "returned": a tool call.
            "retried": a call is made again. "failed": a call failed for good, or a step stopped.
            "waiting": a person is asked to decide. "command": a person steers the task. "ended":
            the task is closed.
        at: Time, seconds since the epoch.
        step: Ordinal of the step, 0 when it belongs to none.
        step_id: The step's id, empty when it is not known.
        name: "model", the tool's name, another activity's name, or the verb.
        text: Arguments, answer, result, reason.
        calls: Tool calls in an answer.
        is_error: Whether a tool gave an error.
        attempt: Number of the attempt, from 1.
        seconds: Seconds until that attempt begins, if it has not begun.
        activity: Id of the activity, as pending activities are named by.
        lane: Lane of the step of a model call, as in `AdvanceInput`.
        lost: The activity that was lost before that of a model call, as there.
        error: Why the step stopped after its answer.
    """

    kind: Kind
    at: float = 0.0
    step: int = 0
    step_id: str = ""
    name: str = ""
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    is_error: bool = False
    attempt: int = 1
    seconds: float = 0.0
    activity: str = ""
    lane: int = 0
    lost: str = ""
    error: str = ""


class TaskHistory:
    """Reads the history of one task from its present run on; each event comes once."""

    def __init__(self, client: Client, task_id: str) -> None:
        """Read nothing yet."""
        self._client = client
        self._task_id = task_id
        self._run_id: str | None = None
        self._seen = 0
        self._scheduled: dict[int, LiveEvent] = {}
        self._journal: list[JournalEntry] = []
        self._calls: tuple[ToolCall, ...] = ()
        self._step = 0
        self._asked: set[str] = set()
        self._inline: list[LiveEvent] = []  # more events of the same event of history

    async def read(self, *, wait: bool) -> AsyncGenerator[LiveEvent]:
        """Yield the events since the last reading.

        Args:
            wait: Whether to go on until the task is closed; else end at what is known now.

        Raises:
            RPCError: The server cannot be reached; reading again goes on where this ended.
        """
        while True:
            next_run = ""
            handle = self._client.get_workflow_handle(self._task_id, run_id=self._run_id)
            async for event in handle.fetch_history_events(wait_new_event=wait):
                next_run = _next_run(event)
                if event.event_id <= self._seen:
                    continue
                try:
                    found = await self._take(event)
                except Exception as error:  # noqa: BLE001  of a codec; shown
                    found = LiveEvent(
                        kind="failed", name=f"reading event {event.event_id}", text=said_by(error)
                    )
                self._seen = event.event_id
                for each in (*([] if found is None else [found]), *self._inline):
                    yield each
                self._inline.clear()
            if not next_run:
                return
            self._run_id, self._seen = next_run, 0
            self._scheduled.clear()

    async def _take(self, event: HistoryEvent) -> LiveEvent | None:
        at = event.event_time.ToMicroseconds() / 1e6
        match event.event_type:
            case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                return await self._schedule(event, at)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
                return await self._start(event, at)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                return await self._complete(event, at)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED:
                failed = event.activity_task_failed_event_attributes
                return await self._fail(failed.scheduled_event_id, failed.failure, at)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
                late = event.activity_task_timed_out_event_attributes
                return await self._fail(late.scheduled_event_id, late.failure, at)
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
                return await self._command(event, at)
            case EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED:
                return await self._waits(event, at)
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
                done = event.workflow_execution_completed_event_attributes
                result = await self._decode(done.result.payloads, TaskResult)
                return LiveEvent(kind="ended", at=at, text=result.status)
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
                cause = event.workflow_execution_failed_event_attributes.failure
                is_left = cause.application_failure_info.type == ABANDONED
                return LiveEvent(kind="ended", at=at, text="abandoned" if is_left else "failed")
            case kind if kind in _ENDS:
                return LiveEvent(kind="ended", at=at, text=_ENDS[kind])
            case _:
                return None

    async def _schedule(self, event: HistoryEvent, at: float) -> LiveEvent | None:
        sent = event.activity_task_scheduled_event_attributes
        name = sent.activity_type.name
        shown = LiveEvent(kind="asking", at=at, name=name, activity=sent.activity_id)
        if name == "step":
            step = await self._decode(sent.input.payloads, AdvanceInput)
            self._step = step.n
            self._fit_journal(step.journal.length)
            what = {"step": step.n, "step_id": _id_of(step), "name": "model", "lane": step.lane}
            what["lost"] = step.lost
            shown = shown.model_copy(update=what)
        elif name == "tool":
            given = await self._decode(sent.input.payloads, ToolInput)
            call = given.call or _at(self._calls, given.i)
            where = {"step": given.n, "step_id": given.step or usual_id(given.n)}
            what = {"name": call.name, "text": call.arguments, "calls": (call,)}
            shown = shown.model_copy(update={"kind": "calling", **where, **what})
        elif name == "rejoin":  # a call that an earlier run of the task has shown
            shown = shown.model_copy(update={"kind": "calling", "name": "tool"})
        self._scheduled[event.event_id] = shown
        return shown if name in ("step", "tool") else None

    async def _start(self, event: HistoryEvent, at: float) -> LiveEvent | None:
        started = event.activity_task_started_event_attributes
        scheduled = self._scheduled.get(started.scheduled_event_id)
        if scheduled is None or started.attempt <= 1:
            return None
        changes = {"kind": "retried", "at": at, "attempt": started.attempt}
        changes |= {"text": await cause_of(self._client, started.last_failure)}
        return scheduled.model_copy(update=changes)

    async def _complete(self, event: HistoryEvent, at: float) -> LiveEvent | None:
        done = event.activity_task_completed_event_attributes
        scheduled = self._scheduled.pop(done.scheduled_event_id, None)
        if scheduled is None or (scheduled.name != "model" and scheduled.kind != "calling"):
            return None
        if scheduled.kind == "calling":
            return _returned(scheduled, await self._decode(done.result.payloads, Outcome), at)
        return self._answered(scheduled, await self._decode(done.result.payloads, Advanced), at)

    def _answered(self, scheduled: LiveEvent, got: Advanced, at: float) -> LiveEvent | None:
        self._journal.extend(new_entries(got, last=False))
        if got.result is not None:
            self._calls = self._ending_calls(got.result)
        elif got.calls:
            self._calls = got.calls
        for i, outcome in sorted(got.outcomes.items()):
            if outcome.ended:
                self._inline += self._run_inline(scheduled, i, outcome)
        failed = f"{got.failure.type}: {got.failure.text}" if got.failure is not None else ""
        if got.answer is None:
            changes = {"kind": "failed", "at": at, "text": failed}
            return scheduled.model_copy(update=changes) if failed else None
        message = got.answer.message
        changes = {"kind": "answered", "at": at, "text": _shown(message.content)}
        return scheduled.model_copy(update={**changes, "calls": message.calls, "error": failed})

    def _run_inline(self, step: LiveEvent, i: int, outcome: Outcome) -> list[LiveEvent]:
        """Return the events of a call that ran in the activity of its step."""
        call = _at(self._calls, i)
        what = {"name": call.name, "text": call.arguments, "calls": (call,)}
        place = {"kind": "calling", "activity": f"{step.activity}.{i}"}
        began = {"at": outcome.ended - outcome.took}
        calling = step.model_copy(update={**what, **place, **began})
        return [calling, _returned(calling, outcome, outcome.ended)]

    async def _waits(self, event: HistoryEvent, at: float) -> LiveEvent | None:
        """Return the approvals that are new in the memo, where the task shows the waiting ones."""
        fields = event.workflow_properties_modified_event_attributes.upserted_memo.fields
        if APPROVALS_MEMO not in fields:
            return None
        cards = await self._decode([fields[APPROVALS_MEMO]], list[Approval])
        new = [card for card in cards if card.id not in self._asked]
        self._asked |= {card.id for card in new}
        text = "; ".join(_question(card) for card in new)
        return LiveEvent(kind="waiting", at=at, text=text) if new else None

    def _fit_journal(self, length: int) -> None:
        """Keep the journal as long as the task's, so that references into it resolve.

        Entries that history lacks are calls made in mid-step; results do not refer to them.
        """
        del self._journal[length:]
        missing = length - len(self._journal)
        self._journal.extend([JournalEntry(request="")] * missing)

    def _ending_calls(self, result: StepResult) -> tuple[ToolCall, ...]:
        step = OpenStep(step=TaskStep())
        state = OpenState(open=step, n=self._step, started=0.0, journal=tuple(self._journal))
        try:
            return resolve_calls(result, state)
        except (IndexError, RuntimeError):  # the answer is in the history of an earlier run
            return ()

    async def _fail(self, scheduled_id: int, failure: Failure, at: float) -> LiveEvent | None:
        scheduled = self._scheduled.pop(scheduled_id, None)
        if scheduled is None:
            return None
        text = await cause_of(self._client, failure)
        return scheduled.model_copy(update={"kind": "failed", "at": at, "text": text})

    async def _command(self, event: HistoryEvent, at: float) -> LiveEvent | None:
        sent = event.workflow_execution_signaled_event_attributes
        if sent.signal_name in HEARD:  # sent between tasks and activities, not by a person
            return None
        kinds: list[type] = [RawValue] * len(sent.input.payloads)
        told = LiveEvent(kind="command", at=at)
        try:
            bodies = await self._client.data_converter.decode(sent.input.payloads, kinds)
        except Exception as error:  # noqa: BLE001  of a codec; shown
            what = {"name": sent.signal_name, "text": f"cannot be read here: {said_by(error)}"}
            return told.model_copy(update=what)
        got = decode(sent.signal_name, [each.payload.data for each in bodies])
        if isinstance(got, Command):
            by = f"by {got.by}" if got.by else ""
            text = ": ".join(part for part in (by, got.said) if part)
            return told.model_copy(update={"name": got.verb, "text": text})
        return told.model_copy(update={"name": got.verb or "unreadable", "text": got.reason})

    async def _decode(self, payloads: Sequence[Payload], kind: type[T]) -> T:
        if not payloads:
            return kind()
        found: T = (await self._client.data_converter.decode(payloads[:1], [kind]))[0]
        return found


def _returned(calling: LiveEvent, outcome: Outcome, at: float) -> LiveEvent:
    return calling.model_copy(
        update={
            "kind": "returned",
            "at": at,
            "text": _shown(outcome.content),
            "is_error": outcome.is_error,
            "attempt": outcome.attempts,
        }
    )


def usual_id(n: int) -> str:
    """Return the id of the n-th step, unless its worker gave it another."""
    return f"s{n}"


def place(n: int, step_id: str) -> str:
    """Name a step by its ordinal, and by its id where that is not the usual one."""
    return f"step {n}" if step_id in ("", usual_id(n)) else f"step {n} ({step_id})"


def _id_of(step: AdvanceInput) -> str:
    if step.open is not None:
        return step.open.step.step_id
    return "" if step.digest else usual_id(step.n)  # with a digest, only the task knows it


def _question(card: Approval) -> str:
    what = " ".join(part for part in (card.tool, card.arguments) if part)
    return f"{card.id}: {': '.join(part for part in (what, card.text) if part)}"


def _shown(content: Content) -> str:
    if isinstance(content, Blob):
        return f"({content.size} bytes, in the archive)"
    return shown(content)


def _at(calls: tuple[ToolCall, ...], place: int) -> ToolCall:
    return calls[place] if place < len(calls) else ToolCall(id="", name="tool", arguments="")


def _next_run(event: HistoryEvent) -> str:
    if event.event_type != EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
        return ""
    return event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
