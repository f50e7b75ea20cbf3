"""An agent with the tools of an MCP server: one only reads, one asks a person a question.

python examples/mcp_servers.py

The server is a process of its own, which the worker starts. The question waits like an approval;
the call is completed with the answer.
"""

from __future__ import annotations

import asyncio
import sys

from holdfast import Agent, AgentRunner, ToolCall
from holdfast.mcp import MCPServerStdio
from holdfast.testing import ScriptedModel

SERVER = '''
from typing import Annotated
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.types import ToolAnnotations
from pydantic import BaseModel

mcp = MCPServer("hotel")

class Nights(BaseModel):
    nights: int

def how_long() -> Elicit[Nights]:
    return Elicit("How many nights?", Nights)

@mcp.tool(annotations=ToolAnnotations(read_only_hint=True))
def rooms(city: str) -> str:
    """List free rooms."""
    return f"Two free rooms in {city}."

@mcp.tool()
def book(city: str, stay: Annotated[Nights, Resolve(how_long)]) -> str:
    """Book a room."""
    return f"Booked {stay.nights} nights in {city}."

mcp.run()
'''


async def main() -> None:
    hotel = MCPServerStdio(
        {"command": sys.executable, "args": ["-c", SERVER]},
        name="hotel",
        client_session_timeout_seconds=30,
    )
    rome = '{"city": "Rome"}'
    calls = [ToolCall(id="", name=name, arguments=rome) for name in ("rooms", "book")]
    model = ScriptedModel([*calls, "Your room is booked."])
    agent = Agent(name="travel", model=model, mcp_servers=[hotel])
    async with AgentRunner.local(agent, data_dir=".holdfast") as runner:
        task = await runner.create_task("A room in Rome, please.")
        await runner.run_task(task)
        [question] = await runner.pending_approvals(task)
        print(question.text)
        await runner.respond(question, by="ann", result={"nights": 3})
        print(await runner.run_task(task))
        for event in await runner.audit(task):
            if event.kind == "tool_call":
                print(f"{event.tool}: {event.effect}: {event.result}")


if __name__ == "__main__":
    asyncio.run(main())
