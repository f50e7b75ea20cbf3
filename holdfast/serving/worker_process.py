"""Worker processes: they run the tasks of agents, as programs of their own or inside a team's.

What a worker runs is imported where one is built: a client names an app without it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from temporalio.client import Client
from temporalio.plugin import SimplePlugin
from temporalio.worker import Worker, WorkerDeploymentConfig

from holdfast.activities.failures import log_failures_once
from holdfast.activities.notices import Notifier
from holdfast.agents.agent import Agent
from holdfast.archive.archive import Archive
from holdfast.engine.cluster import ensure_search_attributes
from holdfast.engine.connect import connect_client, connect_embedded
from holdfast.errors import HoldfastError, InvalidArgumentError
from holdfast.models.prices import Prices
from holdfast.serving.deployments import (
    check_open_tasks,
    deployment_config,
    sample_size,
    warn_of_no_current,
)
from holdfast.serving.names import check_archive
from holdfast.serving.plugin import HoldfastPlugin
from holdfast.serving.unserved import warn_of_unserved
from holdfast.serving.worker_host import Host, Workers, hosted
from holdfast.values.checks.ids import DEFAULT_APP, check_app, queue_of
from holdfast.values.text.logs import log
from holdfast.values.text.redact import redact

if TYPE_CHECKING:
    from holdfast.activities.user_loop import UserLoops
    from holdfast.serving.activities import Activities
    from holdfast.serving.governor.providers import Limited
    from holdfast.serving.observed.metrics import Meters

Connect = Callable[[], Coroutine[Any, Any, Client]]

GRACE_VARIABLE = "HOLDFAST_GRACE"
BUILD_ID = "1"
"""Short, because history repeats it in every event; compatibility is kept by replay tests."""


@dataclass(frozen=True)
class App:
    """Agents that are served together.

    Attributes:
        name: Name of the app.
        agents: The agents; their order means nothing.
    """

    name: str
    agents: tuple[Agent, ...]

    @property
    def served(self) -> tuple[Agent, ...]:
        """The agents whose tasks may begin here: these, and the agents that they hand over to."""
        found = {agent.name: agent for agent in self.agents}
        for agent in self.agents:
            found |= {other.name: other for other in agent.team() if other.name not in found}
        return tuple(found.values())

    @property
    def queues(self) -> tuple[str, ...]:
        """The task queues of their tasks."""
        return tuple(dict.fromkeys(queue_of(self.name, agent.name) for agent in self.served))


def build_workers(
    client: Client,
    app: App,
    *,
    archive: Archive,
    loops: UserLoops | None = None,
    prices: Prices | None = None,
    notify: Iterable[Notifier] | None = None,
    providers: Iterable[Limited] | None = None,
    **options: Any,
) -> Workers:
    """Build the Temporal workers that serve an app.

    A named app has one queue. In the default app, which programs share that know nothing of each
    other, each agent has its own, and so have the sessions.

    Args:
        client: As for `build_worker`, like archive and options.
        app: The agents.
        archive: The archive of the namespace.
        loops: Where tools and models do their work.
        prices: As for `build_worker`, like notify and providers.
        notify: See prices.
        providers: See prices.
        options: Options of each worker.

    Raises:
        UserError: Two agents have one name.
        InvalidArgumentError: A notifier or a provider cannot be used.
    """
    extras: dict[str, Any] = {"prices": prices, "notify": notify, "providers": providers}
    activities = _activities(app.agents, archive, loops, **extras)
    workers = [serving_worker(client, activities, queue=queue, **options) for queue in app.queues]
    if app.name == DEFAULT_APP:
        workers.append(session_worker(client, activities, **options))
    return Workers(workers)


def build_worker(
    client: Client,
    agents: Iterable[Agent],
    *,
    app: str,
    archive: Archive,
    prices: Prices | None = None,
    notify: Iterable[Notifier] | None = None,
    providers: Iterable[Limited] | None = None,
    **options: Any,
) -> Worker:
    """Build a Temporal worker that serves the agents of a named app.

    Args:
        client: A client made with `HoldfastPlugin` or with Holdfast's data converter.
        agents: The agents to serve.
        app: Name of the app, not the default one; the queue is `hf.<app>`.
        archive: The archive of the namespace.
        prices: What models cost, recorded with each call; the prices that `HOLDFAST_PRICES` names
            by default, else none.
        notify: What notifies people when a task waits for them, such as
            `Webhook`; what `HOLDFAST_NOTIFY` names by default, else nothing.
        providers: Limits of model providers and budgets of tenants, kept together; those of the
            file that `HOLDFAST_PROVIDERS` names by default, else none.
        options: Anything that `temporalio.worker.Worker` takes, laid over our own choices. The
            `deployment_config` is made of `HOLDFAST_DEPLOYMENT`, `HOLDFAST_BUILD` and
            `HOLDFAST_PIN` by default.

    Raises:
        UserError: Two different agents have one name.
        InvalidArgumentError: A notifier, a provider or a name of the deployment cannot be used.
    """
    if "build_id" not in options:
        options.setdefault("deployment_config", deployment_config())
    from holdfast.activities.user_loop import UserLoops

    loops, extras = UserLoops(), {"prices": prices, "notify": notify, "providers": providers}
    activities = _activities(agents, archive, loops, **extras)
    ends = SimplePlugin("holdfast loops", run_context=loops.served)
    options["plugins"] = [*options.get("plugins", ()), ends]
    return serving_worker(client, activities, queue=queue_of(check_app(app)), **options)


def _activities(
    agents: Iterable[Agent], archive: Archive, loops: UserLoops | None = None, **options: Any
) -> Activities:
    from holdfast.activities.user_loop import UserLoops
    from holdfast.serving.activities import Activities

    return Activities(agents, archive, loops or UserLoops(), **options)


def session_worker(client: Client, activities: Activities, **options: Any) -> Worker:
    """Build the worker of the default app's sessions and mailboxes; every process has it."""
    from holdfast.workflows.requests.events import EventMailbox
    from holdfast.workflows.session import Session

    settings: dict[str, Any] = {
        "task_queue": queue_of(DEFAULT_APP),
        "workflows": [Session, EventMailbox],
        "activities": activities.of_sessions,
        "max_concurrent_workflow_task_polls": 2,
        "max_concurrent_activity_task_polls": 1,
    }
    return _worker(client, {**settings, **options})


def serving_worker(client: Client, activities: Activities, *, queue: str, **options: Any) -> Worker:
    """Build a worker around activities whose agents may still grow."""
    from holdfast.serving.activities import WORKFLOWS

    settings: dict[str, Any] = {
        "task_queue": queue,
        "workflows": WORKFLOWS,
        "activities": activities.all,
    }
    given = options.get("graceful_shutdown_timeout")
    activities.long_calls.grace = grace_given() if given is None else given
    return _worker(client, {**settings, **options})


def _worker(client: Client, given: dict[str, Any]) -> Worker:
    log_failures_once()
    settings: dict[str, Any] = {
        "build_id": None if given.get("deployment_config") else BUILD_ID,
        "graceful_shutdown_timeout": grace_given(),
        # Readers in other processes see an unfinished answer by its heartbeats; without such
        # readers, one in five seconds is enough.
        "max_heartbeat_throttle_interval": timedelta(seconds=0.1),
        # How long a task waits for a worker that may be dead before another takes it over.
        "sticky_queue_schedule_to_start_timeout": timedelta(seconds=3),
        **given,
    }
    return Worker(client, **settings)


def load_app(target: str, name: str | None = None) -> App:
    """Import agents from `module:attribute`: an Agent, or a list, tuple or dict of agents.

    Args:
        target: Where to find them; the current directory is on the import path.
        name: Name of the app; the default one if none is given.

    Raises:
        InvalidArgumentError: The module or attribute is missing, or it holds no agents.
    """
    found = load(target, "Agents")
    agents = _agents(found)
    if not agents:
        msg = f"{target!r} is {type(found).__name__}; it must be an Agent or a list of agents."
        raise InvalidArgumentError(msg)
    return App(name=DEFAULT_APP if name is None else check_app(name), agents=agents)


def load(target: str, what: str) -> object:
    """Import what `module:attribute` names.

    Args:
        target: Where to find it; the current directory is on the import path.
        what: What it should be, in the plural.

    Raises:
        InvalidArgumentError: The module or attribute is missing.
    """
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        example = f"my_module:{what.lower()}"
        msg = f"{what} are named as module:attribute, for example {example}; got {target!r}."
        raise InvalidArgumentError(msg)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as cause:
        msg = f"Cannot import {cause.name!r} for {target!r}: no such module in {here} or installed."
        raise InvalidArgumentError(msg) from cause
    found: object = getattr(module, attribute, None)
    if found is None:
        raise InvalidArgumentError(f"Module {module_name!r} has no attribute {attribute!r}.")
    return found


def _agents(found: object) -> tuple[Agent, ...]:
    values: Iterable[object] = (found,)
    if isinstance(found, dict):
        values = cast("dict[str, object]", found).values()
    elif isinstance(found, list | tuple):
        values = cast("Iterable[object]", found)
    return tuple(each for each in values if _is_agent(each))


def _is_agent(found: object) -> TypeGuard[Agent]:
    return isinstance(found, Agent)


async def serve(
    app: App,
    *,
    archive: str | None = None,
    data_dir: Path | None = None,
    ready: Callable[[Workers], None] | None = None,
    deployment: WorkerDeploymentConfig | None = None,
    check: int = 0,
    **connection: Any,
) -> None:
    """Serve an app until SIGTERM or SIGINT; running calls then get 30 seconds to end.

    Args:
        app: The agents.
        archive: URL of the archive; `HOLDFAST_ARCHIVE` by default.
        data_dir: Serve the embedded server of this directory instead of a cluster; it is started
            when none is running, and its archive is in the directory.
        ready: Notified once the worker polls.
        deployment: Which build of the code this is, in a Worker Deployment.
        check: Most open tasks of each queue that are replayed before the worker polls.
        connection: Arguments of `connect_client`; Temporal's environment variables by default.

    Raises:
        ServerStartError: The embedded server, or the port of `HOLDFAST_HEALTH`, did not start.
        ConnectError: The server cannot be reached.
        ArchiveError: The archive cannot be used, or is not the namespace's.
        OpenTasksError: One of the replayed tasks cannot go on with this code.
    """
    from holdfast.serving.observed.health import STOPPING, health_served

    meters = begun_metrics()
    async with AsyncExitStack() as stack:
        health = await stack.enter_async_context(health_served())
        if data_dir is None:
            connect, store = _cluster(archive, connection)
        else:
            connect, store = await _embedded(stack, data_dir, app)
        client = await connect()
        if data_dir is None:
            await ensure_search_attributes(client)
        await check_archive(client, store)
        if check:
            queues = (*app.queues, queue_of(app.name))
            await check_open_tasks(client, dict.fromkeys(queues), deployment, check)
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        watched, grace = measuring(meters, store), grace_given()
        making = partial(
            make_workers, app, connect, store, grace, deployment_config=deployment, **watched
        )
        host, workers = await stack.enter_async_context(hosted(making, grace))
        names = ", ".join(agent.name for agent in app.served)
        log.info("serving %s on %s", names, ", ".join(workers.queues))
        leave_imports()
        health.serves(client, store, workers)
        if ready is not None:
            ready(workers)
        warnings = [asyncio.create_task(warn_of_unserved(client, workers.queues))]
        if deployment is not None:
            warnings.append(asyncio.create_task(warn_of_no_current(client, deployment)))
        for each in warnings:
            stack.callback(each.cancel)
        await _until(stop, host.ended(workers))
        health.state = STOPPING
        log.info("stopping: running calls get %g seconds", grace.total_seconds())


def grace_given() -> timedelta:
    """Return how long running calls may take after SIGTERM, as `HOLDFAST_GRACE` says.

    Raises:
        InvalidArgumentError: It is another text than a number of seconds.
    """
    said = os.environ.get(GRACE_VARIABLE) or "30"
    with suppress(ValueError, OverflowError):
        if float(said) >= 0:
            return timedelta(seconds=float(said))
    msg = f"{GRACE_VARIABLE} is {said!r}. Set a number of seconds, such as 30."
    raise InvalidArgumentError(msg)


def begun_metrics() -> Meters | None:
    """Export this process' metrics where `HOLDFAST_METRICS` says; to be called before it connects.

    Raises:
        InvalidArgumentError: The variable has another form.
        ServerStartError: The address is taken, or not of this machine.
    """
    if not os.environ.get("HOLDFAST_METRICS"):
        return None
    from holdfast.serving.observed.metrics import begin_metrics

    return begin_metrics()


def measuring(meters: Meters | None, archive: Archive) -> dict[str, Any]:
    """Return options of workers that measure what they do, if this process has metrics."""
    return {} if meters is None else {"interceptors": [meters.watch(archive)]}


def leave_imports() -> None:
    """Take what was made so far, mostly by imports, out of the cyclic garbage collection.

    Python's full collections look at everything that the process has, for tens of milliseconds in
    which nothing else runs. What a worker process has when it begins to serve stays for its life.
    """
    gc.collect()
    gc.freeze()


async def make_workers(
    app: App, connect: Connect, archive: Archive, grace: timedelta, host: Host, **options: Any
) -> Workers:
    """Make the workers of an app for a host, in whose loop this runs."""
    return build_workers(
        await connect(),
        app,
        archive=archive,
        loops=host.tools,
        graceful_shutdown_timeout=grace,
        workflow_task_executor=host.workflows,
        **options,
    )


async def _until(stop: asyncio.Event, ended: Coroutine[Any, Any, None]) -> None:
    """Wait until a worker must be stopped.

    Raises:
        Exception: What ended the worker before.
    """
    ending, stopping = asyncio.create_task(ended), asyncio.create_task(stop.wait())
    await asyncio.wait((ending, stopping), return_when=asyncio.FIRST_COMPLETED)
    for task in (ending, stopping):
        if task.done():
            await task
        task.cancel()
    await asyncio.gather(ending, stopping, return_exceptions=True)


def _cluster(archive: str | None, connection: dict[str, Any]) -> tuple[Connect, Archive]:
    store = Archive(archive or default_archive())
    return partial(connect_client, plugins=[HoldfastPlugin(archive=store)], **connection), store


async def _embedded(stack: AsyncExitStack, data_dir: Path, app: App) -> tuple[Connect, Archive]:
    from holdfast.engine.dev_server.leases import leased_server, serving  # need the extra `local`

    server = await stack.enter_async_context(leased_server(data_dir))
    for queue in app.queues:
        stack.enter_context(serving(data_dir, queue))
    store = Archive(data_dir / "archive")
    return partial(connect_embedded, server, plugins=[HoldfastPlugin(archive=store)]), store


def default_archive() -> str:
    """Return the archive's URL from `HOLDFAST_ARCHIVE`.

    Raises:
        InvalidArgumentError: The variable is not set.
    """
    url = os.environ.get("HOLDFAST_ARCHIVE")
    if not url:
        raise InvalidArgumentError(
            "No archive is named. Large values and closed tasks are kept there; give a directory"
            " that all processes share or a URL such as s3://bucket/path, as archive=... or in"
            " HOLDFAST_ARCHIVE. For the embedded server of this machine, give data_dir=... alone."
        )
    return url


def main(argv: Sequence[str] | None = None) -> None:
    """Serve the agents named by the first argument, or by `HOLDFAST_AGENTS`."""
    from holdfast.serving.observed.logs import begin_logging

    parser = argparse.ArgumentParser(
        description="Serve agents on a Temporal cluster until SIGTERM or Ctrl-C.",
        epilog="The cluster and the archive are named by TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE,"
        " TEMPORAL_API_KEY and HOLDFAST_ARCHIVE; the app by HOLDFAST_APP; the build of the code by"
        " HOLDFAST_DEPLOYMENT, HOLDFAST_BUILD and HOLDFAST_PIN.",
    )
    parser.add_argument(
        "agents",
        metavar="MODULE:AGENTS",
        nargs="?",
        default=os.environ.get("HOLDFAST_AGENTS", ""),
        help="an Agent or a list of them; HOLDFAST_AGENTS by default",
    )
    target: str = parser.parse_args(argv).agents
    try:
        begin_logging(logging.INFO)
        app = load_app(target, os.environ.get("HOLDFAST_APP") or None)
        check = sample_size(asked=False)
        asyncio.run(serve(app, deployment=deployment_config(), check=check))
    except HoldfastError as error:
        parser.exit(
            2 if isinstance(error, InvalidArgumentError) else 1, f"error: {redact(str(error))}\n"
        )
