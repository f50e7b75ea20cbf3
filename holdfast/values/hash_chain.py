"""A hash chain over recorded values: one digest stands for a whole conversation.

The digest of a list is SHA-256 over the digest of the list without its last entry, followed by the
canonical bytes of that entry. Appending costs one hash, whatever came before, and any change to an
earlier entry changes every later digest (the construction of Haber and Stornetta, 1991).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.values.base import Json, Value, canonical

EMPTY = ""
DIGEST_LENGTH = 32


def extend(digest: str, values: Iterable[Value]) -> str:
    """Return the digest of a chain that ended in `digest` after appending `values`."""
    return extend_json(digest, (value.wire() for value in values))


def extend_json(digest: str, values: Iterable[Json]) -> str:
    """Return the digest of a chain that ended in `digest` after appending values as JSON data."""
    for value in values:
        digest = hashlib.sha256(digest.encode() + canonical(value)).hexdigest()[:DIGEST_LENGTH]
    return digest


class ChainRef(NamedTuple):
    """Names a list of values by its length and the digest of its chain.

    A tuple, because it is in the input of every activity.
    """

    length: int = 0
    digest: str = EMPTY
