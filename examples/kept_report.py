"""Tools keep a table and a report with their steps; a second agent reads the table; offline.

pip install ".[local]"
python examples/kept_report.py
"""

from __future__ import annotations

import asyncio
import json

from holdfast import Agent, AgentRunner, ToolCall, ToolContext, tool
from holdfast.agents.tools.artifacts import read_artifact
from holdfast.testing import ScriptedModel

SALES = {"Oslo": 12, "Rome": 7}


@tool(effect="read")
async def gather(ctx: ToolContext) -> str:
    """Gather the sales into a table."""
    rows = "".join(f"{city},{count}\n" for city, count in SALES.items())
    return await ctx.artifacts.aput("sales.csv", f"city,sales\n{rows}")


@tool(effect="read")
def write(ctx: ToolContext, text: str) -> str:
    """Write the report."""
    return ctx.artifacts.put("report.md", f"# Sales\n\n{text}\n")


def call(name: str, **arguments: str) -> ToolCall:
    """Make a call as a model does."""
    return ToolCall(id="", name=name, arguments=json.dumps(arguments))


async def main() -> None:
    """Gather, let another agent look, write twice, take the second report back."""
    # A model would copy the reference that it was told; this script knows it.
    table = "sales.csv@98d3962e7380"
    checker = Agent(
        name="checker",
        model=ScriptedModel([call("read_artifact", reference=table), "Rome has the least."]),
        tools=[read_artifact],
    )
    turns: list[str | ToolCall] = [
        call("gather"),
        call("check", input=f"Read {table}"),
        call("write", text="Oslo sells the most."),
        call("write", text="Rome sells the most."),
        "The report is written.",
    ]
    writer = Agent(
        name="writer",
        model=ScriptedModel(turns),
        tools=[gather, write, checker.as_tool("check", "Check a table.")],
    )
    async with AgentRunner.local(writer, data_dir=None) as runner:
        task = await runner.create_task("Report the sales")
        await runner.run_task(task)
        for kept in await runner.artifacts(task, versions=True):
            print(f"{kept.step_id}: {kept.name}, version {kept.version}, {kept.size} bytes")
        print("Checked:", (await runner.transcript(task))[4].text)
        await runner.rewind(task, "s3", by="ann", reason="Rome does not")
        print((await runner.read_artifact(task, "report.md")).decode().strip())


if __name__ == "__main__":
    asyncio.run(main())
