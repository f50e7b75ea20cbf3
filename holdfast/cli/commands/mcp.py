"""`mcp`: agents as tools of MCP clients."""

from __future__ import annotations

import logging
import os
import secrets
from contextlib import suppress

from holdfast.cli import output
from holdfast.cli.commands.desk import tokens_of
from holdfast.cli.connection import engine_of, load_agents, served, until_stopped
from holdfast.cli.exits import ExitCode, InterruptedByUserError
from holdfast.cli.options import Common
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.errors import ServerStartError
from holdfast.serving.observed.logs import begin_logging
from holdfast.serving.worker_process import begun_metrics
from holdfast.values.checks.ids import check_by
from holdfast.values.code.extras import needing


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
