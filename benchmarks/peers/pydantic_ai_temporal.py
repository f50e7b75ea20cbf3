"""Pydantic AI on Temporal, with the capability for it that Pydantic AI brings along."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from pydantic_ai import Agent
    from pydantic_ai.durable_exec.temporal import PydanticAIPlugin, TemporalDurability
    from pydantic_ai.messages import (
        ModelMessage,
        ModelResponse,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
    )
    from pydantic_ai.models.function import AgentInfo, FunctionModel
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.toolsets import FunctionToolset
    from pydantic_ai.usage import UsageLimits

    from benchmarks.peers.temporal_stack import QUEUE, TemporalStack
    from benchmarks.shared import (
        ANSWER,
        API_KEY,
        INSTRUCTIONS,
        MODEL,
        TOOL,
        Stack,
        arguments,
        done_with,
        id_of,
        looked_up,
        main,
        turns_in,
    )

URL = "BENCH_URL"
"""The agents are made when this module is imported, so the address is in the environment."""


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Answer at once, from the messages alone."""
    del info
    newest = messages[-1].parts[-1]
    done = done_with(newest.tool_call_id if isinstance(newest, ToolReturnPart) else None)
    if done < turns_in(str(messages[0].parts[-1].content)):
        return ModelResponse(parts=[ToolCallPart(TOOL, arguments(done), id_of(done))])
    return ModelResponse(parts=[TextPart(ANSWER)])


async def lookup(query: str) -> str:
    """Look something up."""
    return looked_up(query)


def agent_of(name: str, model: FunctionModel | OpenAIResponsesModel) -> Agent[None, str]:
    """Make an agent whose model calls and tool calls are activities."""
    return Agent(
        model,
        name=name,
        instructions=INSTRUCTIONS,
        toolsets=[FunctionToolset([lookup], id="tools")],
        capabilities=[TemporalDurability()],
    )


PROVIDER = OpenAIProvider(base_url=os.environ.get(URL, "http://127.0.0.1"), api_key=API_KEY)
FREE = agent_of("free", FunctionModel(answer))
HTTP = agent_of("http", OpenAIResponsesModel(MODEL, provider=PROVIDER))
UNLIMITED = UsageLimits(request_limit=None)


@workflow.defn
class FreeTask:
    __pydantic_ai_agents__ = [FREE]  # noqa: RUF012  read by the plugin

    @workflow.run
    async def run(self, text: str, turns: int) -> str:
        del turns
        return (await FREE.run(text, usage_limits=UNLIMITED)).output


@workflow.defn
class HttpTask:
    __pydantic_ai_agents__ = [HTTP]  # noqa: RUF012  read by the plugin

    @workflow.run
    async def run(self, text: str, turns: int) -> str:
        del turns
        return (await HTTP.run(text, usage_limits=UNLIMITED)).output


class PydanticAITemporal(TemporalStack):
    packages = ("pydantic-ai-slim", "temporalio", "openai")
    workflows = {"free": FreeTask, "http": HttpTask}  # noqa: RUF012  not changed
    tool_activity = "call_tool"

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.plugins = [PydanticAIPlugin()]


@asynccontextmanager
async def opened(given: Namespace) -> AsyncGenerator[Stack]:
    client = await Client.connect(given.address, plugins=[PydanticAIPlugin()])
    flows = list(PydanticAITemporal.workflows.values())
    async with Worker(client, task_queue=QUEUE, workflows=flows):
        yield PydanticAITemporal(client)


if __name__ == "__main__":
    main(__doc__, opened)
