"""A tool of LangChain in a durable agent: its call waits for a person, and is undone by a function.

python examples/adapters/langchain_tool.py

Options of `@tool` say what LangChain's decorator has no words for: effect, undo, approval. The
model is a script, so no network is needed.
"""

from __future__ import annotations

import asyncio

from langchain_core.tools import BaseTool, StructuredTool

from holdfast import Agent, AgentRunner, Effect, ToolCall, langchain_tool
from holdfast.testing import ScriptedModel

rooms: list[str] = []


def book(city: str) -> str:
    """Book a room."""
    rooms.append(f"a room in {city}")
    return rooms[-1]


def cancel(effect: Effect) -> None:
    """Take a booking back; `effect.result` is what the tool had returned."""
    rooms.remove(effect.result)


booking: BaseTool = StructuredTool.from_function(book)


async def main() -> None:
    call = ToolCall(id="", name="book", arguments='{"city": "Rome"}')
    agent = Agent(
        name="travel",
        model=ScriptedModel([call, "Your room is booked."]),
        tools=[langchain_tool(booking, effect="reversible", undo=cancel, needs_approval=True)],
    )
    async with AgentRunner.local(agent, data_dir=None) as runner:
        task = await runner.create_task("A room in Rome, please.")
        await runner.run_task(task)
        [approval] = await runner.pending_approvals(task)
        print(f"waits: {approval.tool} {approval.arguments}")
        await runner.approve(approval, by="ann")
        print(await runner.run_task(task), rooms)
        await runner.undo_step(task)  # the answer
        await runner.undo_step(task)  # the booking
        print("undone:", rooms)


if __name__ == "__main__":
    asyncio.run(main())
