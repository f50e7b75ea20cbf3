"""What is recorded of a task next to its steps: events, receipts of commands, approvals.

Of a completed step whose record is in the archive there is a line, for queries.

Indexes make that no lookup costs more as a task grows. Approvals are found by id and by place,
because an answer may make thousands of calls that each need one. Ids that were seen are kept as
digests, small enough to be carried for as long as a task lives.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from holdfast.models.base import ModelAnswer
from holdfast.task.data.calls import Approval, Outcome
from holdfast.task.data.commands import Receipt
from holdfast.task.data.records import (
    Entry,
    Handed,
    JournalEntry,
    Mark,
    MarkKind,
    OpenState,
    OpenStep,
    SegmentRef,
    StepRecord,
    StepResult,
)
from holdfast.task.data.state import Carried, Recorded
from holdfast.task.data.wire import Advanced
from holdfast.values.base import ChainRef, Json, as_text, canonical, digest, extend
from holdfast.values.messages import (
    Blob,
    Content,
    Message,
    TextPart,
    ToolCall,
    Usage,
    shown,
    summed,
    user,
)
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
        self._by_place.setdefault((approval.branch, approval.n, approval.i), []).append(k)

    def find(self, id: str) -> Approval | None:
        """Return the approval of this id, or None."""
        k = self._by_id.get(id)
        return None if k is None else self._s.approvals[k]

    def at(self, branch: int, n: int, i: int) -> Iterator[Approval]:
        """Give the approvals of a call of a step, the newest first."""
        places = reversed(self._by_place.get((branch, n, i), ()))
        return map(self._s.approvals.__getitem__, places)

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
        for receipt in reversed(self.receipts):
            if receipt.id == command_id:
                return receipt
        return None

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


# References inside a step: how its result names what history holds already, and what they mean.

SAID_IN_ADDS = Message(role="tool")
"""Represents in a step record a message that its `adds` hold."""


NOTES_APART = 100
"""Most notes that a step gets as they were said; of more, neighbours of one role are joined."""


def joined(notes: tuple[Message, ...]) -> tuple[Message, ...]:
    """Join notes when there are very many: thousands of messages are no conversation."""
    if len(notes) <= NOTES_APART:
        return notes
    groups = itertools.groupby(notes, key=lambda note: (note.role, isinstance(note.content, str)))
    found: list[Message] = []
    for (role, is_text), group in groups:
        said = list(group)
        one = [Message(role=role, content="\n\n".join(note.text for note in said))]
        found += one if is_text else said
    return tuple(found)


def resolve_adds(result: StepResult, current: OpenState) -> tuple[Message, ...]:
    """Replace references to what history holds already by the messages themselves."""
    adds: list[Message] = []
    for add in result.adds:
        if isinstance(add, Message):
            adds.append(add)
        elif add == "input":
            adds.append(input_message(current.open))
        elif add.startswith("n"):
            adds.append(current.open.notes[int(add[1:])])
        else:
            at, call = place_of(add)
            entry = current.journal[at]
            adds.append(
                entry.outcomes[call].message(entry.calls[call])
                if call is not None
                else _answer(entry.answer).message
            )
    return tuple(adds)


def input_message(opened: OpenStep) -> Message:
    """Return a step's input as the message that history holds; an empty one when it has none."""
    stored, images = opened.stored, opened.step.images
    if stored is None:
        return opened.step.message() or user("")
    text = TextPart(kind="text", text="", stored=stored)
    content: Content = (text, *images) if images else stored
    return Message(role="user", content=content)


def resolve_calls(result: StepResult, current: OpenState) -> tuple[ToolCall, ...]:
    """Replace a reference to an answer by its calls."""
    if not isinstance(result.calls, str):
        return result.calls
    return _answer(current.journal[place_of(result.calls)[0]].answer).message.calls


def resolve_output(result: StepResult, current: OpenState) -> tuple[Json, Blob | None]:
    """Replace an echo of the newest answer by its text, or by where its text is stored."""
    if not result.echo:
        return result.output, result.stored
    message = _answer(newest_answer(current.journal)).message
    return (None, message.content) if isinstance(message.content, Blob) else (message.text, None)


def output_of(current: OpenState) -> Handed | None:
    """Return the output of a step whose result and calls are all known."""
    result = current.result
    if result is None:
        return None
    if result.quiet:
        output, stored = output_of_calls([current.outcomes[i] for i in sorted(current.outcomes)])
    else:
        output, stored = resolve_output(result, current)
    return Handed(output=output, stored=stored)


def output_digest(record: StepRecord) -> str:
    """Digest by which a step's output is checked when it is handed to another step."""
    return record.stored.sha256 if record.stored else digest(canonical(record.output))


def results_of(
    current: OpenState, result: StepResult
) -> tuple[Json, Blob | None, tuple[Message, ...], tuple[Outcome, ...]]:
    """Return a step's output, where it is stored, its messages, and the outcomes of its calls.

    The messages of the calls have the contents of the outcomes, unless the step is quiet.
    """
    adds = resolve_adds(result, current)
    if not current.calls and not result.quiet:  # a plain answer
        return *resolve_output(result, current), adds, ()
    outcomes = tuple(current.outcomes[i] for i in range(len(current.calls)))
    if result.quiet:
        output, stored = output_of_calls(outcomes)
        return output, stored, adds, outcomes
    output, stored = resolve_output(result, current)
    said, emptied = list(adds), list[Outcome]()
    for call, outcome in zip(current.calls, outcomes, strict=True):
        emptied.append(outcome.model_copy(update={"content": "", "at": len(said)}))
        said.append(outcome.message(call))
    return output, stored, tuple(said), tuple(emptied)


def output_of_calls(outcomes: Sequence[Outcome]) -> tuple[Json, Blob | None]:
    """Make a step's output of the results of its calls."""
    if len(outcomes) == 1 and not outcomes[0].is_error:
        content = outcomes[0].content
        return (None, content) if isinstance(content, Blob) else (shown(content), None)
    results: list[Json] = [
        {"content": shown(o.content), "is_error": True} if o.is_error else shown(o.content)
        for o in outcomes
    ]
    return (results[0] if len(results) == 1 else results), None


def place_of(reference: str) -> tuple[int, int | None]:
    """Read "j<entry>" or "j<entry>.<call>"."""
    entry, _, call = reference.removeprefix("j").partition(".")
    return int(entry), int(call) if call else None


def new_entries(advanced: Advanced, *, last: bool) -> tuple[JournalEntry, ...]:
    """List what an activity adds to the journal, in the order in which it was made.

    Args:
        advanced: Its result.
        last: Whether the budget made its model call the last one.
    """
    stamp = {"attempts": advanced.attempts, "worker": advanced.worker}
    memos = advanced.memos
    if memos:
        memos = tuple(entry.model_copy(update=stamp) for entry in memos)
    if advanced.answer is None:
        return memos
    entry = JournalEntry(
        request=advanced.request,
        answer=advanced.answer,
        last=last,
        attempts=advanced.attempts,
        worker=advanced.worker,
    )
    return (*memos[: advanced.early], entry, *memos[advanced.early :])


def without_adds(result: StepResult, current: OpenState) -> tuple[JournalEntry, ...]:
    """Leave out of the journal the messages that the record's `adds` hold."""
    journal = list(current.journal)
    for position, add in enumerate(result.adds):
        if not isinstance(add, str) or not add.startswith("j"):
            continue
        at, call = place_of(add)
        entry = journal[at]
        if call is not None:
            outcomes = list(entry.outcomes)
            outcomes[call] = outcomes[call].model_copy(update={"content": "", "at": position})
            journal[at] = entry.model_copy(update={"outcomes": tuple(outcomes)})
        elif entry.answer is not None:
            answer = entry.answer.model_copy(update={"message": SAID_IN_ADDS})
            journal[at] = entry.model_copy(update={"answer": answer})
    return tuple(journal)


def told(adds: Sequence[Message], call: ToolCall, outcome: Outcome) -> Message:
    """Return a call's result message, found by its place: providers may repeat the ids of calls.

    Args:
        adds: What the call's step adds to the transcript; empty while that is not known.
        call: The call.
        outcome: Its outcome.
    """
    return outcome.message(call) if outcome.at is None else adds[outcome.at]


def last_round(
    adds: Sequence[Message], calls: Sequence[ToolCall]
) -> tuple[dict[str, ToolCall], dict[str, str]]:
    """Find the newest message that asks for one of some calls, and the results that follow it.

    Earlier rounds of the step may have had calls of the same ids.

    Args:
        adds: What the step adds to the transcript.
        calls: The calls that were made together.

    Returns:
        The message's calls, and the texts of the results, both by id of the call.
    """
    ids = {call.id for call in calls}
    asking = [at for at, said in enumerate(adds) if any(call.id in ids for call in said.calls)]
    if not asking:
        return {}, {said.call_id: said.text for said in adds if said.role == "tool"}
    asked = {call.id: call for call in adds[asking[-1]].calls}
    after = adds[asking[-1] + 1 :]
    return asked, {said.call_id: said.text for said in after if said.role == "tool"}


def newest_answer(journal: Sequence[JournalEntry]) -> ModelAnswer | None:
    """Return the last model answer of a journal, if it has one."""
    for entry in reversed(journal):
        if entry.answer is not None:
            return entry.answer
    return None


def _answer(answer: ModelAnswer | None) -> ModelAnswer:
    """Return the model answer of an entry that has one, or of a journal."""
    if answer is None:
        raise RuntimeError("the journal holds no model answer")
    return answer


def turns_of(journal: Sequence[JournalEntry]) -> int:
    """Count a journal's model calls."""
    return sum(entry.answer is not None for entry in journal)


def usage_of(journal: Sequence[JournalEntry], outcomes: Iterable[Outcome] = ()) -> Usage:
    """Sum the cost of a journal's model calls, and of the child tasks of its calls.

    Args:
        journal: The journal.
        outcomes: Outcomes of calls that are not in it.
    """
    costs: list[Usage] = []
    for entry in journal:
        if entry.answer is not None:
            costs.append(cost_of(entry.answer))
        if entry.outcomes:
            costs += [outcome.usage for outcome in entry.outcomes if outcome.child]
    for outcome in outcomes:
        if outcome.child:
            costs.append(outcome.usage)
    return summed(costs)


def cost_of(answer: ModelAnswer) -> Usage:
    """Return the cost of one model call; its failed attempts are requests that cost nothing."""
    failed, priced = answer.failed, answer.usage.priced
    counts = {"requests": 1 + failed, "priced": priced + failed if priced else 0}
    return answer.usage.model_copy(update=counts)
