"""The ids that were seen last, small enough to be carried by a task for as long as it lives."""

from __future__ import annotations

import base64
import hashlib

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
        self._digests[_digest(id)] = None
        if len(self._digests) > self._most:
            del self._digests[next(iter(self._digests))]

    def packed(self) -> str:
        """Return the set as a text, 11 characters an id."""
        return base64.b64encode(b"".join(self._digests)).decode()


def _digest(id: str) -> bytes:
    return hashlib.sha256(id.encode("utf-8", "surrogatepass")).digest()[:DIGEST_BYTES]
