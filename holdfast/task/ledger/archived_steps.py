"""A line for each completed step whose record is in the archive: what queries show of it.

The lines are carried from run to run, because a query can read nothing else. They are packed in
chunks of `CHUNK` steps, about 30 bytes a step. Lines of steps before the newest `TEXTS_KEPT` have
no output and take next to nothing, so that a long task carries little more than a short one.
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

Packed = tuple[str, ...]
"""Lines of steps 1 to `CHUNK`, of the next `CHUNK` steps, and so on."""

CHUNK = 500
BRIEF = "-"
"""Before a chunk whose lines have no output."""

LINES_KEPT = 10_000
"""Fewest of the newest steps that have a line, as far as there are as many."""

TEXTS_KEPT = 1000
"""Fewest of them whose lines have an output."""

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


def lines_after(packed: Packed, entries: Iterable[Entry], steps: int) -> Packed:
    """Return the packed lines once these entries are in the archive as well.

    Chunks of older steps stay as they are: a task of any length spends the same on it.
    """
    # Steps that an undo has taken back since the last segment are cut by `steps`.
    new = {n: line_of(record) for n, record in records_here(entries, steps).items()}
    whole = _chunk(min([*new, steps + 1]))
    kept = {line.n: line for line in unpacked(packed[whole:]) if line.n <= steps}
    lines = kept | new
    chunks = (*packed[:whole], *pack(lines[n] for n in sorted(lines))[whole:])
    brief, gone = _chunk(steps - TEXTS_KEPT + 1), _chunk(steps - LINES_KEPT + 1)
    return tuple(
        "" if k < gone else _brief(chunk) if k < brief else chunk for k, chunk in enumerate(chunks)
    )


def pack(lines: Iterable[StepLine]) -> Packed:
    """Pack lines, oldest first."""
    chunks: list[list[StepLine]] = []
    for line in lines:
        while len(chunks) <= _chunk(line.n):
            chunks.append([])
        chunks[-1].append(line)
    return tuple(_packed(k, chunk) for k, chunk in enumerate(chunks))


def unpacked(packed: Packed) -> list[StepLine]:
    """Return packed lines, oldest first."""
    return [line for chunk in packed for line in _lines(chunk)]


def _chunk(n: int) -> int:
    """Return the place of the chunk that has the line of a step."""
    return max(n - 1, 0) // CHUNK


def _packed(k: int, lines: list[StepLine]) -> str:
    """Pack the lines of chunk `k`; what is usual takes next to no space."""
    if not lines:
        return ""
    rows: list[Json] = []
    before = k * CHUNK
    for line in lines:
        step_id = "" if line.step_id == f"s{line.n}" else line.step_id
        rows.append([line.n - before, step_id, list(line.tools), line.output])
        before = line.n
    data = json.dumps([k, rows], separators=(",", ":"), ensure_ascii=False)
    return base64.b64encode(zlib.compress(data.encode("utf-8", "replace"))).decode()


def _lines(chunk: str) -> list[StepLine]:
    if not chunk:
        return []
    k, rows = json.loads(zlib.decompress(base64.b64decode(chunk.removeprefix(BRIEF))))
    lines: list[StepLine] = []
    n = k * CHUNK
    for gap, step_id, tools, output in rows:
        n += gap
        lines.append(StepLine(n, step_id or f"s{n}", tuple(tools), output))
    return lines


def _brief(chunk: str) -> str:
    """Return a chunk without outputs."""
    if not chunk or chunk.startswith(BRIEF):
        return chunk
    lines = [line._replace(output="") for line in _lines(chunk)]
    return BRIEF + _packed(_chunk(lines[0].n), lines)
