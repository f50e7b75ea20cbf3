"""The program of a worker process whose agent has an MCP server that the provider calls."""

from __future__ import annotations

from typing import Any

from holdfast import Agent, HostedMCPTool
from tests.crash import programs
from tests.crash.programs import AGENT, Job

SERVER: Any = {"type": "mcp", "server_label": "crm", "server_url": "https://crm.example/mcp"}


def make_agent(job: Job) -> Agent:
    """Make the agent."""
    del job
    return Agent(name=AGENT, model="fake-model", tools=[HostedMCPTool(SERVER)])


def work(job: Job) -> None:
    """Serve that agent until the end of this process, which has nothing else to do."""
    programs.make_agent = make_agent
    programs.work(job)
