"""A Temporal server in memory, private to this process, which ends with it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import weakref
from typing import IO, Self

from holdfast.engine.dev_server import guard
from holdfast.engine.dev_server.command import server_command, server_environment
from holdfast.engine.dev_server.process import children_of, free_port, wait_ready, wait_until
from holdfast.engine.dev_server.server import START_ATTEMPTS, START_SECONDS
from holdfast.engine.dev_server.serverinfo import ServerInfo
from holdfast.errors import ServerStartError


class EphemeralServer:
    """A running in-memory server.

    It ends with `stop`, with the `async with` block, or with this process, however that dies.

    Attributes:
        info: Address of the server; its `data_dir` is None.
    """

    def __init__(self, info: ServerInfo, guard_process: subprocess.Popen[bytes]) -> None:
        """Take the guard process of a server that is ready."""
        self.info = info
        self._guard = guard_process
        _open.add(self)

    async def stop(self) -> None:
        """Stop the server, and wait until it has ended. A second call does nothing."""
        _open.discard(self)
        await _stop_guard(self._guard)

    def drop_pipe(self) -> None:
        """Close this process's end of the guard's pipe, without waiting for the server's end."""
        if self._guard.stdin is not None:
            self._guard.stdin.close()

    async def __aenter__(self) -> Self:
        """Return the server itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the server."""
        await self.stop()


_open: weakref.WeakSet[EphemeralServer] = weakref.WeakSet()


def _drop_pipes() -> None:
    """Close the pipes in a forked child, as they would keep the parent's servers alive."""
    for server in list(_open):
        server.drop_pipe()
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_pipes)


async def ephemeral_server() -> EphemeralServer:
    """Start a server in memory.

    Raises:
        ServerStartError: The Temporal CLI is missing, or the server did not become ready in 30 s
            (the text ends with the tail of its log).
    """
    tail = ""
    for _ in range(START_ATTEMPTS):
        # A file without a name on disk, so that nothing is left behind however this process ends.
        with tempfile.TemporaryFile() as log:
            server = await _start_guarded(log)
            if server is not None:
                return server
            log.seek(max(0, log.seek(0, os.SEEK_END) - 2000))
            tail = log.read().decode("utf-8", "replace").strip()
        if "address already in use" not in tail:
            break
    raise ServerStartError(
        "The in-memory Temporal server did not become ready. The end of its log says:\n"
        f"{tail or '(nothing)'}"
    )


async def _start_guarded(log: IO[bytes]) -> EphemeralServer | None:
    """Start a guard with its server; return None when the server did not become ready."""
    port = free_port()
    command = server_command(port, database=None)
    # By path, not by `-m`, because the child may not have this process's import path.
    process = subprocess.Popen(  # noqa: ASYNC220  returns at once, and ends outside any loop
        [sys.executable, "-I", "-S", guard.__file__, *command],
        env=server_environment(),
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        ready = await wait_ready(
            f"127.0.0.1:{port}", seconds=START_SECONDS, is_running=lambda: process.poll() is None
        )
        children = children_of(process.pid) if ready is not None else []
    except BaseException:
        await _stop_guard(process)
        raise
    if not children:
        await _stop_guard(process)
        return None
    info = ServerInfo(address=f"127.0.0.1:{port}", pid=children[0])
    return EphemeralServer(info, process)


async def _stop_guard(process: subprocess.Popen[bytes]) -> None:
    """Close the pipe and wait until the guard, and so the server, has ended."""
    if process.stdin is not None:
        process.stdin.close()
    if not await wait_until(lambda: process.poll() is not None, guard.GRACE_SECONDS):
        process.kill()
