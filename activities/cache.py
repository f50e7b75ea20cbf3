"""What a worker process remembers of the tasks it works for, so that it rarely has to ask."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.chain import ChainRef, extend
from holdfast.messages import Blob, Message, ToolCall
from holdfast.wire import JournalEntry, TaskHead

LIMIT_BYTES = 64 * 1024 * 1024

Slot = Message | tuple[int, int]
"""A message that is expected next, or the (step, call) whose result is."""


@dataclass
class TaskMemory:
    """One task, as far as this process knows it. It is only a cache: digests decide.

    Attributes:
        head: The task's head.
        history: The conversation before the task; None until it was read.
        recorded: Messages of the transcript as history holds them, oldest first.
        resolved: The same messages with archived contents put in.
        digests: Digest of the chain after each message.
        expected: What this process believes comes next in the transcript.
        calls: Step ordinal to its newest open calls.
        results: (step, call) to the recorded tool message.
        journal: Answered calls of the newest step, as recorded.
        journal_step: Ordinal of that step.
        size: Rough size in bytes.
    """

    head: TaskHead | None = None
    history: tuple[Message, ...] | None = None
    recorded: list[Message] = field(default_factory=list[Message])
    resolved: list[Message] = field(default_factory=list[Message])
    digests: list[str] = field(default_factory=list[str])
    expected: list[Slot] = field(default_factory=list[Slot])
    calls: dict[int, tuple[ToolCall, ...]] = field(default_factory=dict[int, tuple[ToolCall, ...]])
    results: dict[tuple[int, int], Message] = field(default_factory=dict[tuple[int, int], Message])
    journal: tuple[JournalEntry, ...] = ()
    journal_step: int = 0
    size: int = 0

    def digest_at(self, length: int) -> str | None:
        """Return the digest of the first `length` messages, or None when fewer are known."""
        if length == 0:
            return ""
        return self.digests[length - 1] if length <= len(self.digests) else None

    def holds(self, at: ChainRef) -> bool:
        """Whether the transcript named by `at` is here, unchanged."""
        known = self.digest_at(at.length)
        return known is not None and known[: len(at.digest)] == at.digest

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
        start = self.digest_at(have) or ""
        return messages if extend(start, messages)[: len(at.digest)] == at.digest else None

    def append(self, recorded: Sequence[Message], resolved: Sequence[Message]) -> None:
        """Add messages that are known to come next."""
        for message, whole in zip(recorded, resolved, strict=True):
            self.recorded.append(message)
            self.resolved.append(whole)
            self.digests.append(extend(self.digests[-1] if self.digests else "", (message,)))
            self.size += 200 + len(whole.text) + sum(len(call.arguments) for call in whole.calls)
        self.expected.clear()
        self.results.clear()

    def cut(self, length: int) -> None:
        """Keep only the first `length` messages."""
        del self.recorded[length:]
        del self.resolved[length:]
        del self.digests[length:]
        self.expected.clear()

    def forget(self) -> None:
        """Drop the transcript: it was another branch's, or it was changed."""
        self.recorded.clear()
        self.resolved.clear()
        self.digests.clear()
        self.expected.clear()


class Cache:
    """Memories of the tasks used last, and texts of the archive used last; bounded in bytes."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        """Set the bound; one entry may pass it."""
        self._limit = limit_bytes
        self._tasks: OrderedDict[str, TaskMemory] = OrderedDict()
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._text_size = 0

    def task(self, task_id: str) -> TaskMemory:
        """Return what is known of a task; drop the oldest memories when there are too many."""
        memory = self._tasks.setdefault(task_id, TaskMemory())
        self._tasks.move_to_end(task_id)
        total = sum(other.size + 2000 for other in self._tasks.values())
        while total > self._limit and len(self._tasks) > 1:
            _, dropped = self._tasks.popitem(last=False)
            total -= dropped.size + 2000
        return memory

    def drop(self, task_id: str) -> None:
        """Forget a task that is closed."""
        self._tasks.pop(task_id, None)

    def text(self, blob: Blob) -> str | None:
        """Return a text of the archive, if it is here."""
        return self._texts.get(blob.sha256)

    def keep_text(self, blob: Blob, text: str) -> None:
        """Remember a text of the archive."""
        self._texts[blob.sha256] = text
        self._text_size += len(text)
        while self._text_size > self._limit and len(self._texts) > 1:
            _, dropped = self._texts.popitem(last=False)
            self._text_size -= len(dropped)
