"""Short texts that Temporal's UI and CLI show: labels of activities and timers, a task's details.

Labels are in history, details are not. Secrets are redacted in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import cast

from holdfast.errors import InvalidArgumentError
from holdfast.task.data.calls import Approval
from holdfast.task.data.records import StepRecord
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.ledger.recording import TOOLS_KEPT, line_of
from holdfast.task.people import approvals
from holdfast.values.base import Json, as_text
from holdfast.values.checks import gate
from holdfast.values.messages import ToolCall, Usage
from holdfast.values.runs.status import TaskStatus
from holdfast.values.text.redact import redact

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


def cost(usage: Usage) -> str:
    """Describe what model calls have cost."""
    calls = "1 model call" if usage.requests == 1 else f"{usage.requests} model calls"
    cost = f", {usage.cost_shown}" if usage.priced else ""
    return f"{calls}, {usage.input_tokens} tokens in, {usage.output_tokens} out{cost}"


def details(ledger: Ledger, status: TaskStatus, why: str = "") -> str:
    """Describe the state of a task, in Markdown.

    Args:
        ledger: The task.
        status: Its status.
        why: Who ended it and why, where a person did.
    """
    lines = [f"**{status}**: {_steps(ledger.s.steps)} done, {cost(ledger.money.spent)}"]
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
    newest = [_done(each) for each in islice(_newest(ledger), STEPS_SHOWN)]
    return "\n".join([*(f"{line}\n" for line in lines), *reversed(newest)])


def _newest(ledger: Ledger) -> Iterator[StepRecord]:
    """Yield the completed steps of the present branch that are not archived, newest first."""
    last = ledger.s.steps
    for entry in reversed(ledger.log.entries):
        if entry.step is not None and entry.step.n <= last:
            last = entry.step.n - 1
            yield entry.step


def _done(record: StepRecord) -> str:
    line = line_of(record)
    calls = _calls(record, line.tools) if line.tools else ""
    said = f" {_as_code(line.output)}" if line.output else ""  # `line_of` has redacted it
    return f"- {line.step_id}:{calls}{said}"


def _calls(record: StepRecord, tools: tuple[str, ...]) -> str:
    made = [*(call for entry in record.journal for call in entry.calls), *record.calls]
    pairs = zip(tools, made[:TOOLS_KEPT], strict=False)
    named = [_as_code(call_label(call)) + tool[len(call.name) :] for tool, call in pairs]
    return f" {', '.join((*named, *tools[len(named) :]))} gave"


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _waiting(approval: Approval) -> str:
    what = call_label(ToolCall(id="", name=approval.tool, arguments=approval.arguments))
    asked = what if approval.tool else redact(approval.text[:READ_CHARACTERS])
    return f"Waits for a person to decide `{approval.id}`: {_quoted(asked)}"


@lru_cache(maxsize=512)
def _quoted(text: str) -> str:
    """Return a text as code, so that Markdown in it is shown as it is."""
    return _as_code(redact(text[:READ_CHARACTERS]))


def _as_code(text: str) -> str:
    line = cut(text, 4 * LABEL_CHARACTERS).replace("`", "'")
    return f"`{line}`"
