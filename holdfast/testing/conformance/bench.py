"""The server on which all checks of the conformance suite run, and their event loop."""

from __future__ import annotations

import atexit
import functools
import itertools
import multiprocessing
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from temporalio.client import Client

from holdfast.archive.archive import Archive
from holdfast.engine.connect import connect_embedded
from holdfast.engine.dev_server.ephemeral import EphemeralServer, ephemeral_server
from holdfast.engine.dev_server.serverinfo import ServerInfo
from holdfast.engine.loop import LoopThread
from holdfast.serving.names import check_archive
from holdfast.serving.plugin import HoldfastPlugin
from holdfast.testing.conformance import process as conformance_process

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext
    from multiprocessing.process import BaseProcess

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
        # One process has imported everything and forks, so that a worker starts at once. It has no
        # threads, so forking is safe.
        self._context: ForkServerContext | SpawnContext
        if "forkserver" in multiprocessing.get_all_start_methods():
            self._context = multiprocessing.get_context("forkserver")
            self._context.set_forkserver_preload([conformance_process.__name__, "openai"])
        else:
            self._context = multiprocessing.get_context("spawn")

    @property
    def server(self) -> ServerInfo:
        """Address of the server."""
        return self._server.info

    def home(self) -> tuple[str, Path]:
        """Return the name of an app, and a directory, for one check alone."""
        name = f"k{next(self._numbers)}"
        directory = Path(self._directory.name) / name
        directory.mkdir()
        return name, directory

    def start_process(self, job: conformance_process.Job) -> BaseProcess:
        """Start a worker process."""
        process = self._context.Process(target=conformance_process.serve, args=(job,), daemon=True)
        process.start()
        return process

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
