"""Indexes of the ledger, so that no lookup costs more as a task grows.

Approvals are found by id and by place, because an answer may make thousands of calls that each need
one; ids that were seen are kept as digests, small enough to be carried for as long as a task lives.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator

from holdfast.task.data.calls import Approval

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
    """An index of a task's approvals.

    Attributes:
        all: The approvals, oldest first.
    """

    def __init__(self, approvals: tuple[Approval, ...]) -> None:
        """Index these approvals."""
        self.all = approvals
        self._by_id: dict[str, int] = {}
        self._by_place: dict[tuple[int, int, int], list[int]] = {}
        for k, approval in enumerate(approvals):
            self._add(k, approval)

    def _add(self, k: int, approval: Approval) -> None:
        self._by_id[approval.id] = k
        place = (approval.branch, approval.n, approval.i)
        self._by_place.setdefault(place, []).append(k)

    def find(self, id: str) -> Approval | None:
        """Return the approval of this id, or None."""
        k = self._by_id.get(id)
        return None if k is None else self.all[k]

    def at(self, branch: int, n: int, i: int) -> Iterator[Approval]:
        """Give the approvals of a call of a step, the newest first."""
        return (self.all[k] for k in reversed(self._by_place.get((branch, n, i), ())))

    def put(self, approval: Approval) -> tuple[Approval, ...]:
        """Add an approval, or replace the one of its id, which stays where it is.

        Returns:
            All approvals.
        """
        # The index holds positions, so an approval that is replaced must stay where it is.
        k = self._by_id.get(approval.id)
        if k is None:
            self._add(len(self.all), approval)
            self.all = (*self.all, approval)
        else:
            self.all = (*self.all[:k], approval, *self.all[k + 1 :])
        return self.all
