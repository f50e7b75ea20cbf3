"""The work that is measured: N turns of one model call and one tool call, at no cost of their own.

A model answer holds one tool call with 200 bytes of arguments, or 200 bytes of text at the end. The
tool returns 1 KiB. Both are functions in the worker process, called as ordinary activities.
"""

from __future__ import annotations

import json
import re

from holdfast import Agent, Message, ToolCall, Usage, tool
from holdfast.models import ModelAnswer, ModelRequest

MODEL_BYTES = 200
TOOL_BYTES = 1024
APP = "bench"


def blob(size: int, seed: int) -> str:
    """Return `size` bytes of text that differ from seed to seed."""
    unit = f"{seed:06d} the quick brown fox jumps over the lazy dog "
    return (unit * (size // len(unit) + 1))[:size]


class BenchModel:
    """Calls the tool as often as the request says, then answers; it reads only the request."""

    name = "bench"

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Answer at once."""
        asked = next(m for m in reversed(request.messages) if m.role == "user")
        wanted = int(re.search(r"turns=(\d+)", asked.text)[1])  # type: ignore[index]
        done = sum(message.role == "tool" for message in request.messages)
        usage = Usage(requests=1, input_tokens=10, output_tokens=10)
        if done >= wanted:
            message = Message(role="assistant", content=blob(MODEL_BYTES, 999))
            return ModelAnswer(message=message, usage=usage)
        arguments = json.dumps({"query": blob(MODEL_BYTES - 13, done)})
        call = ToolCall(id=f"call_{done}", name="lookup", arguments=arguments)
        return ModelAnswer(message=Message(role="assistant", calls=(call,)), usage=usage)


@tool(effect="read")
def lookup(query: str) -> str:
    """Look something up.

    Args:
        query: What to look up.
    """
    return blob(TOOL_BYTES, int(query[:6]))


def bench_agent() -> Agent:
    """Make the agent that does the work."""
    return Agent(
        name=APP,
        instructions="Call lookup until you know enough, then answer.",
        model=BenchModel(),
        tools=[lookup],
    )
