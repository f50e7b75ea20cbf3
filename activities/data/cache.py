"""What a worker process remembers of the tasks it works for, so that it rarely has to ask.

It forgets by rough sizes, the oldest first.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Self, TypeVar, cast

from holdfast.archive.segments import Recent
from holdfast.task.data.head import TaskHead
from holdfast.task.data.records import InputRef, JournalEntry
from holdfast.task.data.state import head_digest
from holdfast.values.base import ChainRef, Json, canonical, extend
from holdfast.values.messages import Blob, FilePart, ImagePart, Message, TextPart, ToolCall


@dataclass(frozen=True)
class Conversation:
    """Messages that are read again and again.

    Attributes:
        messages: The messages, oldest first.
        not_text: Positions of those whose content is more than a text, in order.
    """

    messages: tuple[Message, ...] = ()
    not_text: tuple[int, ...] = ()

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Self:
        """Look at each of these messages."""
        return cls(tuple(messages), tuple(cls().places_in(messages)))

    def places_in(self, messages: Sequence[Message]) -> list[int]:
        """Return where messages that may begin with these hold more than a text, in order."""
        # The same objects: to compare copies takes longer than to look at each.
        begins = len(messages) >= len(self.messages) and all(map(is_, messages, self.messages))
        first, places = (len(self.messages), self.not_text) if begins else (0, ())
        new = range(first, len(messages))
        return [*places, *(k for k in new if not isinstance(messages[k].content, str))]


def weight(kept: object) -> int:
    """Return the rough size in bytes of messages, calls, answered calls, or JSON data."""
    match kept:
        case tuple():
            return sum(map(weight, cast("tuple[object, ...]", kept)))
        case Message(content=content, items=items):
            size = 200 + (len(content) if isinstance(content, str) else weight(content))
            return size + weight(kept.calls) + (len(canonical(list(items))) if items else 0)
        case ToolCall():
            return 100 + len(kept.arguments)
        case TextPart():
            return len(kept.text)
        case ImagePart() | FilePart():
            return 200 + len(kept.url)
        case Blob():
            return 100
        case Paid():
            return weight(kept.entry)
        case JournalEntry():
            size = 200 + weight(kept.calls)
            size += 0 if kept.answer is None else weight(kept.answer.message)
            size += 0 if kept.memo is None else weight(kept.memo.output)
            for call, outcome in zip(kept.calls, kept.outcomes, strict=False):
                size += weight(outcome.message(call)) + weight(outcome.patch)
            return size
        case _:
            return len(canonical(kept))


LIMIT_BYTES = 64 * 1024 * 1024
TASK_BYTES = 2000
"""Rough size of a task that nothing is known about yet."""

MOST_HEADS = 1000
"""Heads of new tasks that are remembered: those whose first step may not have begun yet."""

MOST_KEPT = 64
"""Steps in progress, and outputs of steps, that are remembered of one task."""

K = TypeVar("K")
V = TypeVar("V")

Slot = Message | tuple[int, int]
"""A message that is expected next, or the (step, call) whose result is."""


@dataclass
class Tally:
    """Rough size in bytes of all memories of a cache, kept as a running total."""

    total: int = 0


@dataclass
class Paid:
    """A model answer, from the moment it is known.

    Attributes:
        n: Ordinal of the step.
        entry: Digest of the request, and the answer.
        activity: Id of the activity that gave it to the task; empty while none has.
    """

    n: int
    entry: JournalEntry
    activity: str = ""


@dataclass
class TaskMemory:
    """One run of one task, as far as this process knows it.

    It is only a cache. Transcript, journal and calls are used only when they give the digest that
    the task sent along. Head and history have no digest: they are read once from the task itself,
    and belong to one run of the workflow, so that a task id that is used again starts from nothing.

    Attributes:
        run: Run id of the workflow.
        head: The task's head.
        head_digest: The digest for which it was found; empty when it was asked for without one.
        history: The conversation before the task; None until it was read.
        lists: Digest to messages: the list that an agent sees instead of the transcript's
            beginning, the newest one only.
        recorded: Messages of the transcript as history holds them, oldest first.
        resolved: The same messages with archived contents put in.
        digests: Digest of the chain after each message.
        not_text: Positions of the messages whose content is more than a text, in order.
        expected: What this process believes comes next in the transcript.
        calls: Step number to its newest open calls; a few steps may be in progress at once.
        results: (step, call) to the recorded tool message.
        journals: Step number to its answered calls, as recorded.
        paid: Step number to its newest model answer.
        outputs: (step, digest) to the output of a completed step that others waited for.
        started: Id of the activity in which the hook `on_start` of an agent was called.
        lock: Held while transcript or journal are completed: two attempts of a step may be here.
        loop: The event loop of its locks: another one cannot use them.
        finding: Held while head or calls are asked for: hundreds of calls begin at the same time.
        asking: Held while the task is asked: the server keeps one question to it, and refuses more.
        size: Rough size in bytes.
        parts: Name of each part to its rough size.
    """

    run: str = ""
    head: TaskHead | None = None
    head_digest: str = ""
    history: Conversation | None = None
    lists: dict[str, Conversation] = field(default_factory=dict[str, Conversation])
    recorded: list[Message] = field(default_factory=list[Message])
    resolved: list[Message] = field(default_factory=list[Message])
    digests: list[str] = field(default_factory=list[str])
    not_text: list[int] = field(default_factory=list[int])
    expected: list[Slot] = field(default_factory=list[Slot])
    calls: dict[int, tuple[ToolCall, ...]] = field(default_factory=dict[int, tuple[ToolCall, ...]])
    results: dict[tuple[int, int], Message] = field(default_factory=dict[tuple[int, int], Message])
    journals: dict[int, tuple[JournalEntry, ...]] = field(
        default_factory=dict[int, tuple[JournalEntry, ...]]
    )
    paid: dict[int, Paid] = field(default_factory=dict[int, Paid])
    outputs: dict[InputRef, Json] = field(default_factory=dict[InputRef, Json])
    started: str = ""
    loop: asyncio.AbstractEventLoop | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    finding: asyncio.Lock = field(default_factory=asyncio.Lock)
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    size: int = TASK_BYTES
    _tally: Tally = field(default_factory=Tally)
    parts: dict[str, int] = field(default_factory=dict[str, int])

    # ---- the transcript

    def holds(self, at: ChainRef) -> bool:
        """Whether the transcript named by `at` is here, unchanged."""
        if at.length > len(self.digests):
            return False
        known = self.digests[at.length - 1] if at.length else ""
        return known[: len(at.digest)] == at.digest

    def guess(self, at: ChainRef) -> list[Message] | None:
        """Return the messages that would complete the transcript, if they give its digest."""
        have = len(self.recorded)
        wanted = at.length - have
        if not 0 < wanted <= len(self.expected):
            return None
        messages: list[Message] = []
        for slot in self.expected[:wanted]:
            message = slot if isinstance(slot, Message) else self.results.get(slot)
            if message is None:
                return None
            messages.append(message)
        start = self.digests[-1] if self.digests else ""
        return messages if extend(start, messages)[: len(at.digest)] == at.digest else None

    def append(self, recorded: Sequence[Message], resolved: Sequence[Message]) -> None:
        """Add messages that are known to come next."""
        for message, whole in zip(recorded, resolved, strict=True):
            if not isinstance(whole.content, str):
                self.not_text.append(len(self.resolved))
            self.recorded.append(message)
            self.resolved.append(whole)
            self.digests.append(extend(self.digests[-1] if self.digests else "", (message,)))
            self._grow("transcript", weight(whole))
        self.expect(())
        self.results.clear()
        self._count("results", 0)

    def conversation(self, length: int) -> Conversation:
        """Return the first messages, contents resolved."""
        places = self.not_text[: bisect_left(self.not_text, length)]
        return Conversation(tuple(self.resolved)[:length], tuple(places))

    def cut(self, length: int) -> None:
        """Keep only the first `length` messages."""
        self._grow("transcript", -weight(tuple(self.resolved[length:])))
        del self.recorded[length:]
        del self.resolved[length:]
        del self.digests[length:]
        del self.not_text[bisect_left(self.not_text, length) :]
        self.expect(())

    def forget(self) -> None:
        """Drop the transcript: it was another branch's, or it was changed."""
        self.cut(0)

    def take_over(self, older: TaskMemory) -> None:
        """Begin with what the task's run before it knows and digests prove at each use."""
        self.recorded = list(older.recorded)
        self.resolved = list(older.resolved)
        self.digests = list(older.digests)
        self.not_text = list(older.not_text)
        self.expected = list(older.expected)
        self.calls = dict(older.calls)
        self.results = dict(older.results)
        for name in ("transcript", "expected", "calls", "results"):
            self._count(name, older.parts.get(name, 0))

    # ---- what comes next

    def expect(self, slots: Iterable[Slot]) -> None:
        """Remember what this process believes comes next in the transcript."""
        self.expected = list(slots)
        self._count("expected", weight(tuple(self.expected)))

    def open_calls(self, n: int, calls: tuple[ToolCall, ...]) -> None:
        """Remember the newest open calls of a step."""
        self._keep_newest("calls", self.calls, n, calls)

    def put_result(self, n: int, i: int, message: Message) -> None:
        """Remember a tool's message."""
        self.drop_result(n, i)
        self.results[n, i] = message
        self._grow("results", weight(message))

    def drop_result(self, n: int, i: int) -> None:
        """Forget a tool's message: the task has another one."""
        known = self.results.pop((n, i), None)
        if known is not None:
            self._grow("results", -weight(known))

    def clear_results(self) -> None:
        """Forget the tools' messages of the step before."""
        self.results.clear()
        self._count("results", 0)

    def put_journal(self, n: int, journal: tuple[JournalEntry, ...]) -> None:
        """Remember the answered calls of a step, as recorded."""
        self._keep_newest("journal", self.journals, n, journal)

    def drop_journal(self, n: int) -> None:
        """Forget the answered calls of a step: what is recorded is not known here."""
        if n in self.journals:
            self.put_journal(n, ())
            del self.journals[n]

    def put_output(self, ref: InputRef, output: Json) -> None:
        """Remember the output of a completed step."""
        self._keep_newest("outputs", self.outputs, ref, output)

    def put_history(self, history: Conversation) -> None:
        """Remember the conversation before the task."""
        self.history = history
        self._count("history", weight(history.messages))

    def put_list(self, sha256: str, found: Conversation) -> None:
        """Remember what an agent sees instead of the transcript's beginning."""
        self.lists = {sha256: found}
        self._count("lists", weight(found.messages))

    # ---- the answer that was paid for

    def keep(self, n: int, entry: JournalEntry) -> None:
        """Remember an answer before anything that may fail: the archive may be down."""
        self._keep_newest("paid", self.paid, n, Paid(n, entry))

    def unrecorded(self, n: int, activity_id: str) -> JournalEntry | None:
        """Return the answer that a step's earlier attempt paid for and did not hand over.

        One that was handed over is given again only to further attempts of the same activity, whose
        result may not have reached the server. A step that is started again makes its own calls.
        """
        paid = self.paid.get(n)
        return paid.entry if paid is not None and paid.activity in ("", activity_id) else None

    def handed_over(self, n: int, activity_id: str) -> None:
        """Note that a step's newest answer is in the result of this activity."""
        paid = self.paid.get(n)
        if paid is not None and not paid.activity:
            paid.activity = activity_id

    # ---- size

    def counted_by(self, tally: Tally) -> None:
        """Count this memory in another total, and no longer in the one before."""
        self._tally.total -= self.size
        self._tally = tally
        tally.total += self.size

    def _keep_newest(self, name: str, kept: dict[K, V], key: K, value: V) -> None:
        """Put a value in; forget the one put in first when there are too many."""
        dropped = [kept.pop(key)] if key in kept else []
        kept[key] = value
        while len(kept) > MOST_KEPT:
            dropped.append(kept.pop(next(iter(kept))))
        self._grow(name, weight(value) - weight(tuple(dropped)))

    def _count(self, name: str, size: int) -> None:
        self._grow(name, size - self.parts.get(name, 0))

    def _grow(self, name: str, by: int) -> None:
        self.parts[name] = self.parts.get(name, 0) + by
        self.size += by
        self._tally.total += by


class Cache:
    """Memories of the tasks used last, and what was read last of the archive; bounded in bytes.

    Attributes:
        texts: Texts by their digest.
        images: Images as `data:` URLs, by media type and digest.
        heads: Heads that this process has completed, by their digest.
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        """Set the bound of each of the three; one entry may pass it."""
        self._limit = limit_bytes
        self._tasks: OrderedDict[str, TaskMemory] = OrderedDict()
        self._tally = Tally()
        self.heads: OrderedDict[str, TaskHead] = OrderedDict()
        self.texts = Recent[str](limit_bytes)
        self.images = Recent[str](limit_bytes)

    @property
    def size(self) -> int:
        """Rough size of all memories in bytes."""
        return self._tally.total

    def know(self, head: TaskHead) -> None:
        """Remember a head that this process has completed; a task may have taken another one."""
        self.heads[head_digest(head)] = head
        while len(self.heads) > MOST_HEADS:
            self.heads.popitem(last=False)

    def task(
        self, task_id: str, run: str, loop: asyncio.AbstractEventLoop | None = None
    ) -> TaskMemory:
        """Return what is known of a task; drop the oldest memories when there are too many.

        The run id distinguishes a task from an earlier one of the same id, at no cost: a digest in
        the input of each activity would be in history for every call. A task that continues as new
        gets a new run id as well. It keeps transcript and calls, and what is expected to follow,
        whose digests are checked anyhow, and reads its head and history once more: two queries in
        2,000 events.

        Args:
            task_id: The task.
            run: Run id of the workflow.
            loop: The loop of the caller: it is a new one when the one before is blocked for good.
        """
        memory = self._tasks.get(task_id)
        if memory is None or memory.run != run or memory.loop is not loop:
            older, memory = memory, TaskMemory(run=run, loop=loop)
            if older is not None:
                memory.take_over(older)
                self.drop(task_id)
            memory.counted_by(self._tally)
            self._tasks[task_id] = memory
        self._tasks.move_to_end(task_id)
        while self._tally.total > self._limit and len(self._tasks) > 1:
            _, dropped = self._tasks.popitem(last=False)
            dropped.counted_by(Tally())  # an activity may still hold and change it
        return memory

    def drop(self, task_id: str) -> None:
        """Forget a task: it is closed, or it begins."""
        dropped = self._tasks.pop(task_id, None)
        if dropped is not None:
            dropped.counted_by(Tally())
