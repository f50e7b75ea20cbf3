"""End the embedded server of a data directory when all processes that used it were killed.

    python watch.py DIRECTORY SERVER_PID GRACE_SECONDS

A process that ends normally releases its lease, and the last one stops the server. A killed process
cannot. This process, started next to the server, polls the leases: when there are some, and no
process that took one is alive, it waits GRACE_SECONDS for a new process, and then ends the server.
A server without any lease, or one that is kept, is left alone. Where the directory itself is gone,
no one can find the server any more: it ends with the processes that were last seen to use it.

It runs by path, with psutil as its only import beyond the standard library, so that it stays small:
it runs for as long as the server. Processes are identified by pid alone, because their start times
seem to move when the clock is set: better to end a server too late than while it is in use.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Collection, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

import psutil

POLL_SECONDS = 1.0
STOP_SECONDS = 10.0


def main(directory: Path, pid: int, grace: float) -> None:
    """Watch until the server has ended."""
    if os.fork():  # the process that started this one need not reap the forked child
        return
    os.setsid()
    left_since: float | None = None
    users: set[int] = set()
    while is_server(pid):
        users = users_of(directory) or users
        if not is_left(directory, users):
            left_since = None
        elif left_since is None:
            left_since = time.monotonic()
        elif time.monotonic() - left_since >= grace:
            end(directory, pid) if directory.is_dir() else stop(pid)
        time.sleep(min(POLL_SECONDS, grace))


def is_left(directory: Path, users: Collection[int] = ()) -> bool:
    """Whether there are leases, but no process that has one is alive.

    Args:
        directory: The server's directory.
        users: The processes that were last seen to hold a lease: they count where it is gone.
    """
    if not directory.is_dir():
        return not any(map(_is_alive, users))
    has_leases = any((directory / "leases").glob("*.json"))
    return has_leases and not any(map(_is_alive, users_of(directory)))


def users_of(directory: Path) -> set[int]:
    """Return the ids of the processes that have taken a lease, dead ones included."""
    found = map(_read, (directory / "leases").glob("*.json"))
    pids = [cast("dict[str, object]", each).get("pid") for each in found if isinstance(each, dict)]
    return {pid for pid in pids if isinstance(pid, int)}


def end(directory: Path, pid: int) -> None:
    """End the server, unless a process is starting or stopping one, or has taken a lease by now."""
    with _locked(directory) as is_mine:
        if not (is_mine and is_left(directory) and is_server(pid)):
            return
        leases = list((directory / "leases").glob("*.json"))
        stop(pid)
        for file in (directory / "server.json", *leases):
            file.unlink(missing_ok=True)


def stop(pid: int) -> None:
    """End a server, by force if it takes too long."""
    with suppress(psutil.NoSuchProcess):
        server = psutil.Process(pid)
        server.terminate()
        with suppress(psutil.TimeoutExpired):
            server.wait(STOP_SECONDS)
        if is_server(pid):
            server.kill()


def is_server(pid: int) -> bool:
    """Whether this process is alive and is an embedded server."""
    with suppress(psutil.Error):
        return _is_alive(pid) and "start-dev" in psutil.Process(pid).cmdline()
    return False


def _is_alive(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def _read(file: Path) -> object:
    with suppress(OSError, ValueError):
        return json.loads(file.read_text(encoding="utf-8"))
    return None


@contextmanager
def _locked(directory: Path) -> Generator[bool]:
    """Hold the directory's lock, if it is free, as `filelock` holds it."""
    handle = os.open(directory / "server.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield os.fstat(handle).st_nlink > 0  # a deleted file locks nothing: another has its name
    except BlockingIOError:
        yield False
    finally:
        os.close(handle)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
