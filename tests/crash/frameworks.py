"""The program of a worker process whose agent has parts of four other frameworks as tools."""

from __future__ import annotations

import time
from typing import Any

from holdfast import Agent
from holdfast.adapters import agents_sdk_tool, langchain_tool, pydantic_ai_tool
from tests.crash.programs import AGENT, POLL_SECONDS, Job, held, note


def make_agent(job: Job) -> Agent:
    """Make the agent; each part notes its calls, and stops at a hold of its name."""
    # Here, because every process that collects the tests loads this module.
    from agents import Agent as SdkAgent
    from langchain_core.tools import StructuredTool
    from llama_index.core.tools import QueryEngineTool
    from pydantic_ai import Agent as PydanticAgent
    from pydantic_ai.models.function import FunctionModel

    from examples.adapters import four_frameworks as example

    class Rules(example.Rules):
        def custom_query(self, query_str: str) -> str:
            note(job.home, "start", thing="rules")
            return super().custom_query(query_str)

    async def write(messages: Any, info: Any) -> Any:
        note(job.home, "start", thing="writer")
        await held(job.home, "writer")
        return example.writes(messages, info)

    class Echo(example.Echo):
        async def get_response(self, *args: Any, **kwargs: Any) -> Any:
            note(job.home, "start", thing="translator")
            await held(job.home, "translator")
            return await super().get_response(*args, **kwargs)

    def pay(amount: int) -> str:
        """Pay an amount."""
        note(job.home, "start", thing="pay")
        while (job.home / "hold.pay").exists():
            time.sleep(POLL_SECONDS)
        return f"paid {amount}"

    writer: Any = PydanticAgent(FunctionModel(write), name="writer")
    return Agent(
        name=AGENT,
        model="fake-model",
        tools=[
            QueryEngineTool.from_defaults(Rules(), name="rules", description="The house rules."),
            pydantic_ai_tool(writer, effect="read"),
            langchain_tool(StructuredTool.from_function(pay), needs_approval=True),
            agents_sdk_tool(SdkAgent(name="translator", model=Echo()), effect="read"),
        ],
    )
