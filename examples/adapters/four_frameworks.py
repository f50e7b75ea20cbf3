"""LangChain, Pydantic AI, the Agents SDK and LlamaIndex, in one durable task.

python examples/adapters/four_frameworks.py

A tool, two agents and a query engine are the tools of one durable agent: their calls are recorded,
and what was answered is not asked again. The payment waits for a person. All models are scripts, so
no network is needed.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from agents import Agent as SdkAgent
from agents import ModelResponse, Usage, set_tracing_disabled
from agents.models.interface import Model as SdkModel
from langchain_core.tools import BaseTool
from langchain_core.tools import tool as langchain
from llama_index.core.query_engine import CustomQueryEngine
from llama_index.core.tools import QueryEngineTool
from openai.types.responses import ResponseOutputMessage, ResponseOutputText
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.messages import ModelResponse as PydanticResponse
from pydantic_ai.messages import TextPart
from pydantic_ai.models.function import FunctionModel

from holdfast import Agent, AgentRunner, ToolCall, agents_sdk_tool, langchain_tool, pydantic_ai_tool
from holdfast.models.base import ModelRequest
from holdfast.testing import ScriptedModel

set_tracing_disabled(disabled=True)  # the Agents SDK's, which would go to OpenAI


@langchain
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


class Rules(CustomQueryEngine):
    """Answers from the house rules."""

    def custom_query(self, query_str: str) -> str:
        return f"{query_str}: at most 100"


class Echo(SdkModel):
    """Stands in for a model of the Agents SDK."""

    async def get_response(self, *_args: Any, **_kwargs: Any) -> ModelResponse:
        text = ResponseOutputText(type="output_text", text="translated", annotations=[])
        message = ResponseOutputMessage(
            id="1", type="message", role="assistant", status="completed", content=[text]
        )
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


def writes(_messages: Any, _info: Any) -> PydanticResponse:
    """Stand in for a model of Pydantic AI."""
    return PydanticResponse(parts=[TextPart("a letter")])


def model(request: ModelRequest) -> str | ToolCall:
    """Call each tool in turn, then report."""
    script = [
        ("rules", {"input": "spending"}),
        ("writer", {"input": "a letter, please"}),
        ("pay", {"amount": 42}),
        ("translator", {"input": "the letter"}),
    ]
    results = [message.text for message in request.messages if message.role == "tool"]
    if len(results) == len(script):
        return "; ".join(results)
    name, arguments = script[len(results)]
    return ToolCall(id=f"call_{len(results)}", name=name, arguments=json.dumps(arguments))


payment: BaseTool = pay
clerk = Agent(
    name="clerk",
    model=ScriptedModel(model, name="offline-clerk"),
    tools=[
        QueryEngineTool.from_defaults(Rules(), name="rules", description="The house rules."),
        pydantic_ai_tool(PydanticAgent(FunctionModel(writes), name="writer"), effect="read"),
        langchain_tool(payment, needs_approval=True),
        agents_sdk_tool(SdkAgent(name="translator", model=Echo()), effect="read"),
    ],
)


async def main() -> None:
    async with AgentRunner.local(clerk, data_dir=None) as runner:
        task = await runner.create_task("Pay 42, and write a letter about it.")
        await runner.run_task(task)
        [approval] = await runner.pending_approvals(task)
        print(f"waits: {approval.tool} {approval.arguments}")
        await runner.approve(approval, by="ann")
        print(await runner.run_task(task))


if __name__ == "__main__":
    asyncio.run(main())
