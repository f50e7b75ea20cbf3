"""The archive: content-addressed bytes next to Temporal's history, and the records in it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from holdfast.archive.archive import Archive

if TYPE_CHECKING:
    from holdfast.archive.encryption.keys import Keys, KeyService, hashed

__all__ = ["Archive", "KeyService", "Keys", "hashed"]

_KEYS = "holdfast.archive.encryption.keys"


def __getattr__(name: str) -> object:
    """Import what encrypts at its first use: most programs do not."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_KEYS), name)
