"""What a verification found, and the check of values that the archive holds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from holdfast.archive.archive import Archive
from holdfast.archive.named_values import Named, named
from holdfast.archive.segments import read_messages
from holdfast.errors import DAMAGED
from holdfast.reading.audit.audit import Finding

VALUES_AT_ONCE = 16


class Verification(list[Finding]):
    """What is wrong with a record, nothing if it is intact, and what that rests on.

    Attributes:
        proved: What was proven, in sentences.
        unproved: What could not be, in sentences.
        checked: Values of the archive that were looked at, each once.
    """

    def __init__(self) -> None:
        """Begin with nothing found and nothing proven."""
        super().__init__()
        self.proved: list[str] = []
        self.unproved: list[str] = []
        self.checked: set[Named] = set()

    def add(self, text: str, *, step: str = "", branch: int = 0) -> None:
        """Add something that is wrong."""
        self.append(Finding(step=step, branch=branch, text=text))

    def cannot_read(self, what: str, error: Exception) -> None:
        """Add something that has the right digest and does not say what it has to."""
        self.add(f"{what} cannot be read: {type(error).__name__}: {str(error)[:300]}")


async def check_named(archive: Archive, values: Iterable[object], found: Verification) -> None:
    """Check that the archive has each value that recorded data names, unchanged.

    Those that are lists of messages are read, because they name others: texts and images.
    """
    todo = sorted(set(named(list(values))) - found.checked)
    while todo:
        found.checked.update(todo)
        more: set[Named] = set()
        for start in range(0, len(todo), VALUES_AT_ONCE):
            some = todo[start : start + VALUES_AT_ONCE]
            for name in await asyncio.gather(*(_check_one(archive, each, found) for each in some)):
                more |= name
        todo = sorted(more - found.checked)


async def _check_one(archive: Archive, name: Named, found: Verification) -> set[Named]:
    """Check one value of the archive; return what it names itself."""
    try:
        if name.holds_messages:
            return set(named(await read_messages(archive, name.sha256)))
        await archive.aget(name.sha256)
    except DAMAGED as error:
        found.add(f"a value that the record names is damaged: {error}")
    except (ValueError, TypeError) as error:
        found.cannot_read(f"the list of messages {name.sha256}", error)
    return set()
