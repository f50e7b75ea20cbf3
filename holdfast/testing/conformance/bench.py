"""The server on which all checks of the conformance suite run, and their event loop."""

from __future__ import annotations

import atexit
import functools
import itertools
import tempfile
from pathlib import Path

from temporalio.client import Client

from holdfast.archive.archive import Archive
from holdfast.engine.connect import connect_embedded
from holdfast.engine.dev_server.ephemeral import EphemeralServer, ephemeral_server
from holdfast.engine.loop import LoopThread
from holdfast.serving.names import check_archive
from holdfast.serving.plugin import HoldfastPlugin

STOP_SECONDS = 20.0


class Bench:
    """A server in memory with an archive, shared by all checks of this process.

    Attributes:
        loop: Runs the checks and their workers.
        client: A client made with `HoldfastPlugin`; it belongs to the loop.
        archive: The server's archive.
    """

    def __init__(self) -> None:
        """Start the server; it ends with this process."""
        self.loop = LoopThread("conformance")
        self._directory = tempfile.TemporaryDirectory(prefix="hf-conformance-")
        self._numbers = itertools.count(1)
        self.archive = Archive(Path(self._directory.name) / "archive")
        self._server: EphemeralServer
        self.client: Client
        self.loop.run(self._start())
        atexit.register(self._stop)

    def app(self) -> str:
        """Return the name of an app for one check alone."""
        return f"k{next(self._numbers)}"

    async def _start(self) -> None:
        self._server = await ephemeral_server()
        plugins = [HoldfastPlugin(archive=self.archive)]
        self.client = await connect_embedded(self._server.info, plugins=plugins)
        await check_archive(self.client, self.archive)

    def _stop(self) -> None:
        self.loop.submit(self._server.stop()).result(timeout=STOP_SECONDS)
        self._directory.cleanup()


@functools.cache
def shared_bench() -> Bench:
    """Return this process's bench, started at the first call."""
    return Bench()
