"""The database of the stacks that store in SQLite."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def stored_bytes(path: Path) -> int:
    """Return the size of a database, with what its write-ahead log holds."""
    with closing(sqlite3.connect(path, timeout=60)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return path.stat().st_size
