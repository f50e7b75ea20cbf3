"""The data directory: files of the embedded server, its lock and its leases."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.engine.dev_server.command import DATABASE
from holdfast.engine.dev_server.process import POLL_SECONDS
from holdfast.errors import ServerStartError
from holdfast.values.code.extras import needing_local
from holdfast.values.code.private_files import make_directory, owner_only, write_private

with needing_local():
    from filelock import FileLock, Timeout

if TYPE_CHECKING:
    from holdfast.values.base import Json

SETUP = "setup"
"""File that exists from before the database is made until its server is ready."""

LOCK_SECONDS = 90.0
"""Longer than a server may take to start, so that a second starter waits and joins the server."""


def located(data_dir: Path) -> Path:
    """Return the directory absolute and without links, so that all its names mean one server."""
    return data_dir.expanduser().resolve()


def prepare(data_dir: Path) -> Path:
    """Create the data directory when it is missing and check that it can be written.

    Returns:
        The directory as `located` names it.

    Raises:
        ServerStartError: It is a file, or cannot be created or written.
    """
    path = located(data_dir)
    try:
        if not path.exists():
            make_directory(path)
            # Histories hold whole conversations, which must not be committed by accident.
            write_text(path / ".gitignore", "*\n")
        make_directory(path / "leases")
        make_directory(path / "serving")
        with tempfile.TemporaryFile(dir=path):
            pass
    except (FileExistsError, NotADirectoryError) as error:
        files = (each for each in (path, *path.parents) if each.is_file())
        wrong = str(next(files, error.filename))
        raise ServerStartError(
            f"The data directory {str(path)!r} cannot be used: {wrong!r} is a file, not"
            " a directory. Name another data_dir, or move that file away."
        ) from error
    except OSError as error:
        raise ServerStartError(
            f"The data directory {str(path)!r} cannot be written: {error.strerror}. Name a"
            " writable data_dir, or pass data_dir=None for a server in memory."
        ) from error
    return path


@asynccontextmanager
async def locked(directory: Path) -> AsyncGenerator[None]:
    """Hold this directory's lock, so that one process at a time starts or stops its server.

    The operating system releases the lock when its holder dies.

    Raises:
        ServerStartError: Another process holds it for longer than `LOCK_SECONDS`.
    """
    lock = FileLock(directory / "server.lock", mode=0o600, thread_local=False)
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        # Polled, not awaited in a thread: after a cancellation, the thread would still acquire the
        # lock, and nothing would release it.
        try:
            lock.acquire(blocking=False)
            break
        except Timeout:
            if time.monotonic() >= deadline:
                raise ServerStartError(
                    f"Another process has held {str(directory / 'server.lock')!r} for"
                    f" {LOCK_SECONDS:.0f} s. It starts or stops the server of this directory; end"
                    " it if it hangs, then try again."
                ) from None
        await asyncio.sleep(POLL_SECONDS)
    try:
        yield
    finally:
        lock.release()


def write_text(path: Path, text: str) -> None:
    """Write a file that only its owner may read."""
    with open(path, "w", encoding="utf-8", opener=owner_only) as file:
        file.write(text)


def write_json(path: Path, data: Json) -> None:
    """Replace a file atomically, so that a reader sees the old or the new content."""
    write_private(path, json.dumps(data).encode())


def read_json(path: Path) -> Json:
    """Return the content of a JSON file, or None when it is missing or unreadable."""
    with suppress(OSError, ValueError):
        return json.loads(path.read_text(encoding="utf-8"))
    return None


def is_set_up(directory: Path) -> bool:
    """Say whether the directory has a database that a server has finished making."""
    return (directory / DATABASE).exists() and not (directory / SETUP).exists()


def begin_set_up(directory: Path) -> None:
    """Delete a database that is half made, and mark that a server is about to make one.

    A server that is killed while it makes its tables leaves a file that no later one can use.
    """
    for file in directory.glob(f"{DATABASE}*"):
        file.unlink()
    write_text(directory / SETUP, "")


def end_set_up(directory: Path) -> None:
    """Record that the database is complete."""
    (directory / SETUP).unlink(missing_ok=True)
