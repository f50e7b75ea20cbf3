"""The seal of a closed task: digests of its record that writers of the archive cannot change.

The task's run keeps the digest of its ledger and of its record in its result, its failure or its
memo: as long as Temporal knows the run, a rewritten record does not fit them. A
signature in the record itself outlasts that; its key is in the environment of worker processes and
of those who verify, and never in the archive.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from typing import cast

from holdfast.values.base import ChainRef, Json, Value, canonical, digest

KEY_VARIABLE = "HOLDFAST_SIGNING_KEY"
"""Environment variable with the key that signs records; older keys may follow, after commas."""

_SIGNATURE = "signature"
_PREPARED = "prepared"


class Seal(Value):
    """The digests of a closed task.

    Attributes:
        ledger: Length and digest of the chain of its ledger's entries.
        record: Digest of its record in the archive, the signature left out.
    """

    ledger: ChainRef = ChainRef()
    record: str = ""


def record_digest(record: dict[str, Json]) -> str:
    """Return the digest of a task's record as it is stored, its signature left out."""
    return digest(canonical({k: v for k, v in record.items() if k != _SIGNATURE}))


def is_sealed(record: dict[str, Json], by: str) -> bool:
    """Whether a record, as it is stored, has this digest.

    One that is marked as prepared may also have it without the mark: the activity `close` has
    stored the same record, and an attempt to prepare it, which had been given up, came late.
    """
    plain = {k: v for k, v in record.items() if k != _PREPARED}
    return by in {record_digest(record), record_digest(plain)}


def signed(record: dict[str, Json], task_id: str, what: str = "holdfast task") -> dict[str, Json]:
    """Return a record, or something else that is named, with its signature, if there is a key."""
    keys = _keys()
    if not keys:
        return record
    return {**record, _SIGNATURE: _sign(keys[0], task_id, record_digest(record), what)}


def check_signature(
    record: dict[str, Json], task_id: str, what: str = "holdfast task"
) -> bool | None:
    """Say whether a record's signature is that of a known key; None when there is nothing to check.

    It is that of a task's record, or of what else `signed` was told. There is nothing when no key
    is known, or when the record has no signature.
    """
    given = record.get(_SIGNATURE)
    keys = _keys()
    if not keys or given is None:
        return None
    found = record_digest(record)
    return any(hmac.compare_digest(str(given), _sign(key, task_id, found, what)) for key in keys)


def has_key() -> bool:
    """Whether a key is known that a signature can be checked with."""
    return bool(_keys())


def _keys() -> list[str]:
    return [key.strip() for key in os.environ.get(KEY_VARIABLE, "").split(",") if key.strip()]


def _sign(key: str, task_id: str, record: str, what: str = "holdfast task") -> str:
    text = canonical(cast("Json", [what, task_id, record]))
    return hmac.new(key.encode("utf-8", "surrogateescape"), text, hashlib.sha256).hexdigest()
