"""A line for each completed step whose record is in the archive: what queries show of it.

The lines are carried from run to run as one packed text, because a query can read nothing else. At
about 30 bytes a step, with at most `LINES_KEPT` of them, the carried state stays small.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from holdfast.task.data.records import Entry, StepRecord
from holdfast.values.base import Json, as_text
from holdfast.values.messages import shown
from holdfast.values.text.redact import redact

LINES_KEPT = 10_000
TEXT_KEPT = 40
"""Characters of a step's output in its line."""

TEXT_READ = 600
"""Characters of it that are redacted."""

TOOLS_KEPT = 8

EFFECT = "!"
"""Behind the name of a tool whose call may have changed something outside of the task."""


class StepLine(NamedTuple):
    """An archived step in short.

    Attributes:
        n: Ordinal of the step.
        step_id: Its id.
        tools: Names of the first tools that it called, in call order; `!` behind one that is not
            read-only; `+22` for 22 more.
        output: The beginning of its output; of its last call's result, when it has none.
    """

    n: int
    step_id: str
    tools: tuple[str, ...] = ()
    output: str = ""


def line_of(record: StepRecord) -> StepLine:
    """Return the line of a completed step."""
    calls = [*zip(record.calls, record.outcomes, strict=True)]
    for entry in reversed(record.journal):
        calls[:0] = zip(entry.calls, entry.outcomes, strict=True)
    tools = tuple(
        call.name + (EFFECT if outcome.attempts and outcome.effect != "read" else "")
        for call, outcome in calls
    )
    output = as_text(record.output) if record.stored is None else shown(record.stored)
    if not output and record.outcomes:
        last = record.outcomes[-1]
        output = shown(last.content if last.at is None else record.adds[last.at].content)
    more = (f"+{len(tools) - TOOLS_KEPT}",) if len(tools) > TOOLS_KEPT else ()
    tools = (*tools[:TOOLS_KEPT], *more)
    return StepLine(record.n, record.step.step_id, tools, _short(output[:TEXT_READ]))


@lru_cache(maxsize=512)
def _short(text: str) -> str:
    """Return the beginning of a text on one line; redacted before a cut halves a secret."""
    line = " ".join(redact(text).split())
    return line if len(line) <= TEXT_KEPT else f"{line[: TEXT_KEPT - 1]}…"


def answer_of(record: StepRecord) -> Json:
    """Return a step's output as the workflow's result has it: a large one is named."""
    return record.output if record.stored is None else shown(record.stored)


def records_here(entries: Iterable[Entry], steps: int) -> dict[int, StepRecord]:
    """Return the steps of the present branch whose records are not in the archive, by ordinal.

    Args:
        entries: The entries that are not in the archive.
        steps: Number of completed steps of the branch.
    """
    # Of one ordinal the newest stands: a step can only be repeated after it was undone.
    found = {entry.step.n: entry.step for entry in entries if entry.step is not None}
    return {n: record for n, record in sorted(found.items()) if n <= steps}


def lines_after(packed: str, entries: Iterable[Entry], steps: int) -> str:
    """Return the packed lines once these entries are in the archive as well."""
    lines = {line.n: line for line in unpacked(packed) if line.n <= steps}
    lines |= {n: line_of(record) for n, record in records_here(entries, steps).items()}
    return pack(lines[n] for n in sorted(lines)[-LINES_KEPT:])


def pack(lines: Iterable[StepLine]) -> str:
    """Pack lines into one text; empty for none."""
    rows = [list(line) for line in lines]
    data = json.dumps(rows, separators=(",", ":"), ensure_ascii=False)
    return base64.b85encode(zlib.compress(data.encode("utf-8", "replace"))).decode() if rows else ""


def unpacked(packed: str) -> list[StepLine]:
    """Return packed lines, oldest first."""
    if not packed:
        return []
    rows = json.loads(zlib.decompress(base64.b85decode(packed)))
    return [StepLine(n, step_id, tuple(tools), output) for n, step_id, tools, output in rows]
