"""Tools that the provider runs: a web search, and an MCP server whose call a person approves.

python examples/hosted_tools.py

The program serves an API that stands in for OpenAI's, so no network is needed.
"""

from __future__ import annotations

import asyncio

from holdfast import Agent, AgentRunner
from holdfast.agents_sdk import HostedMCPTool, WebSearchTool
from holdfast.models.openai.responses import ResponsesModel
from holdfast.testing import FakeOpenAI, ask_approval, hosted, reply


def script(api: FakeOpenAI) -> None:
    """Search, then ask for an approval; with it, report."""
    search = hosted("web_search_call", action={"type": "search", "query": "hotels in Rome"})
    api.add(reply("", items=[search, ask_approval("hotels", "book", {"hotel": "Tiber"})]))
    booked = hosted(
        "mcp_call", server_label="hotels", name="book", arguments='{"hotel": "Tiber"}', output="ok"
    )
    api.add(reply("You stay at Hotel Tiber.", items=[booked]))


async def main() -> None:
    with FakeOpenAI() as api:
        script(api)
        hotels = HostedMCPTool(
            {
                "type": "mcp",
                "server_label": "hotels",
                "server_url": "https://hotels.example/mcp",
                "require_approval": "always",
            }
        )
        model = ResponsesModel("gpt-5-mini", base_url=api.base_url, api_key="sk-none")
        agent = Agent(name="travel", model=model, tools=[WebSearchTool(), hotels])
        async with AgentRunner.local(agent, data_dir=None) as runner:
            task = await runner.create_task("A hotel in Rome, please.")
            await runner.run_task(task)
            [approval] = await runner.pending_approvals(task)
            print(f"waits: {approval.tool} {approval.arguments}")
            await runner.approve(approval, by="ann")
            print(await runner.run_task(task))
            for event in await runner.audit(task):
                if event.kind == "hosted_call":
                    print(f"{event.tool}: {event.arguments}")


if __name__ == "__main__":
    asyncio.run(main())
