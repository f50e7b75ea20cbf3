"""The difference between two versions of a sequence: small, and it leads both ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Self, TypeVar

from holdfast.values.base import Value, canonical

T = TypeVar("T")


class Change(Value, Generic[T]):
    """What turns a sequence into another one, and that back into the first.

    It holds only elements that one of the two lacks. So a ledger that records each change of the
    queue can be read forwards from its beginning and backwards from its end, and a step that
    leaves a long queue alone records nothing of it.

    Attributes:
        kept: (first place, number) of elements of the old sequence that stay, in the order in which
            the new one has them.
        gone: Elements that only the old one has, with their places in it, in order.
        come: Elements that only the new one has, with their places in it, in order.
    """

    kept: tuple[tuple[int, int], ...] = ()
    gone: tuple[tuple[int, T], ...] = ()
    come: tuple[tuple[int, T], ...] = ()

    @classmethod
    def if_any(cls, old: Sequence[T], new: Sequence[T], key: Callable[[T], object]) -> Self | None:
        """Return what turns a sequence into another, or None when they are the same."""
        return None if same(old, new) else cls.between(old, new, key)

    @classmethod
    def between(cls, old: Sequence[T], new: Sequence[T], key: Callable[[T], object]) -> Self:
        """Return what turns a sequence into another.

        Args:
            old: The first.
            new: The other.
            key: Names an element: only elements of one name are compared.
        """
        head, end = _common(old, new)
        places: dict[object, list[int]] = {}
        for at in range(head, len(old) - end):
            places.setdefault(key(old[at]), []).append(at)
        stays = list(range(head))
        come: list[tuple[int, T]] = []
        for at in range(head, len(new) - end):
            known = places.get(key(new[at]), [])
            place = next((each for each in known if _is_same(old[each], new[at])), None)
            if place is None:
                come.append((at, new[at]))
            else:
                known.remove(place)
                stays.append(place)
        stays += range(len(old) - end, len(old))
        left = sorted(place for unused in places.values() for place in unused)
        gone = tuple((at, old[at]) for at in left)
        return cls(kept=_ranges(stays), gone=gone, come=tuple(come))

    def forward(self, old: Sequence[T]) -> tuple[T, ...]:
        """Return the new sequence.

        Raises:
            RuntimeError: The change is not of this sequence.
        """
        self._check(len(old), self.gone)
        new = [each for at, count in self.kept for each in old[at : at + count]]
        for at, each in self.come:
            new.insert(at, each)
        return tuple(new)

    def backward(self, new: Sequence[T]) -> tuple[T, ...]:
        """Return the old sequence.

        Raises:
            RuntimeError: The change did not lead to this sequence.
        """
        self._check(len(new), self.come)
        places = {at for at, _ in self.come}
        stayed = iter([each for at, each in enumerate(new) if at not in places])
        old = dict(self.gone)
        for at, count in self.kept:
            old.update((place, next(stayed)) for place in range(at, at + count))
        return tuple(old[at] for at in range(len(old)))

    def _check(self, length: int, lacking: Sequence[object]) -> None:
        wanted = sum(count for _, count in self.kept) + len(lacking)
        if length != wanted:
            # Going on would restore a queue that never was.
            msg = f"the recorded change is of {wanted} elements, and there are {length}"
            raise RuntimeError(msg)


def same(old: Sequence[object], new: Sequence[object]) -> bool:
    """Whether two sequences have the same elements, to the byte: 1 is not True."""
    return len(old) == len(new) and all(map(_is_same, old, new))


def _common(old: Sequence[object], new: Sequence[object]) -> tuple[int, int]:
    """Return how many elements two sequences share at the beginning, and how many at the end."""
    head, end = 0, 0
    least = min(len(old), len(new))
    while head < least and _is_same(old[head], new[head]):
        head += 1
    while end < least - head and _is_same(old[-1 - end], new[-1 - end]):
        end += 1
    return head, end


def _ranges(places: Sequence[int]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for at in places:
        if found and at == sum(found[-1]):
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((at, 1))
    return tuple(found)


def _is_same(old: object, new: object) -> bool:
    """Whether two elements are the same on the wire; unchanged ones are mostly one object."""
    if old is new:
        return True
    if old != new or not (isinstance(old, Value) and isinstance(new, Value)):
        return old == new
    return canonical(old.wire()) == canonical(new.wire())
