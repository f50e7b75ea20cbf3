"""Files and directories that only their owner may read: they hold whole conversations."""

from __future__ import annotations

import os
from pathlib import Path

UMASK = 0o077
"""For processes that make files of their own."""


def make_directory(path: Path) -> None:
    """Create a directory, and those above it that are missing; what is there stays as it is."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
    if not path.is_dir():
        raise FileExistsError(17, "File exists", str(path))


def owner_only(path: str, flags: int) -> int:
    """Open a file; one that is created is readable by its owner alone. An `opener` of `open`."""
    return os.open(path, flags, 0o600)
