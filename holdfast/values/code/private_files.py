"""Files and directories that only their owner may read, because they hold whole conversations."""

from __future__ import annotations

import os
from pathlib import Path

UMASK = 0o077
"""Umask for child processes that create files."""


def make_directory(path: Path) -> None:
    """Create a directory and its missing parents; existing ones keep their permissions."""
    if path.is_dir():
        return
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
    if not path.is_dir():
        raise FileExistsError(17, "File exists", str(path))


def owner_only(path: str, flags: int) -> int:
    """Open a file, and make a new one readable by its owner alone. An `opener` for `open`."""
    return os.open(path, flags, 0o600)


def write_private(path: Path, data: bytes) -> None:
    """Replace a file that only its owner may read; a reader sees the old or the new content."""
    make_directory(path.parent)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with open(temporary, "wb", opener=owner_only) as file:
        file.write(data)
    temporary.replace(path)
