"""What is recorded of a task next to its steps: events, receipts, and who has got which output."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.task.data.commands import Receipt, RunReply
from holdfast.task.data.records import Entry, EventRecord
from holdfast.task.data.state import Carried
from holdfast.task.ledger.indexes import KnownIds
from holdfast.values.base import ChainRef, Json, extend
from holdfast.values.messages import Message

CREATED = "created"
SEEN_KEPT = 5000
"""Requests whose replies are kept: one that is sent again is not carried out again."""

COMMANDS_KEPT = 20_000
"""Commands whose ids are kept, for the same reason."""

GIVEN_KEPT = 64
"""Most steps whose callers are remembered."""

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

RECEIPTS_KEPT = 1000


class Recording:
    """The entries of a task, and what answers those who ask it for something.

    Attributes:
        s: The carried state.
        entries: Records since the last archived segment, oldest first.
        commands: Ids of the newest commands.
    """

    def __init__(self, s: Carried) -> None:
        """Go on with a carried state."""
        self.s = s
        self.entries: list[Entry] = list(s.entries)
        self.commands = KnownIds(s.commands, COMMANDS_KEPT)
        self._noted = (s.notes, _length(s.notes))
        self._marks = s.marks
        self._unchained = 0

    def change(self, **fields: object) -> None:
        """Replace fields of the carried state."""
        self.s = self.s.model_copy(update=fields)

    def note(
        self,
        kind: str,
        *,
        now: float,
        by: str = "",
        text: str = "",
        body: dict[str, Json] | None = None,
    ) -> None:
        """Append an event."""
        # "closed" has the last number. A follower that has it stops, so what comes later gets none.
        closing = self.s.closing is not None and self.s.closing.is_prepared
        counts = kind == CLOSED_EVENT or (kind in NUMBERED and not closing)
        number = self.next_number() if counts else 0
        event = EventRecord(kind=kind, at=now, by=by, text=text, body=body or {}, number=number)
        self.append(Entry(event=event))

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
        return self.s.ledger

    def _join(self) -> None:
        """Let the newest entries join the chain: no step needs it, only a rollover or an end."""
        if not self._unchained:
            return
        # Entries join in the order in which they were appended, each exactly once: the archive's
        # segments are checked against this digest.
        length, digest = self.s.ledger
        new = self.entries[-self._unchained :]
        self.change(ledger=ChainRef(length + len(new), extend(digest, new)))
        self._unchained = 0

    @property
    def number(self) -> int:
        """Number of the last thing that happened."""
        return self._marks

    def next_number(self) -> int:
        """Count one more thing that happened, and return its number."""
        self._marks += 1
        return self._marks

    def receipt_of(self, command_id: str) -> Receipt | None:
        """Return the receipt of a command, if it is one of the newest."""
        return next((r for r in reversed(self.s.receipts) if r.id == command_id), None)

    def receipt(self, receipt: Receipt) -> None:
        """Store the receipt of a command."""
        self.change(receipts=(*self.s.receipts, receipt)[-RECEIPTS_KEPT:])

    def remember(self, request_id: str, reply: RunReply) -> None:
        """Keep the reply to a request, so that the same request gets it again."""
        # The oldest is forgotten first: a request is sent again within minutes, if at all.
        seen = self.s.seen  # in place, because there may be thousands
        seen[request_id] = reply
        if len(seen) > SEEN_KEPT:
            del seen[next(iter(seen))]

    def acknowledge(self, caller: str) -> None:
        """Forget the outputs that a caller has got, as its next request or signal shows.

        The answer is kept: a program that is run again after its end gets it once more.
        """
        answer = self.s.steps if self.s.answered else 0
        left = tuple(each for each in self.s.given if caller not in each[1] or each[0] == answer)
        if left != self.s.given:
            self.change(given=left)

    def ungiven(self, caller: str) -> int:
        """Return the first completed step that no one is known to have got, this caller included.

        Args:
            caller: The caller; empty for one that is not known.

        Returns:
            The step's ordinal; 0 for none.
        """
        # The lowest first: outputs reach each caller in the order of the steps.
        others = [n for n, callers in self.s.given if caller and caller not in callers]
        return min([*others, *self.s.undelivered], default=0)

    def give(self, n: int, *callers: str) -> None:
        """Record that the output of a completed step is sent to callers."""
        named = tuple(caller for caller in callers if caller)
        known = dict(self.s.given)
        if named:
            known[n] = (*known.get(n, ()), *named)
        undelivered = tuple(each for each in self.s.undelivered if each != n)
        self.change(given=tuple(sorted(known.items())[-GIVEN_KEPT:]), undelivered=undelivered)

    @property
    def noted(self) -> int:
        """Length of the texts that wait for the next model call."""
        if self._noted[0] is not self.s.notes:
            self._noted = (self.s.notes, _length(self.s.notes))
        return self._noted[1]

    def add_note(self, note: Message) -> None:
        """Add a message to the next model call."""
        length = self.noted + len(note.text)
        self.change(notes=(*self.s.notes, note))
        self._noted = (self.s.notes, length)


def _length(messages: Iterable[Message]) -> int:
    return sum(len(message.text) for message in messages)
