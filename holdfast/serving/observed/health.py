"""`HOLDFAST_HEALTH=host:port`: whether a process lives, and whether it is ready, over HTTP.

An answer has no data of tasks, so the port asks for no token. It serves any `Host`: the probes of a
cluster name the process by many.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta

from temporalio.client import Client
from temporalio.service import RPCError

from holdfast.archive.archive import Archive
from holdfast.engine.cluster import pollers_of
from holdfast.engine.listening import listening_socket
from holdfast.engine.target import check_namespace
from holdfast.errors import (
    BlobMissingError,
    ConnectError,
    HoldfastError,
    InvalidArgumentError,
    ServerStartError,
)
from holdfast.serving.worker_host import Workers
from holdfast.values.text.logs import log
from holdfast.values.text.redact import redact

VARIABLE = "HOLDFAST_HEALTH"
SECONDS = 3.0
"""How long a part may take to answer, and a client to ask."""

PATIENCE = timedelta(seconds=10)

MOST_BYTES = 8192
"""Largest head of a request."""

Check = Callable[[], Awaitable[None]]
"""Raises what is wrong with a part: a HoldfastError, an RPCError or an OSError."""

STARTING = {"process": "It is being started."}
STOPPING = {"process": "It is being stopped: running calls go on, and it takes no new work."}
_REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class Health:
    """Knows whether a process is ready.

    Attributes:
        state: Why it is not, whatever its parts say; empty while it serves.
    """

    def __init__(self) -> None:
        """Begin as a process that is being started."""
        self.state: Mapping[str, str] = STARTING
        self._checks: dict[str, Check] = {}
        self._asked: dict[str, asyncio.Task[None]] = {}

    def serves(self, client: Client, archive: Archive, workers: Workers | None = None) -> None:
        """Be ready while these parts are."""

        async def server() -> None:
            await check_namespace(client.workflow_service, client.namespace)

        async def archived() -> None:
            try:
                await archive.aget_record("none.json")
            except BlobMissingError:  # raised by an archive that is there
                return

        self._checks = {"server": server, "archive": archived}
        if workers is not None:
            self._checks["queues"] = Polls(workers).check
        self.state = {}

    async def problems(self) -> Mapping[str, str]:
        """Return each part that is not ready, and why."""
        if self.state:
            return self.state
        found = await asyncio.gather(*(self._problem(name) for name in self._checks))
        return {name: text for name, text in zip(self._checks, found, strict=True) if text}

    async def _problem(self, name: str) -> str:
        # One question at a time: an archive that hangs would keep a thread for each.
        asked = self._asked.get(name)
        if asked is None or asked.done():
            asked = self._asked[name] = asyncio.ensure_future(self._checks[name]())
        await asyncio.wait([asked], timeout=SECONDS)
        if not asked.done():
            return f"It has not answered within {SECONDS:g} s."
        try:
            asked.result()
        except (HoldfastError, RPCError, OSError) as error:
            return redact(str(error))
        return ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request of a connection, and close it."""
        try:
            async with asyncio.timeout(SECONDS):
                line, _, _ = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
            method, _, target = line.decode("latin-1").partition(" ")
            status, facts = await self._page(method, target.partition(" ")[0].partition("?")[0])
            body = b"" if method == "HEAD" else json.dumps(facts).encode()
            head = (
                f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\n"
                "Connection: close\r\n\r\n"
            )
            writer.write(head.encode() + body)
            await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            log.debug("A request of the health port did not come to its end", exc_info=True)
        finally:
            writer.close()

    async def _page(self, method: str, path: str) -> tuple[int, dict[str, object]]:
        if path not in {"/live", "/ready"}:
            return 404, {"error": "There are /live and /ready."}
        if method not in {"GET", "HEAD"}:
            return 405, {"error": f"{path} takes GET and HEAD."}
        if path == "/live":
            return 200, {"live": True}
        problems = await self.problems()
        return (503 if problems else 200), {"ready": not problems, "problems": dict(problems)}


class Polls:
    """Whether workers take tasks from all of their queues."""

    def __init__(self, workers: Workers) -> None:
        """Ask about these."""
        self._workers = workers
        self._unseen = set(workers.queues)

    async def check(self) -> None:
        """Ask the server once for each queue: a worker that polls goes on to until it ends.

        Raises:
            ConnectError: They do not.
        """
        client = self._workers.client
        for queue in sorted(self._unseen):
            if client.identity not in await pollers_of(client, queue, PATIENCE):
                msg = f"The server knows no poll of this process for the queue {queue!r} yet."
                raise ConnectError(msg)
            self._unseen.discard(queue)
        if not self._workers.are_running:
            raise ConnectError(f"The worker of {', '.join(self._workers.queues)} has ended.")


@asynccontextmanager
async def health_served() -> AsyncGenerator[Health]:
    """Answer at the address of `HOLDFAST_HEALTH` while the block runs; at none if it is not set.

    Raises:
        InvalidArgumentError: The variable has another form.
        ServerStartError: The address is taken, or not of this machine.
    """
    health, given = Health(), os.environ.get(VARIABLE)
    if not given:
        yield health
        return
    host, port = address_in(VARIABLE, given)
    try:
        bound = listening_socket(host, port)
    except OSError as error:
        msg = f"{VARIABLE}: nothing can listen at {given!r}: {error.strerror}."
        raise ServerStartError(msg) from None
    server = await asyncio.start_server(health.answer, sock=bound, limit=MOST_BYTES)
    log.info("health at %s:%d", host, bound.getsockname()[1])
    try:
        yield health
    finally:
        server.close()


def address_in(variable: str, given: str) -> tuple[str, int]:
    """Return host and port of `host:port`, or of a port, which is this machine's alone.

    Raises:
        InvalidArgumentError: It is neither.
    """
    host, _, port = given.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:  # noqa: PLR2004  the largest port
        msg = f"{variable} is {given!r}; it is host:port, such as 127.0.0.1:9464 or 0.0.0.0:9464."
        raise InvalidArgumentError(msg)
    return host.strip("[]") or "127.0.0.1", int(port)
