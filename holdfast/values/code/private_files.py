"""Files and directories that only their owner may read, because they hold whole conversations."""

from __future__ import annotations

import os
from pathlib import Path

UMASK = 0o077
"""Umask for child processes that create files."""


def make_directory(path: Path) -> None:
    """Create a directory and its missing parents; existing ones keep their permissions."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
    if not path.is_dir():
        raise FileExistsError(17, "File exists", str(path))


def owner_only(path: str, flags: int) -> int:
    """Open a file, and make a new one readable by its owner alone. An `opener` for `open`."""
    return os.open(path, flags, 0o600)
