"""A LlamaIndex query engine at work in a task, as a tool and as a step of its own; all offline.

python examples/query_engine.py "How long does a refund take?"

As a tool, its Response says which nodes it used: the model reads the answer, the nodes are kept
with the result and come back as `response.source_nodes`. As a step, `ctx.memo` records its answer:
a step that is run again after a crash does not ask, or pay, a second time.

The index here looks keywords up and quotes what it finds, so that it needs neither key nor
network. Any other query engine takes its place.
"""

from __future__ import annotations

import asyncio
import json
import sys

from llama_index.core import Settings, SimpleKeywordTableIndex
from llama_index.core.base.response.schema import Response
from llama_index.core.llms import MockLLM
from llama_index.core.schema import TextNode

from holdfast import Agent, AgentRunner, TaskStep, TaskStepOutput, ToolCall, tool
from holdfast.models import assistant, user
from holdfast.models.base import ModelRequest
from holdfast.testing import ScriptedModel
from holdfast.workers import AgentWorker, StepContext

HANDBOOK = {
    "refunds.txt": "A refund is paid within 14 days of the return.",
    "returns.txt": "Goods can be sent back for 30 days, unused and in their box.",
    "opening.txt": "The shop is open from 9 to 18, and closed on Sundays.",
}

Settings.llm = MockLLM()  # never asked: "context_only" quotes, it does not write
nodes = [TextNode(id_=name, text=text) for name, text in HANDBOOK.items()]
query_engine = SimpleKeywordTableIndex(nodes=nodes).as_query_engine(  # pyright: ignore[reportUnknownMemberType]  LlamaIndex's types
    retriever_mode="simple", response_mode="context_only"
)


@tool(effect="read")
def ask_handbook(question: str) -> Response:
    """Look a question up in the shop's handbook."""
    found = query_engine.query(question)
    return found if isinstance(found, Response) else Response(str(found), found.source_nodes)


def clerk_model(request: ModelRequest) -> str | ToolCall:
    """Stand in for a model, offline: look the question up, then say what was found."""
    last = request.messages[-1]
    if last.role == "tool":
        return f"Our handbook says: {last.text}"
    arguments = json.dumps({"question": last.text})
    return ToolCall(id="", name="ask_handbook", arguments=arguments)


class HandbookWorker(AgentWorker):
    """Lets the query engine answer, without a model of its own."""

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        """Ask the engine once, whatever happens to this process afterwards."""
        question = step.input or ""

        async def ask() -> str:
            return str(await asyncio.to_thread(query_engine.query, question))

        answer = await ctx.memo(f"handbook {question}", ask)
        ctx.add(user(question))
        ctx.add(assistant(answer))
        return TaskStepOutput(output=answer, task_step=step, is_last=True)


clerk = Agent(
    name="clerk", model=ScriptedModel(clerk_model, name="offline-clerk"), tools=[ask_handbook]
)
handbook = Agent(name="handbook", model="offline", worker=HandbookWorker())
agents = [clerk, handbook]


async def main(question: str) -> None:
    """Ask both agents."""
    async with AgentRunner.local(*agents, data_dir=None) as runner:
        response = await runner.chat(question)
        print("As a tool:", response)
        for node in response.source_nodes:
            print(f"  from {node.id}: {node.text}")
        print("As a step:", await runner.chat(question, agent="handbook"))


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:]) or "How long does a refund take?"))
