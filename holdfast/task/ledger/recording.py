"""What is recorded of a task next to its steps: events, receipts of commands, approvals.

Of a completed step whose record is in the archive there is a line, for queries.

Indexes make that no lookup costs more as a task grows. Approvals are found by id and by place,
because an answer may make thousands of calls that each need one. Ids that were seen are kept as
digests, small enough to be carried for as long as a task lives.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from holdfast.task.data.calls import Approval
from holdfast.task.data.commands import Receipt
from holdfast.task.data.records import Entry, Mark, MarkKind, OpenState, SegmentRef, StepRecord
from holdfast.task.data.state import Carried, Recorded
from holdfast.values.base import ChainRef, Json, as_text, extend
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


DIGEST_BYTES = 8
"""Of 20,000 ids, a new one is taken for a known one with a chance of one in 10^15."""


class KnownIds:
    """A set that forgets the ids that came first when there are too many."""

    def __init__(self, packed: str, most: int) -> None:
        """Begin with what `packed` returned, and keep at most so many."""
        data = base64.b64decode(packed)
        parts = (data[k : k + DIGEST_BYTES] for k in range(0, len(data), DIGEST_BYTES))
        self._digests = dict.fromkeys(parts)
        self._most = most

    def __contains__(self, id: str) -> bool:
        """Whether an id was added, and is not forgotten."""
        return _digest(id) in self._digests

    def __len__(self) -> int:
        """Return how many are known."""
        return len(self._digests)

    def add(self, id: str) -> None:
        """Remember an id."""
        # An id that is added twice keeps its place: its age counts from the first time.
        self._digests[_digest(id)] = None
        if len(self._digests) > self._most:
            del self._digests[next(iter(self._digests))]

    def packed(self) -> str:
        """Return the set as a text, 11 characters an id."""
        return base64.b64encode(b"".join(self._digests)).decode()


def _digest(id: str) -> bytes:
    return hashlib.sha256(id.encode("utf-8", "surrogatepass")).digest()[:DIGEST_BYTES]


class Asked:
    """The approvals of a task, and an index of them: a part of its ledger."""

    def __init__(self, s: Carried) -> None:
        """Keep the approvals of this state, which no one else changes."""
        self._s = s
        self.keep(s.approvals)

    def keep(self, kept: Iterable[Approval]) -> None:
        """Keep these approvals alone, oldest first."""
        self._s.approvals = tuple(kept)
        self._by_id: dict[str, int] = {}
        self._by_place: dict[tuple[int, int, int], list[int]] = {}
        for k, approval in enumerate(self._s.approvals):
            self._add(k, approval)

    def forget(self, n: int) -> None:
        """Forget what was decided for a step in progress."""
        if self._s.approvals:
            self.keep(a for a in self._s.approvals if a.n != n)

    def _add(self, k: int, approval: Approval) -> None:
        self._by_id[approval.id] = k
        place = (approval.branch, approval.n, approval.i)
        self._by_place.setdefault(place, []).append(k)

    def find(self, id: str) -> Approval | None:
        """Return the approval of this id, or None."""
        k = self._by_id.get(id)
        return None if k is None else self._s.approvals[k]

    def at(self, branch: int, n: int, i: int) -> Iterator[Approval]:
        """Give the approvals of a call of a step, the newest first."""
        return (self._s.approvals[k] for k in reversed(self._by_place.get((branch, n, i), ())))

    def put(self, approval: Approval) -> None:
        """Add an approval, or replace the one of its id, which stays where it is."""
        # The index holds positions, so an approval that is replaced must stay where it is.
        k, known = self._by_id.get(approval.id), self._s.approvals
        if k is None:
            self._add(len(known), approval)
            self._s.approvals = (*known, approval)
        else:
            self._s.approvals = (*known[:k], approval, *known[k + 1 :])


CREATED = "created"
COMMANDS_KEPT = 20_000
"""Commands whose ids are kept, for the same reason."""

NUMBERED = frozenset(
    {
        *("asked", "standing", "expired", "withdrawn", "vote", "escalated"),
        *("command", "refused", "failed", "lost", "undone"),
    }
)
"""Kinds of events that followers of a task get."""

CLOSED_EVENT = "closed"
"""Kind of the event with which a task begins to close; it has the last number."""

CHAINED_TOGETHER = 50
"""Entries that join the ledger's chain at once: few enough for one workflow task."""

RECEIPTS_KEPT, RECEIPTS_CARRIED = 1000, 200


class Log:
    """The entries of a task, and what was archived of them: a part of its ledger.

    What it carries is `Recorded`.

    Attributes:
        entries: Records since the last archived segment, oldest first.
        segment: Newest archived segment of the ledger; each names the one before it.
        lines: A line for each archived step, packed.
        commands: Ids of the newest commands.
        receipts: Receipts of the newest commands, oldest first.
    """

    def __init__(self, was: Recorded) -> None:
        """Go on with what was carried."""
        self.entries: list[Entry] = list(was.entries)
        self.segment = was.segment
        self.lines = was.lines
        self.commands = KnownIds(was.commands, COMMANDS_KEPT)
        self.receipts = was.receipts
        self._chain = was.ledger
        self._marks = was.marks
        self._unchained = 0

    def append(self, entry: Entry) -> None:
        """Append an entry to the ledger."""
        self.entries.append(entry)
        self._unchained += 1
        if self._unchained == CHAINED_TOGETHER:
            self._join()

    @property
    def chain(self) -> ChainRef:
        """Length and digest of the whole ledger, archived entries included."""
        self._join()
        return self._chain

    def _join(self) -> None:
        """Let the newest entries join the chain: no step needs it, only a rollover or an end."""
        if not self._unchained:
            return
        # Entries join in the order in which they were appended, each exactly once: the archive's
        # segments are checked against this digest.
        length, digest = self._chain
        new = self.entries[-self._unchained :]
        self._chain = ChainRef(length + len(new), extend(digest, new))
        self._unchained = 0

    @property
    def number(self) -> int:
        """Number of the last thing that happened."""
        return self._marks

    def mark(self, current: OpenState, kind: MarkKind, i: int = 0, *, batch: int = 0) -> None:
        """Add a mark to an open step: what happened, in the order in which followers get it.

        Args:
            current: The open step.
            kind: What happened.
            i: Position of the call that it happened to; of "said", how many answers the step had
                before.
            batch: The batch of that call; of "hosted", how many answers the step had before.
        """
        current.marks = (*current.marks, Mark(self.next_number(), kind, batch, i))

    def next_number(self) -> int:
        """Count one more thing that happened, and return its number."""
        self._marks += 1
        return self._marks

    def receipt_of(self, command_id: str) -> Receipt | None:
        """Return the receipt of a command, if it is one of the newest."""
        return next((r for r in reversed(self.receipts) if r.id == command_id), None)

    def receipt(self, receipt: Receipt) -> None:
        """Store the receipt of a command."""
        self.receipts = (*self.receipts, receipt)[-RECEIPTS_KEPT:]

    def archived(self, segment: SegmentRef, steps: int) -> StepRecord | None:
        """Forget entries that are now in the archive.

        Args:
            segment: They.
            steps: Number of completed steps of the present branch.

        Returns:
            The newest step, if it is one of them.
        """
        # The chain takes the newest entries from this list: they join it before they are cut off.
        self._join()
        gone = self.entries[: segment.entries]
        self.lines = lines_after(self.lines, gone, steps)
        del self.entries[: segment.entries]
        self.segment = segment
        return records_here(gone, steps).get(steps)

    def recorded(self) -> Recorded:
        """Return what a task that continues as new carries."""
        return Recorded(
            segment=self.segment,
            ledger=self.chain,
            marks=self._marks,
            commands=self.commands.packed(),
            entries=tuple(self.entries),
            lines=self.lines,
            receipts=self.receipts[-RECEIPTS_CARRIED:],
        )
