"""What was read last of the archive."""

from __future__ import annotations

from collections import OrderedDict


class Recent:
    """Texts used last, by name; bounded in size."""

    def __init__(self, limit: int) -> None:
        """Set the bound in characters; one text may pass it."""
        self._limit = limit
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._size = 0

    def get(self, name: str) -> str | None:
        """Return a text, if it is here."""
        text = self._texts.get(name)
        if text is not None:
            self._texts.move_to_end(name)
        return text

    def keep(self, name: str, text: str) -> None:
        """Remember a text."""
        self._size += len(text) - len(self._texts.get(name, ""))
        self._texts[name] = text
        self._texts.move_to_end(name)
        while self._size > self._limit and len(self._texts) > 1:
            _, dropped = self._texts.popitem(last=False)
            self._size -= len(dropped)
