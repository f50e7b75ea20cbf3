"""The embedded Temporal server of a data directory: one per directory, shared by all processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from holdfast.engine.dev_server.command import DATABASE, find_cli
from holdfast.engine.dev_server.datadir import (
    SETUP,
    is_set_up,
    located,
    locked,
    prepare,
    write_json,
)
from holdfast.engine.dev_server.launch import ServerRecord, read_record, start_server
from holdfast.engine.dev_server.process import (
    STOP_SECONDS,
    end_process,
    is_alive,
    processes_in,
    start_time,
    wait_ready,
)
from holdfast.engine.dev_server.serverinfo import ServerInfo
from holdfast.errors import ServerStartError
from holdfast.values.text.logs import log

__all__ = ["ServerInfo", "ensure_server", "find_cli", "find_server", "stop_server"]

JOIN_SECONDS = 15.0
"""How long a live server may leave requests unanswered before it counts as hung and is replaced."""

HUNG_GRACE_SECONDS = 2.0


async def ensure_server(data_dir: Path, *, ui: bool = False) -> ServerInfo:
    """Join the server of this directory, or start it when none is running.

    A server that was killed is started again on the same SQLite file, and on the same port if that
    is still free, so that running clients and workers reconnect by themselves. Take a lease first
    (`acquire_lease`): another process may stop a server without leases.

    Args:
        data_dir: Created when missing.
        ui: Whether it has Temporal's web UI, which shows all histories to anyone who asks.

    Raises:
        ServerStartError: The directory cannot be used, the Temporal CLI is missing, the server
            did not become ready within 30 s (the text ends with the tail of its log), or it runs
            without the UI that is asked for.
    """
    directory = prepare(data_dir)
    async with locked(directory):
        await _end_orphans(directory)
        record = await _join(directory)
        if record is None:
            record = await start_server(directory, ui=ui)
        if ui and not record.ui_port:
            msg = (
                f"The Temporal server of {str(directory)!r} runs without its web UI. End the"
                " processes that use it, or `holdfast stop`, and start it with the UI."
            )
            raise ServerStartError(msg)
        write_json(directory / "server.json", asdict(record))
        return record.info(directory)


async def revive_server(data_dir: Path) -> None:
    """Start the server of this directory again if it was killed; one that was stopped stays so.

    Raises:
        ServerStartError: As for `ensure_server`.
    """
    directory = located(data_dir)
    if not _was_killed(read_record(directory)):
        return
    async with locked(directory):
        record = read_record(directory)  # somebody may have stopped or started it meanwhile
        if record is None or not _was_killed(record):
            return
        log.warning("The Temporal server of %s was killed: it is started again", directory)
        made = await start_server(directory, ui=bool(record.ui_port))
        write_json(directory / "server.json", asdict(made))


def _was_killed(record: ServerRecord | None) -> bool:
    """Whether a server is gone whose record is still there: who stops one deletes its record."""
    return record is not None and not is_alive(record.pid, record.started)


def find_server(data_dir: Path) -> ServerInfo | None:
    """Return the live server of this directory, or None. Starts nothing, and uses no network.

    The server that makes a new database does not count: another one replaces it.
    """
    directory = located(data_dir)
    record = read_record(directory)
    if record is None or not is_set_up(directory) or not is_alive(record.pid, record.started):
        return None
    return record.info(directory)


async def stop_server(data_dir: Path) -> bool:
    """Stop the server of this directory, even if other processes use it; its SQLite file stays.

    Returns:
        Whether a server was running.

    Raises:
        ServerStartError: Another process keeps the directory's lock.
    """
    directory = located(data_dir)
    if not directory.is_dir():
        return False
    async with locked(directory):
        return await stop_locked(directory)


async def stop_locked(directory: Path, *, grace: float = STOP_SECONDS) -> bool:
    """Do the work of `stop_server` for a caller that holds the lock."""
    record = _find_living(directory)
    stopped = record is not None and await end_process(record.pid, record.started, grace=grace)
    (directory / "server.json").unlink(missing_ok=True)
    return stopped


async def _join(directory: Path) -> ServerRecord | None:
    """Return the running server once it answers; end one that is alive but does not answer."""
    record = _find_living(directory)
    if record is None:
        return None
    ready = await wait_ready(
        f"127.0.0.1:{record.port}",
        seconds=JOIN_SECONDS,
        is_running=lambda: is_alive(record.pid, record.started),
    )
    if ready is not None:
        return replace(record, version=ready.version)
    await end_process(record.pid, record.started, grace=HUNG_GRACE_SECONDS)
    return None


def _find_living(directory: Path) -> ServerRecord | None:
    """Return the live server of this directory, whether `server.json` names it or not."""
    record = read_record(directory)
    if record is not None and is_alive(record.pid, record.started):
        return record
    return _find_lost(directory)


async def _end_orphans(directory: Path) -> None:
    """End servers whose database was deleted while they ran, or is half made.

    The first kind comes of `rm -rf` of the directory. Such a server still has the deleted tasks,
    but their archive is deleted as well, so they cannot go on. They are lost when it ends; the next
    server starts with an empty database. The second kind is left by a starter that was killed or
    cancelled during the first start; no one has used that server yet.
    """
    has_database = is_set_up(directory)
    record = read_record(directory)
    if has_database and record is not None and is_alive(record.pid, record.started):
        return
    for server, is_deleted in _servers_in(directory):
        if not is_deleted and (directory / SETUP).exists():
            await end_process(server.pid, server.started, grace=0)
        elif is_deleted or not has_database:
            log.warning(
                "ending the Temporal server %s: its data directory %s was deleted while it ran",
                server.pid,
                directory,
            )
            await end_process(server.pid, server.started, grace=0)


def _find_lost(directory: Path) -> ServerRecord | None:
    """Find a live server of this directory that `server.json` does not name.

    The file may have been deleted, or the clock set (start times then seem to differ). Two servers
    must not use one SQLite file, so all processes are searched, which takes a few milliseconds. A
    server belongs to the directory that is its working directory.
    """
    servers = _servers_in(directory)
    return next((server for server, is_deleted in servers if not is_deleted), None)


def _servers_in(directory: Path) -> Iterator[tuple[ServerRecord, bool]]:
    """Yield the servers that run in this directory, and whether it was deleted under them."""
    for found in processes_in(directory):
        flags, started = found.command, start_time(found.pid)
        if started is None or "start-dev" not in flags or DATABASE not in flags:
            continue
        with suppress(ValueError, IndexError):
            port = int(flags[flags.index("--port") + 1])
            has_ui = "--ui-port" in flags
            ui_port = int(flags[flags.index("--ui-port") + 1]) if has_ui else 0
            server = ServerRecord(pid=found.pid, started=started, port=port, ui_port=ui_port)
            yield server, found.is_deleted
