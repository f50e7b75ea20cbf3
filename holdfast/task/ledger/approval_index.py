"""Approvals by id and by place: an answer may make thousands of calls that each need one."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.task.data.calls import Approval


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
        k = self._by_id.get(approval.id)
        if k is None:
            self._add(len(self.all), approval)
            self.all = (*self.all, approval)
        else:
            self.all = (*self.all[:k], approval, *self.all[k + 1 :])
        return self.all
