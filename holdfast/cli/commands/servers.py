"""`dev`, `worker` and `stop`: the processes that serve tasks."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli import output
from holdfast.cli.connection import Engine, engine_of, load_agents, served, until_stopped
from holdfast.cli.exits import ExitCode, InterruptedByUserError
from holdfast.cli.options import Common
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.errors import InvalidArgumentError, ServerStartError
from holdfast.serving.deployments import deployment_config, sample_size
from holdfast.serving.observed.health import health_served
from holdfast.serving.observed.logs import begin_logging
from holdfast.serving.unserved import warn_of_unserved
from holdfast.serving.worker_host import Workers
from holdfast.serving.worker_process import App, begun_metrics, measuring, serve
from holdfast.values.base import Json
from holdfast.values.checks.ids import DEFAULT_APP, check_by
from holdfast.values.code.extras import install_command, needing

if TYPE_CHECKING:
    from holdfast.desk.identity.tokens import Tokens
    from holdfast.serving.observed.metrics import Meters


async def dev_command(
    common: Common, target: str, *, app: str | None, ui: bool, port: int | None
) -> ExitCode:
    """Run server and worker until Ctrl-C."""
    begin_logging(logging.INFO)
    here, meters = load_agents(target, app), begun_metrics()
    async with (
        engine_of(common, new=True, ui=ui) as engine,
        served(engine, here, meters) as workers,
        desk_beside(common, engine.runner(here.agents[0].name, app=app), port) as desk,
    ):
        facts = {"desk": desk, **_facts(here, workers)}
        facts |= {
            "address": engine.address,
            "ui": engine.server.ui_url if engine.server else None,
            "archive": engine.archive.url,
        }

        async def be_up() -> None:
            if common.json:
                output.emit(facts)
            _print(facts, common, here)
            await warn_of_unserved(engine.client, workers.queues)
            await counting(engine, meters)

        with suppress(InterruptedByUserError):  # may come the moment that we report to be up
            await until_stopped(be_up())
        output.say("Stopping: running calls get 10 seconds. Tasks stay and go on later.")
    return ExitCode.OK


async def counting(engine: Engine, meters: Meters | None) -> None:
    """Go on without end; count all tasks meanwhile, if this process has metrics."""
    if meters is None:
        await asyncio.Event().wait()
        return
    from holdfast.serving.observed.gauges import Gauges

    await Gauges(engine.client, meters).run()


async def metrics_command(common: Common) -> ExitCode:
    """Count all tasks for Prometheus until Ctrl-C.

    Raises:
        InvalidArgumentError: No address is named.
    """
    begin_logging(logging.INFO)
    meters = begun_metrics()
    if meters is None:
        msg = "Where the metrics go is not named. Set HOLDFAST_METRICS=127.0.0.1:9464, or otlp=URL."
        raise InvalidArgumentError(msg)
    async with health_served() as health, engine_of(common) as engine:
        health.serves(engine.client, engine.archive)
        output.say(f"Counting the tasks at {engine.address}. Ctrl-C stops it.")
        with suppress(InterruptedByUserError):
            await until_stopped(counting(engine, meters))
    return ExitCode.OK


@asynccontextmanager
async def desk_beside(common: Common, runner: AgentRunner, port: int | None) -> AsyncGenerator[str]:
    """Serve the desk where its extra is installed; yield its URL, or how to get one."""
    if importlib.util.find_spec("nicegui") is None or common.embedded is None:
        yield "" if common.embedded is None else f"{install_command('desk')} for pages"
        return
    from holdfast.desk.server import PORT, desk_served

    tokens = token_file(common, None)
    wanted, any_port = (PORT, True) if port is None else (port, False)
    async with desk_served(runner, tokens=tokens, port=wanted, any_port=any_port) as url:
        yield url


async def worker_command(
    common: Common,
    target: str,
    *,
    app: str | None,
    deployment: str | None,
    build: str | None,
    pin: bool,
    check: bool,
) -> ExitCode:
    """Run a worker process until SIGTERM."""
    begin_logging(logging.INFO)
    made = deployment_config(deployment, build, pin=pin)
    sample = sample_size(asked=check)
    here = load_agents(target, app)

    def ready(workers: Workers) -> None:
        facts = _facts(here, workers)
        facts |= {"address": workers.client.service_client.config.target_host}
        if made is not None:
            facts |= {"version": made.version.to_canonical_string()}
        if common.json:
            output.emit(facts)
        output.say(f"Serving {', '.join(facts['agents'])} at {facts['address']}.")

    serving = partial(serve, here, ready=ready, deployment=made, check=sample)
    directory = common.embedded
    if directory is not None:
        await serving(data_dir=directory)
    else:
        await serving(archive=common.archive, address=common.address, namespace=common.namespace)
    return ExitCode.OK


async def stop_command(common: Common) -> ExitCode:
    """Stop the embedded server of the data directory."""
    from holdfast.engine.dev_server.server import stop_server

    directory = common.embedded
    if directory is None:
        raise InvalidArgumentError(_NO_CLUSTER)
    stopped = await stop_server(directory)
    if common.json:
        output.emit({"stopped": stopped, "data_dir": str(directory)})
    where = f"in {str(directory)!r}"
    output.say(f"The server {where} is stopped." if stopped else f"No server is running {where}.")
    return ExitCode.OK


_NO_CLUSTER = (
    "`holdfast stop` is about the embedded server of a data directory; a cluster is named"
    " (--address or TEMPORAL_ADDRESS). Add --data-dir to mean the directory."
)


def _facts(app: App, workers: Workers) -> dict[str, Json]:
    agents = [agent.name for agent in app.served]
    return {"app": app.name, "agents": agents, "queues": [*workers.queues]}


def _print(facts: dict[str, Json], common: Common, app: App) -> None:
    output.say("Holdfast is up. Ctrl-C stops it.", style="bold")
    shown = {**facts, **{name: ", ".join(facts[name]) for name in ("agents", "queues")}}
    for name, text in shown.items():
        if text:
            output.say(f"  {name:<8} {text}")
    where = common.arguments()
    first = app.agents[0].name
    as_app = "" if app.name == DEFAULT_APP else f" --app {app.name}"
    output.say("In another terminal:")
    output.say(f'  holdfast run {first} "your question"{as_app}{where}')
    output.say(f"  holdfast tasks{where}")
    output.say(f"  holdfast show TASK{where}")


TOKENS = "desk-tokens.json"
FILE_VARIABLE = "HOLDFAST_DESK_TOKENS"
DAY_SECONDS = 86_400


async def desk_command(
    common: Common,
    *,
    host: str,
    port: int,
    app: str | None,
    tokens: Path | None,
    oidc: Path | None = None,
) -> ExitCode:
    """Serve the desk until Ctrl-C."""
    with needing("desk", "`holdfast desk`", error=ServerStartError):
        from holdfast.desk.server import desk_served
    provider = None
    if oidc is not None:
        with needing("oidc", "`holdfast desk --oidc`", error=ServerStartError):
            from holdfast.desk.identity.oidc import OIDC
        provider = OIDC.read(oidc)
    begin_logging(logging.WARNING)
    meters = begun_metrics()
    async with health_served() as health, engine_of(common, new=True) as engine:
        serving = desk_served(
            engine.runner(app=app),
            tokens=token_file(common, tokens),
            host=host,
            port=port,
            oidc=provider,
        )
        async with serving as url:
            measuring(meters, engine.archive)
            health.serves(engine.client, engine.archive)
            if common.json:
                output.emit({"desk": url, "address": engine.address})
            output.say(f"The desk is at {url}", style="bold")
            output.say("Ctrl-C stops it; the tasks go on.")
            with suppress(InterruptedByUserError):
                await until_stopped(_forever())
    return ExitCode.OK


async def token_make_command(
    common: Common,
    name: str,
    *,
    role: list[str] | None,
    days: float | None,
    tenant: str,
    tokens: Path | None,
) -> ExitCode:
    """Make a token and print it: it is not kept, and cannot be shown again."""
    file = token_file(common, tokens)
    expires = 0.0 if days is None else time.time() + days * DAY_SECONDS
    roles = role or ["viewer"]
    token = _tokens(file).make(name, roles, expires=expires, tenant=tenant)
    if common.json:
        output.emit({"name": name, "roles": sorted(roles), "token": token})
    else:
        output.answer(token)
    output.say(f"It is kept as a digest in {str(file)!r} and cannot be shown again.")
    return ExitCode.OK


async def token_list_command(common: Common, tokens: Path | None) -> ExitCode:
    """List the tokens, without their secrets."""
    found = _tokens(token_file(common, tokens)).list()
    if common.json:
        output.emit(
            [
                {"name": each.name, "roles": [*each.roles], "expires": each.expires}
                | ({"tenant": each.tenant} if each.tenant else {})
                for each in found
            ]
        )
        return ExitCode.OK
    for each in found:
        ends = time.strftime("%Y-%m-%d", time.gmtime(each.expires)) if each.expires else "never"
        whose = f"  tenant: {each.tenant}" if each.tenant else ""
        output.answer(f"{each.name}  {', '.join(each.roles)}  ends: {ends}{whose}")
    if not found:
        output.say("There are no tokens: the desk serves only the user of its own machine.")
    return ExitCode.OK


async def token_revoke_command(common: Common, name: str, tokens: Path | None) -> ExitCode:
    """Revoke all tokens of a name, at once."""
    count = _tokens(token_file(common, tokens)).revoke(name)
    if common.json:
        output.emit({"name": name, "revoked": count})
    output.say(f"{count} {'token' if count == 1 else 'tokens'} of {name} revoked.")
    return ExitCode.OK


def token_file(common: Common, given: Path | None) -> Path:
    """Return the file of the tokens.

    Raises:
        InvalidArgumentError: A cluster is named, and no file.
    """
    named = given or (Path(found) if (found := os.environ.get(FILE_VARIABLE)) else None)
    if named is not None:
        return named
    directory = common.embedded
    if directory is None:
        raise InvalidArgumentError(
            "A cluster has no directory for the desk's tokens: name their file with --tokens or"
            " HOLDFAST_DESK_TOKENS."
        )
    return directory / TOKENS


def tokens_of(common: Common) -> Tokens | None:
    """Return the tokens of the desk next to which a command runs; None where no file is named."""
    if common.embedded is None and not os.environ.get(FILE_VARIABLE):
        return None
    return _tokens(token_file(common, None))


def _tokens(file: Path) -> Tokens:
    with needing("desk", "`holdfast desk`", error=ServerStartError):
        from holdfast.desk.identity import tokens
    return tokens.Tokens(file)


async def _forever() -> None:
    await asyncio.Event().wait()


async def mcp_command(
    common: Common, target: str, *, app: str | None, http: bool, host: str, port: int, by: str
) -> ExitCode:
    """Serve agents to MCP clients until the client goes away, or Ctrl-C."""
    with needing("mcp", "`holdfast mcp`", error=ServerStartError):
        from holdfast.cli.mcp_serving.agent_tools import AgentTools
        from holdfast.cli.mcp_serving.transports import PATH, listen, serve_http, serve_stdio
    begin_logging(logging.WARNING)
    here, meters = load_agents(target, app), begun_metrics()
    token = os.environ.get("HOLDFAST_MCP_TOKEN", "")
    bound = listen(host, port, token, by=check_by(by)) if http else None
    people = tokens_of(common) if http else None
    async with engine_of(common, new=True) as engine, served(engine, here, meters):

        def runner(agent: str) -> AgentRunner:
            return engine.runner(agent, app=here.name)

        tools = AgentTools(here.agents, runner, by=check_by(by), where=common.arguments()).server
        with suppress(InterruptedByUserError):
            if bound is None:
                await until_stopped(serve_stdio(tools))
                return ExitCode.OK
            url = f"http://{host}:{bound.getsockname()[1]}{PATH}"
            made = "" if token else secrets.token_urlsafe(32)
            token = token or made
            if common.json:
                facts = {"mcp": url, "address": engine.address}
                output.emit({**facts, "token": made} if made else facts)
            output.say(f"The agents are at {url}. Ctrl-C stops; tasks stay.", style="bold")
            if made:
                output.say(f"Clients send `Authorization: Bearer {made}`, until it ends.")
                output.say("HOLDFAST_MCP_TOKEN names a token that lasts.")
            await until_stopped(serve_http(tools, bound, host, token, people))
    return ExitCode.OK
