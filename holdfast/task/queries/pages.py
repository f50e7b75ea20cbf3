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
from functools import lru_cache
from typing import TypeVar, cast

from holdfast.errors import InvalidArgumentError
from holdfast.task.data.calls import Approval
from holdfast.task.data.failures import Failure
from holdfast.task.data.records import OpenState, SegmentRef, StepRecord
from holdfast.task.data.state import known_head
from holdfast.task.data.wire import EntriesPage, EntriesRequest, View, ViewRequest
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.ledger.recording import TOOLS_KEPT, line_of, output_of, records_here
from holdfast.task.people import approvals
from holdfast.task.people.approvals import asked_everywhere
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import ChainRef, Json, Value, as_text, canonical
from holdfast.values.checks import gate
from holdfast.values.messages import ToolCall
from holdfast.values.runs.status import TaskStatus
from holdfast.values.steps import Task, TaskStep
from holdfast.values.text.redact import redact
from holdfast.values.text.shown import counted

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
        texts, ids, asked = list[str](), list[str](), set[int]()
        for approval in asked_everywhere(ledger):
            texts.append(approval.line)
            ids.append(approval.id)
            asked.add(approval.n)
        opens = ledger.s.opens
        current = next((c for c in opens if c.n in asked), opens[0] if opens else None)
        return StepView(
            waiting_for=tuple(texts),
            approvals=tuple(ids),
            step=current.open.step
            if current is not None
            else next(iter(ledger.queue.upcoming()), TaskStep()),
            n=current.n if current is not None else 0,
        )
    if ledger.s.undo is None and n > ledger.s.steps:
        return StepView()
    for entry in reversed(ledger.log.entries):  # the newest of this number is not undone
        if entry.step is not None and entry.step.n == n:
            return StepView(record=entry.step)
    return StepView(segment=ledger.log.segment)


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


# Short texts that Temporal's UI and CLI show: labels of activities and timers, a task's details.
#
# Labels are in history, details are not. Secrets are redacted in both.

LABEL_CHARACTERS = 60
SHORT_CHARACTERS = 24
TITLE_CHARACTERS = 80
STEPS_SHOWN = 5
APPROVALS_SHOWN = 5
READ_CHARACTERS = 2000
"""Characters of a call's arguments that are redacted and then cut to a label."""


def cut(text: str, longest: int) -> str:
    """Return a text on one line, its end replaced by an ellipsis if it is longer than that."""
    line = " ".join(text[: 4 * longest].split())
    return line if len(line) <= longest and len(text) <= 4 * longest else f"{line[: longest - 1]}…"


def call_label(call: ToolCall, *, short: bool = False) -> str:
    """Describe a call: `multiply {a: 121, b: 3}`.

    Args:
        call: The call.
        short: Whether the label is cut to `SHORT_CHARACTERS`: most calls are read-only, and each
            label stays in history.
    """
    text = redact(call.arguments[:READ_CHARACTERS])
    try:
        data = gate.read(text)
    except InvalidArgumentError:
        data = text
    if isinstance(data, dict):
        given = cast("dict[str, Json]", data)
        inner = ", ".join(f"{name}: {as_text(value)}" for name, value in given.items())
        text = f"{{{inner}}}" if given else ""
    return cut(f"{call.name} {text}".rstrip(), SHORT_CHARACTERS if short else LABEL_CHARACTERS)


def step_label(ledger: Ledger, n: int) -> str:
    """Describe the activity that takes a step further: `gpt-5-mini, step 2`."""
    described = ledger.s.described
    agent = ledger.at(n).open.step.agent
    model = ledger.head.model or ("" if described is None else described.rules(agent).model)
    return cut(f"{model}, step {n}" if model else f"step {n}", LABEL_CHARACTERS)


def title_of(agent: str, asked: str) -> str:
    """Describe a new task in one line: its agent and the beginning of its input."""
    return cut(f"{agent}: {redact(asked[:READ_CHARACTERS])}", TITLE_CHARACTERS)


def details_of(agent: str, asked: str) -> str | None:
    """Describe a new task in Markdown; None when its title says it all."""
    if len(agent) + len(asked) < TITLE_CHARACTERS and len(asked.splitlines()) < 2:  # noqa: PLR2004
        return None
    shown = redact(asked[:READ_CHARACTERS]) + ("…" if len(asked) > READ_CHARACTERS else "")
    quoted = "\n".join(f"> {line}" for line in shown.splitlines())
    return f"**Agent** {_quoted(agent)}\n\n{quoted}"


def details(ledger: Ledger, status: TaskStatus, why: str = "") -> str:
    """Describe the state of a task, in Markdown.

    Args:
        ledger: The task.
        status: Its status.
        why: Who ended it and why, where a person did.
    """
    lines = [f"**{status}**: {counted(ledger.s.steps, 'step')} done, {ledger.money.spent.in_words}"]
    if why:
        lines.append(f"Ended by {_quoted(why)}")
    if status == "needs_attention" and ledger.failure is not None:
        lines.append(f"Needs attention: {_quoted(ledger.failure.text)}")
    if status == "paused" and ledger.paused:
        lines.append(f"Paused by {_quoted(ledger.paused)}")
    waiting = approvals.asked_everywhere(ledger)
    lines += [_waiting(each) for each in waiting[:APPROVALS_SHOWN]]
    if len(waiting) > APPROVALS_SHOWN:
        lines.append(f"and for {len(waiting) - APPROVALS_SHOWN} more: query `approvals`")
    done = [*records_here(ledger.log.entries, ledger.s.steps).values()]
    begun = filter(None, map(_so_far, ledger.s.opens[:STEPS_SHOWN]))
    return "\n".join([*(f"{line}\n" for line in lines), *map(_done, done[-STEPS_SHOWN:]), *begun])


def _done(record: StepRecord) -> str:
    line = line_of(record)
    calls = _calls(record, line.tools) if line.tools else ""
    said = _as_code(line.output) if line.output else "nothing"  # `line_of` has redacted it
    return f"- {line.step_id}:{calls} {said}"


def _so_far(current: OpenState) -> str:
    """List the calls of a step in progress that have ended: reads have no event of their own."""
    made = [call for entry in current.journal for call in entry.calls]
    made += [current.calls[i] for i in sorted(current.outcomes)]
    shown = ", ".join(_as_code(call_label(each)) for each in made[:TOOLS_KEPT])
    return f"- {current.open.step.step_id}, in progress: {shown}" if shown else ""


def _calls(record: StepRecord, tools: tuple[str, ...]) -> str:
    made = [*(call for entry in record.journal for call in entry.calls), *record.calls]
    pairs = zip(tools, made[:TOOLS_KEPT], strict=False)
    named = [_as_code(call_label(call)) + tool[len(call.name) :] for tool, call in pairs]
    return f" {', '.join((*named, *tools[len(named) :]))} gave"


def _waiting(approval: Approval) -> str:
    what = call_label(
        ToolCall(id="", name=approval.tool, arguments=approval.agreed or approval.arguments)
    )
    asked = what if approval.tool else redact(approval.text[:READ_CHARACTERS])
    return f"Waits for a person to decide `{approval.id}`: {_quoted(asked)}"


@lru_cache(maxsize=512)
def _quoted(text: str) -> str:
    """Return a text as code, so that Markdown in it is shown as it is."""
    return _as_code(redact(text[:READ_CHARACTERS]))


def _as_code(text: str) -> str:
    line = cut(text, 4 * LABEL_CHARACTERS).replace("`", "'")
    return f"`{line}`"
