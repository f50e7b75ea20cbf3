"""An MCP server for tests: python mcp_server.py DIRECTORY [stdio|sse|streamable-http] [PORT].

In the directory it writes a line for each call that begins (`calls`) and its process ids (`pids`),
and looks for files that change it: `die` ends it in the next call, `gone` and `changed` hold names
of tools that it lists no more, or with other parameters.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.types import CallToolResult, TextContent, Tool, ToolAnnotations
from pydantic import BaseModel

ROOT = Path(sys.argv[1])
READS = ToolAnnotations(read_only_hint=True)
REPEATABLE = ToolAnnotations(idempotent_hint=True)
DESTROYS = ToolAnnotations(destructive_hint=True)


def lines(name: str) -> list[str]:
    """Read the lines of a file that a test may have written."""
    path = ROOT / name
    return path.read_text().split() if path.exists() else []


class Served(MCPServer):
    """The server, whose list of tools the test changes."""

    async def list_tools(self) -> list[Tool]:
        gone, changed = lines("gone"), lines("changed")
        tools = [tool for tool in await super().list_tools() if tool.name not in gone]
        return [self._changed(tool) if tool.name in changed else tool for tool in tools]

    def _changed(self, tool: Tool) -> Tool:
        schema = {"type": "object", "properties": {"what": {"type": "integer"}}}
        return tool.model_copy(update={"input_schema": schema})


mcp = Served("test", instructions="For tests.")


def begin(name: str) -> None:
    """Record a call; end the process in it, if that is wanted."""
    with (ROOT / "calls").open("a") as file:
        file.write(f"{name}\n")
    if (ROOT / "dies").exists():
        os._exit(9)
    if (ROOT / "die").exists():
        (ROOT / "die").unlink()
        os._exit(9)
    while (ROOT / "hold").exists():
        time.sleep(0.01)


@mcp.tool(annotations=READS)
def look(what: str) -> str:
    """Look something up."""
    begin(f"look:{what}")
    return f"saw {what}"


@mcp.tool(annotations=REPEATABLE)
def put(what: str) -> str:
    """Put something in its place, where it may be already."""
    begin(f"put:{what}")
    return f"put {what}"


@mcp.tool()
def book(what: str) -> str:
    """Book something."""
    begin(f"book:{what}")
    return f"booked {what}"


@mcp.tool(annotations=DESTROYS)
def erase(what: str) -> str:
    """Erase something."""
    begin(f"erase:{what}")
    return f"erased {what}"


@mcp.tool(annotations=READS)
async def slow(what: str) -> str:
    """Take very long."""
    begin(f"slow:{what}")
    await asyncio.sleep(600)
    return what


@mcp.tool(annotations=READS)
def fails(what: str) -> CallToolResult:
    """Report an error."""
    begin(f"fails:{what}")
    return CallToolResult(content=[TextContent(text=f"no {what} today")], is_error=True)


@mcp.tool(annotations=READS, structured_output=False)
def picture(what: str) -> list[Any]:
    """Draw something."""
    begin(f"picture:{what}")
    dot = (
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00"
        b"\x1f\x15\xc4\x89\x00\x00\x00\rIDATx\x9cc\xf8\xff\xff?\x00\x05\xfe\x02\xfe\xa75\x81\x84"
        b"\x00\x00\x00\x00IEND\xaeB`\x82"
    )
    return [f"a {what}", Image(data=dot, format="png")]


class Weather(BaseModel):
    """A forecast."""

    city: str
    degrees: int


@mcp.tool(annotations=READS, structured_output=True)
def weather(what: str) -> Weather:
    """Forecast the weather of a city."""
    begin(f"weather:{what}")
    return Weather(city=what, degrees=21)


@mcp.tool(annotations=READS)
def meta_of(what: str, ctx: Context[Any, Any]) -> str:
    """Return the metadata of the call."""
    begin(f"meta_of:{what}")
    meta: Any = ctx.request_context.meta or {}
    return " ".join(sorted(f"{key}={value}" for key, value in dict(meta).items() if "/" not in key))


class Nights(BaseModel):
    """How long."""

    nights: int


def how_long() -> Elicit[Nights]:
    """Ask for the number of nights."""
    return Elicit("How many nights?", Nights)


@mcp.tool()
def stay(what: str, asked: Annotated[Nights, Resolve(how_long)]) -> str:
    """Book a stay, whose length a person is asked for."""
    begin(f"stay:{what}:{asked.nights}")
    return f"{asked.nights} nights in {what}"


@mcp.tool()
async def pushes(what: str, ctx: Context[Any, Any]) -> str:
    """Book a stay, asking in the middle of the call as servers did before 2026."""
    begin(f"pushes:{what}")
    answer = await ctx.elicit("How many nights?", Nights)
    if answer.action != "accept":
        return f"nothing booked in {what}"
    begin(f"pushed:{what}:{answer.data.nights}")
    return f"{answer.data.nights} nights in {what}"


@mcp.prompt()
def review(language: str = "python") -> str:
    """Instruct a reviewer."""
    return f"You review {language}."


@mcp.resource("config://limits")
def limits() -> str:
    """Return the limits."""
    return "at most 7"


@mcp.resource("note://{name}")
def note(name: str) -> str:
    """Return a note."""
    return f"note {name}"


if __name__ == "__main__":
    with (ROOT / "pids").open("a") as pids:
        pids.write(f"{os.getpid()}\n")
    kind = sys.argv[2] if len(sys.argv) > 2 else "stdio"
    if kind == "stdio":
        mcp.run()
    elif kind == "sse":
        mcp.run(transport="sse", port=int(sys.argv[3]), host="127.0.0.1")
    else:
        mcp.run(transport="streamable-http", port=int(sys.argv[3]), host="127.0.0.1")
