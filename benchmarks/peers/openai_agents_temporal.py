"""The OpenAI Agents SDK on Temporal, with Temporal's plugin for it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from agents import Agent, Model, ModelProvider, RunConfig, Runner
    from temporalio.openai_agents import ModelActivityParameters, OpenAIAgentsPlugin
    from temporalio.openai_agents.workflow import activity_as_tool

    from benchmarks.peers.openai_agents_model import FreeModel, http_model
    from benchmarks.peers.temporal_stack import QUEUE, TemporalStack
    from benchmarks.shared import INSTRUCTIONS, Stack, looked_up, main

ACTIVITY = timedelta(seconds=60)


@activity.defn
async def lookup(query: str) -> str:
    """Look something up."""
    return looked_up(query)


async def run_agent(model: str, text: str, turns: int) -> str:
    """Run the agent inside a workflow."""
    tool = activity_as_tool(lookup, start_to_close_timeout=ACTIVITY)
    agent = Agent(name="bench", instructions=INSTRUCTIONS, model=model, tools=[tool])
    config = RunConfig(tracing_disabled=True)
    found = await Runner.run(agent, text, max_turns=turns + 2, run_config=config)
    return str(found.final_output)


@workflow.defn
class FreeTask:
    @workflow.run
    async def run(self, text: str, turns: int) -> str:
        return await run_agent("free", text, turns)


@workflow.defn
class HttpTask:
    @workflow.run
    async def run(self, text: str, turns: int) -> str:
        return await run_agent("http", text, turns)


class Models(ModelProvider):
    """The models by the names that the workflows use."""

    def __init__(self, url: str) -> None:
        self._models = {"free": FreeModel(), "http": http_model(url)}

    def get_model(self, model_name: str | None) -> Model:
        return self._models[model_name or ""]


class OpenAIAgentsTemporal(TemporalStack):
    packages = ("openai-agents", "temporalio-openai-agents", "temporalio", "openai")
    workflows = {"free": FreeTask, "http": HttpTask}  # noqa: RUF012  not changed
    tool_activity = "lookup"

    def __init__(self, client: Client, plugin: OpenAIAgentsPlugin) -> None:
        super().__init__(client)
        self.plugins = [plugin]


@asynccontextmanager
async def opened(given: Namespace) -> AsyncGenerator[Stack]:
    plugin = OpenAIAgentsPlugin(
        model_params=ModelActivityParameters(start_to_close_timeout=ACTIVITY),
        model_provider=Models(given.url or "http://127.0.0.1"),
    )
    client = await Client.connect(given.address, plugins=[plugin])
    flows = list(OpenAIAgentsTemporal.workflows.values())
    async with Worker(client, task_queue=QUEUE, workflows=flows, activities=[lookup]):
        yield OpenAIAgentsTemporal(client, plugin)


if __name__ == "__main__":
    main(__doc__, opened)
