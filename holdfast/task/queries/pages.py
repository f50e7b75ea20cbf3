"""Answers to queries of a task, in pages far below Temporal's size limit for one answer.

The ledger of a task that closes is also kept for the activity that stores it, if that is in this
process. To ask the task by a query costs the server a round trip and the worker a workflow
activation. Elsewhere, at a further attempt, or where workflows run in a sandbox that has modules of
its own, there is no page here, and the activity asks the task.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TypeVar

from holdfast.task.data.calls import Approval
from holdfast.task.data.failures import Failure
from holdfast.task.data.records import OpenState, SegmentRef, StepRecord
from holdfast.task.data.state import known_head
from holdfast.task.data.wire import EntriesPage, EntriesRequest, View, ViewRequest
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.ledger.references import output_of
from holdfast.task.people.approvals import asked_everywhere
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import ChainRef, Value, canonical
from holdfast.values.runs.status import TaskStatus
from holdfast.values.steps import Task, TaskStep

V = TypeVar("V", bound=Value)

PAGE_BYTES = 256 * 1024
"""Size at which a page ends; one value may pass it.

Texts of messages, tool results and outputs are at most 16 KB inline, the rest is in the archive.
Arguments of calls, step_state, inputs of next steps and patches of the state are whole at any size.
"""


def page(values: Sequence[V]) -> tuple[V, ...]:
    """Take values from the front until the page is full, but at least one."""
    taken: list[V] = []
    size = 0
    for value in values:
        size += len(canonical(value.wire()))
        if taken and size > PAGE_BYTES:
            break
        taken.append(value)
    return tuple(taken)


def entries_page(ledger: Ledger, asked: EntriesRequest) -> EntriesPage:
    """Show a page of the entries that are not archived."""
    rest = ledger.log.entries[asked.skip :]
    taken = page(rest)
    return EntriesPage(
        segment=ledger.log.segment,
        entries=taken,
        more=len(taken) < len(rest),
        opens=tuple(each.chained() for each in ledger.s.opens) if asked.opens else (),
        branch=ledger.s.branch,
        ledger=ledger.log.chain,
        number=ledger.log.number,
        task=ledger.task() if asked.task else None,
    )


def view(ledger: Ledger, asked: ViewRequest) -> View:
    """Return the parts of the task that an activity asks for.

    Messages before the last archived segment are not here: the answer then names the newest.
    """
    current = ledger.find(asked.n)
    head = known_head(ledger.head, ledger.s.described)
    start = max(asked.have - ledger.base, 0)
    messages = page(ledger.messages[start : max(asked.upto - ledger.base, 0)])
    if asked.output and current is not None:
        return output_view(ledger, current)
    return View(
        head=head if asked.head else None,
        messages=messages,
        segment=ledger.log.segment if asked.have < ledger.base else None,
        base=ledger.base,
        open=current.open if asked.open and current else None,
        journal=page(current.journal[asked.journal :]) if asked.journal >= 0 and current else (),
        calls=current.calls if asked.calls and current else (),
        state=current.state if asked.state and current else {},
        failure=ledger.failure if asked.failure else None,
    )


def closed_task(task: Task, status: TaskStatus, failure: Failure | None) -> Task:
    """Describe a task that has been closed, for its record and for anyone who asks it meanwhile.

    Args:
        task: It, as while it was open.
        status: Its end.
        failure: The reply to requests that wait for its answer, if it has no answer.
    """
    error = f"{failure.type}: {failure.text}" if failure is not None else ""
    return task.model_copy(update={"status": status, "error": error})


def output_view(ledger: Ledger, current: OpenState) -> View:
    """Return the output of a step that is about to end, and the state after it, for a guardrail."""
    output = output_of(current)
    state, _ = merge_patch.merge(current.state, [o.patch for o in current.outcomes.values()])
    return View(output=output, state=state, usage=ledger.money.spent)


class StepView(Value):
    """One step, as far as the task itself still holds it.

    Attributes:
        record: The completed step, when it is not in the archive.
        segment: Newest archived segment of the ledger, when the step is archived.
        waiting_for: What the step in progress waits for.
        approvals: Ids of the approvals that it waits for.
        step: The step in progress, when it waits.
        n: Its ordinal; 0 when none is in progress.
    """

    record: StepRecord | None = None
    segment: SegmentRef | None = None
    waiting_for: tuple[str, ...] = ()
    approvals: tuple[str, ...] = ()
    step: TaskStep = TaskStep()
    n: int = 0


def step_view(ledger: Ledger, n: int) -> StepView:
    """Show a completed step of the present branch by its ordinal; 0 shows what the task waits for.

    Number 0 has the step in progress, else the next one, and no point when nothing waits any more.
    """
    if n == 0:
        waiting = asked_everywhere(ledger)
        asked = {approval.n for approval in waiting}
        opens = sorted(ledger.s.opens, key=lambda current: current.n not in asked)
        texts = [point(approval) for approval in waiting]
        return StepView(
            waiting_for=tuple(texts),
            approvals=tuple(approval.id for approval in waiting),
            step=opens[0].open.step if opens else next(iter(ledger.queue.upcoming()), TaskStep()),
            n=opens[0].n if opens else 0,
        )
    if ledger.s.undo is None and n > ledger.s.steps:
        return StepView()
    for entry in reversed(ledger.log.entries):  # the newest of this number is not undone
        if entry.step is not None and entry.step.n == n:
            return StepView(record=entry.step)
    return StepView(segment=ledger.log.segment)


def point(approval: Approval) -> str:
    """Describe an open approval in a line."""
    what = f"{approval.tool}({approval.arguments})" if approval.tool else approval.text
    why = f": {approval.text}" if approval.tool and approval.text else ""
    return f"{approval.id} {approval.kind} {what}{why}"


MOST_PAGES = 256
"""Most pages that are kept; those of the oldest tasks are dropped."""

_lock = threading.Lock()
_pages: OrderedDict[tuple[str, str], EntriesPage] = OrderedDict()


def keep_last_page(ledger: Ledger, task_id: str, run_id: str) -> None:
    """Keep all entries of a task that closes, its open steps, and its description."""
    asked = EntriesRequest(skip=len(ledger.log.entries), opens=True, task=True)
    page = entries_page(ledger, asked).model_copy(update={"entries": tuple(ledger.log.entries)})
    with _lock:
        _pages[task_id, run_id] = page
        while len(_pages) > MOST_PAGES:
            _pages.popitem(last=False)


def take_last_page(task_id: str, run_id: str, ledger: ChainRef) -> EntriesPage | None:
    """Return what a run of a task has handed over, once; None when it ends with another ledger.

    The description has a state of its own: code of the user's gets it, and may change it.
    """
    with _lock:
        page = _pages.pop((task_id, run_id), None)
    if page is None or page.task is None or page.ledger != ledger:
        return None
    state = copy.deepcopy(page.task.extra_state)
    return page.model_copy(update={"task": page.task.model_copy(update={"extra_state": state})})


def drop_last_page(task_id: str, run_id: str) -> None:
    """Forget what a run of a task has handed over, if no one has taken it."""
    with _lock:
        _pages.pop((task_id, run_id), None)
