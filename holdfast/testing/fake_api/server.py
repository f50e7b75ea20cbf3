"""Serve the fake API: by a thread of this process, or by a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path

from holdfast.engine.listening import listening_socket
from holdfast.engine.loop import LoopThread
from holdfast.testing.fake_api.app import FakeApp
from holdfast.testing.fake_api.replies import read_script
from holdfast.testing.fake_api.script import Script
from holdfast.values.code.extras import needing

with needing("testing", "The fake OpenAI API"):
    import uvicorn

_START_SECONDS = 30.0
_GRACE_SECONDS = 1
"""Slow answers are not waited for: the test has ended."""


class ServerThread:
    """The fake API in a thread with an event loop of its own.

    A test may therefore block, and a client in any loop may call it.

    Attributes:
        port: The port it listens on.
    """

    def __init__(self, script: Script, port: int) -> None:
        """Start, and return once requests are served."""
        self._socket = listening_socket("127.0.0.1", port)
        self.port: int = self._socket.getsockname()[1]
        self._loop = LoopThread("fake-openai")
        self._fake, self._server, self._serving = self._loop.run(self._begin(script))

    def release(self) -> None:
        """Release the requests held now."""
        self._loop.loop.call_soon_threadsafe(self._fake.release)

    def stop(self) -> None:
        """Refuse held requests, stop serving and wait for the thread."""
        self._loop.run(self._end())
        self._loop.close(_START_SECONDS)
        self._socket.close()

    async def _begin(self, script: Script) -> tuple[FakeApp, _ThreadServer, asyncio.Task[None]]:
        fake = FakeApp(script)
        server = _ThreadServer(fake)
        serving = asyncio.create_task(server.serve(sockets=[self._socket]))
        async with asyncio.timeout(_START_SECONDS):
            await server.ready.wait()
        return fake, server, serving

    async def _end(self) -> None:
        self._fake.stop()
        self._server.stopped.set()
        await self._serving


class _Server(uvicorn.Server):
    """A server that signals when it is ready."""

    def __init__(self, fake: FakeApp) -> None:
        config = uvicorn.Config(
            fake.app,
            log_level="critical",
            lifespan="off",
            ws="none",
            http="h11",
            loop="asyncio",
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


class _ThreadServer(_Server):
    """A server that stops at once.

    Uvicorn's own server polls each 0.1 s, twice, which would be most of the time of a short test.

    Attributes:
        stopped: Set it to end.
    """

    def __init__(self, fake: FakeApp) -> None:
        super().__init__(fake)
        self.stopped = asyncio.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.stopped.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=_GRACE_SECONDS)
        for task in self.server_state.tasks:
            task.cancel()


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve the fake API until the process is stopped."""
    parser = argparse.ArgumentParser(description="Serve a fake of the OpenAI HTTP API.")
    parser.add_argument("--port", type=int, default=0, help="port; 0 takes a free one")
    parser.add_argument("--script", type=Path, help="JSON file: a list of replies, or of texts")
    given = parser.parse_args(arguments)
    script = Script()
    if given.script is not None:
        script.add(read_script(given.script.read_bytes()))
    asyncio.run(_serve_process(script, given.port))


async def _serve_process(script: Script, port: int) -> None:
    listener = listening_socket("127.0.0.1", port)
    port = listener.getsockname()[1]
    line = {"base_url": f"http://127.0.0.1:{port}/v1", "port": port, "pid": os.getpid()}
    # Printed before serving: an early client waits in the listener's queue.
    print(json.dumps(line), flush=True)  # noqa: T201  the contract with the process that started it
    await _Server(FakeApp(script)).serve(sockets=[listener])
