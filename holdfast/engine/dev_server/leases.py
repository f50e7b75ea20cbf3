"""Leases: claims of runners on the embedded server of a data directory.

The order is: `acquire_lease`, then `ensure_server`, work, then `release_lease`. The lease comes
before the server: a runner that stops the server checks for leases under the lock that
`ensure_server` takes, so it never stops a server that another runner has just joined.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from holdfast.engine.dev_server.process import is_alive, start_time
from holdfast.engine.dev_server.server import (
    ensure_server,
    located,
    locked,
    prepare,
    read_json,
    revive_server,
    stop_locked,
    write_json,
)
from holdfast.engine.dev_server.serverinfo import ServerInfo
from holdfast.values.base import Json
from holdfast.values.checks.ids import serves
from holdfast.values.text.logs import log

RELEASE_GRACE_SECONDS = 0.2
"""Shorter than a graceful stop, which would make every script end a second later. A kill is safe:
acknowledged writes are in the SQLite file, and no client waits for an answer."""

LOOK_SECONDS = 1.0
"""How often a process looks whether its server lives: a look takes a fraction of a millisecond."""


@dataclass(frozen=True, kw_only=True)
class Lease:
    """One runner's claim on the server of a data directory.

    Attributes:
        file: The file that records it.
        pid: The process that took it. The lease is valid for as long as that process lives.
    """

    file: Path
    pid: int


async def acquire_lease(data_dir: Path) -> Lease:
    """Claim the server of this directory; to be called before `ensure_server`.

    Raises:
        ServerStartError: The directory cannot be used.
    """
    directory = prepare(data_dir)
    pid = os.getpid()
    lease = Lease(file=directory / "leases" / f"{pid}-{secrets.token_hex(4)}.json", pid=pid)
    async with locked(directory):
        write_json(lease.file, {"pid": pid, "started": start_time(pid)})
    return lease


async def release_lease(lease: Lease) -> bool:
    """Release a lease; if it is the last valid one, stop the server.

    A lease inherited through `fork` belongs to the parent, so a release in the child does nothing.

    Returns:
        Whether the server was stopped.

    Raises:
        ServerStartError: Another process keeps the directory's lock.
    """
    directory = lease.file.parent.parent
    if lease.pid != os.getpid() or not directory.is_dir():
        return False
    async with locked(directory):
        # Under the lock, so that no lease is taken between this look and the stop.
        lease.file.unlink(missing_ok=True)
        if live_leases(directory):
            return False
        return await stop_locked(directory, grace=RELEASE_GRACE_SECONDS)


@asynccontextmanager
async def leased_server(data_dir: Path, *, ui: bool = False) -> AsyncGenerator[ServerInfo]:
    """Use the server of this directory for the length of an `async with` block.

    A server that is killed meanwhile is started again; one that was stopped is not.

    Raises:
        ServerStartError: The directory cannot be used, or the server did not start.
    """
    lease = await acquire_lease(data_dir)
    try:
        info = await ensure_server(data_dir, ui=ui)
        reviving = asyncio.create_task(_revive(data_dir))
        try:
            yield info
        finally:
            reviving.cancel()
            await asyncio.gather(reviving, return_exceptions=True)
    finally:
        await release_lease(lease)


async def _revive(data_dir: Path) -> None:
    """Start the server of this directory again whenever it was killed, until cancelled."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            await revive_server(data_dir)
        except Exception:
            log.exception("The Temporal server of %s could not be started again", data_dir)


def live_leases(directory: Path) -> list[Path]:
    """Return the leases whose process is alive, and delete the others."""
    return [file for file, _ in _live(directory / "leases")]


def _live(folder: Path) -> list[tuple[Path, dict[str, Json]]]:
    """Return the files whose process is alive, with their content, and delete the others."""
    live: list[tuple[Path, dict[str, Json]]] = []
    for file in folder.glob("*.json"):
        match read_json(file):
            case {"pid": int(pid), "started": float(started), **rest} if is_alive(pid, started):
                live.append((file, {**cast("dict[str, Json]", rest), "pid": pid}))
            case _:
                file.unlink(missing_ok=True)
    return live


@contextmanager
def serving(data_dir: Path, queue: str) -> Generator[None]:
    """Note in a data directory that this process serves a queue while the block runs.

    Logs a warning if another process does: the two may have different code.

    Args:
        data_dir: The directory, which has a server.
        queue: The queue.
    """
    folder, pid = located(data_dir) / "serving", os.getpid()
    others = sorted({str(its["pid"]) for _, its in _live(folder) if its.get("queue") == queue})
    if set(others) - {str(pid)}:
        log.warning(
            "Another process (%s) serves %s from %r as well. Each takes a part of the work with the"
            " code that it has loaded. If their code differs, end or restart the older one.",
            ", ".join(each for each in others if each != str(pid)),
            serves(queue),
            str(data_dir),
        )
    file = folder / f"{pid}-{secrets.token_hex(4)}.json"
    write_json(file, {"pid": pid, "started": start_time(pid), "queue": queue})
    try:
        yield
    finally:
        if os.getpid() == pid:
            file.unlink(missing_ok=True)
