"""The engine of a command: the embedded server of a directory, or a cluster."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from temporalio.client import Client

from holdfast.archive.archive import Archive
from holdfast.cli.exits import InterruptedByUserError
from holdfast.cli.options import Common, check_data
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.engine.cluster import ensure_search_attributes
from holdfast.engine.connect import connect_client, connect_embedded
from holdfast.engine.dev_server.serverinfo import ServerInfo
from holdfast.errors import InvalidArgumentError
from holdfast.serving.names import check_archive
from holdfast.serving.plugin import HoldfastPlugin
from holdfast.serving.worker_host import Workers, hosted
from holdfast.serving.worker_process import App, default_archive, load_app, make_workers, measuring

if TYPE_CHECKING:
    from holdfast.serving.observed.metrics import Meters

T = TypeVar("T")
GRACE = timedelta(seconds=10)
"""Time for running calls in a command's own worker when the command is stopped."""


@dataclass(frozen=True)
class Engine:
    """A connection to an engine.

    Attributes:
        client: Temporal client.
        archive: The archive of its tasks.
        connect: Makes one more client, for another event loop.
        server: The embedded server; None for a cluster.
    """

    client: Client
    archive: Archive
    connect: Callable[[], Coroutine[Any, Any, Client]]
    server: ServerInfo | None = None

    @property
    def address(self) -> str:
        """host:port of the server."""
        return self.client.service_client.config.target_host

    def runner(self, agent: str = "", *, app: str | None = None, **options: Any) -> AgentRunner:
        """Make a runner; without an agent, for existing tasks only."""
        return AgentRunner(
            agent=agent, app=app, client=self.client, archive=self.archive, **options
        )


@asynccontextmanager
async def engine_of(
    common: Common, *, new: bool = False, ui: bool = False
) -> AsyncGenerator[Engine]:
    """Use the engine that the options name; an embedded server is joined, or started.

    Args:
        common: The options.
        new: Whether the data directory may be made; else there must be tasks in it already.
        ui: Whether the embedded server has Temporal's web UI.

    Raises:
        EngineError: It cannot be used.
        InvalidArgumentError: The options do not go together, there is no data directory, or no
            archive is named.
    """
    directory = common.embedded
    if directory is None:
        yield await _cluster(common)
        return
    if not new:
        check_data(directory)
    async with embedded_engine(directory, ui=ui) as engine:
        yield engine


@asynccontextmanager
async def embedded_engine(directory: Path, *, ui: bool = False) -> AsyncGenerator[Engine]:
    """Use the embedded server of a directory; the last one to leave stops it.

    Raises:
        ServerStartError: It did not start.
    """
    from holdfast.engine.dev_server.leases import leased_server  # needs the extra `local`

    async with leased_server(directory, ui=ui) as server:
        archive = Archive(directory / "archive")

        def connect() -> Coroutine[Any, Any, Client]:
            return connect_embedded(server, plugins=[HoldfastPlugin(archive=archive)])

        client = await connect()
        await check_archive(client, archive)
        yield Engine(client, archive, connect, server)


async def _cluster(common: Common) -> Engine:
    def connecting(*plugins: HoldfastPlugin) -> Coroutine[Any, Any, Client]:
        return connect_client(common.address, namespace=common.namespace, plugins=plugins)

    try:
        archive = Archive(common.archive or default_archive())
    except InvalidArgumentError:
        await connecting()  # report the first error first
        raise

    def connect() -> Coroutine[Any, Any, Client]:
        return connecting(HoldfastPlugin(archive=archive))

    client = await connect()
    await ensure_search_attributes(client)
    await check_archive(client, archive)
    return Engine(client, archive, connect)


@asynccontextmanager
async def served(engine: Engine, app: App, meters: Meters | None = None) -> AsyncGenerator[Workers]:
    """Serve agents in this process, on a thread and event loop of their own.

    A tool that blocks its loop then stops neither heartbeats nor the live view.
    """
    watched = measuring(meters, engine.archive)
    making = partial(make_workers, app, engine.connect, engine.archive, GRACE, **watched)
    async with hosted(making, GRACE) as (_, workers):
        yield workers


def load_agents(target: str, name: str | None = None) -> App:
    """Import agents; an error inside the module is reported in one line.

    Raises:
        HoldfastError: They cannot be imported.
    """
    return importing(partial(load_app, target, name), target)


def importing(load: Callable[[], T], target: str) -> T:
    """Import what a command names; an error inside the module is reported in one line.

    Raises:
        HoldfastError: It cannot be imported.
    """
    try:
        return load()
    except (InvalidArgumentError, SystemExit):
        raise
    except Exception as cause:
        msg = f"Importing {target!r} failed: {type(cause).__name__}: {cause}{_place(cause)}"
        raise InvalidArgumentError(msg) from cause


def _place(error: Exception) -> str:
    """Return where in the user's code an import failed."""
    if isinstance(error, SyntaxError):
        return ""  # its text names file and line
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    return f" ({Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno})"


async def until_stopped(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that Ctrl-C or SIGTERM may end at any moment.

    Raises:
        InterruptedByUserError: A signal has ended it.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, stop.set)
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise InterruptedByUserError
        return working.result()
    finally:
        for number in numbers:  # a second Ctrl-C ends the process
            loop.remove_signal_handler(number)
        working.cancel()
        stopping.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)
