"""Server-sent events as the two APIs send them: the data of each event, from pieces of bytes."""

from __future__ import annotations

from collections.abc import Iterator

DONE = "[DONE]"


class EventReader:
    """Puts pieces of a body together into events.

    Lines are cut at line feeds only: a JSON text may hold every other separator that Python's
    `str.splitlines` knows.

    Attributes:
        is_done: Whether the last word "[DONE]" has come.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.is_done = False
        self._rest: list[bytes] = []  # pieces of a line that is not complete
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[str]:
        """Yield the data of the events that are complete now; the last word "[DONE]" is none."""
        first, *others = chunk.split(b"\n")
        self._rest.append(first)
        if not others:
            return
        *lines, rest = (b"".join(self._rest), *others)
        self._rest = [rest]
        for line in lines:
            line = line.removesuffix(b"\r")  # noqa: PLW2901  the same line, as it is meant
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                data = b"\n".join(self._data).decode("utf-8", "replace")
                self._data.clear()
                if data == DONE:
                    self.is_done = True
                else:
                    yield data
