"""The work of benchmarks/shared.py, as an agent of Holdfast's."""

from __future__ import annotations

import json

from benchmarks.shared import (
    ANSWER,
    INSTRUCTIONS,
    TOOL,
    arguments,
    done_with,
    id_of,
    looked_up,
    turns_in,
)
from holdfast import Agent, Message, ToolCall, Usage, tool
from holdfast.models import Model, ModelAnswer, ModelRequest


class BenchModel:
    """Calls the tool as often as the request says, then answers; it reads only the request."""

    name = "bench"

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Answer at once."""
        asked, last = request.messages[0], request.messages[-1]
        done = done_with(last.call_id if last.role == "tool" else None)
        usage = Usage(requests=1, input_tokens=10, output_tokens=10)
        if done >= turns_in(asked.text):
            return ModelAnswer(message=Message(role="assistant", content=ANSWER), usage=usage)
        call = ToolCall(id=id_of(done), name=TOOL, arguments=json.dumps(arguments(done)))
        return ModelAnswer(message=Message(role="assistant", calls=(call,)), usage=usage)


@tool(effect="read")
def lookup(query: str) -> str:
    """Look something up.

    Args:
        query: What to look up.
    """
    return looked_up(query)


def bench_agent(name: str, model: Model) -> Agent:
    """Make the agent that does the work."""
    return Agent(name=name, instructions=INSTRUCTIONS, model=model, tools=[lookup])
