"""An MCP server for tests: python mcp_server.py DIRECTORY [stdio|sse|streamable-http] [PORT].

In the directory it writes a line for each call that begins (`calls`) and its process ids (`pids`),
and looks for files that change it: `die` ends it in the next call, `gone` and `changed` hold names
of tools that it lists no more, or with other parameters.
"""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.types import (
    CallToolResult,
    CreateMessageRequest,
    CreateMessageRequestParams,
    InputRequiredResult,
    ListRootsRequest,
    SamplingMessage,
    TextContent,
    Tool,
    ToolAnnotations,
)
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
        schema = {"type": "object", "properties": {"thing": {"type": "integer"}}}
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


@mcp.tool(title="Look at a thing", annotations=READS)
def look(thing: str) -> str:
    """Look something up."""
    begin(f"look:{thing}")
    return f"saw {thing}"


@mcp.tool(annotations=REPEATABLE)
def put(thing: str) -> str:
    """Put something in its place, where it may be already."""
    begin(f"put:{thing}")
    return f"put {thing}"


@mcp.tool()
def book(thing: str) -> str:
    """Book something."""
    begin(f"book:{thing}")
    return f"booked {thing}"


@mcp.tool(annotations=DESTROYS)
def erase(thing: str) -> str:
    """Erase something."""
    begin(f"erase:{thing}")
    return f"erased {thing}"


@mcp.tool(annotations=READS)
async def slow(thing: str) -> str:
    """Take very long."""
    begin(f"slow:{thing}")
    await asyncio.sleep(600)
    return thing


@mcp.tool(annotations=READS)
def fails(thing: str) -> CallToolResult:
    """Report an error."""
    begin(f"fails:{thing}")
    return CallToolResult(content=[TextContent(text=f"no {thing} today")], is_error=True)


@mcp.tool(annotations=READS, structured_output=False)
def picture(thing: str) -> list[Any]:
    """Draw something."""
    begin(f"picture:{thing}")
    dot = (
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00"
        b"\x1f\x15\xc4\x89\x00\x00\x00\rIDATx\x9cc\xf8\xff\xff?\x00\x05\xfe\x02\xfe\xa75\x81\x84"
        b"\x00\x00\x00\x00IEND\xaeB`\x82"
    )
    return [f"a {thing}", Image(data=dot, format="png")]


class Weather(BaseModel):
    """A forecast."""

    city: str
    degrees: int


@mcp.tool(annotations=READS, structured_output=True)
def weather(thing: str) -> Weather:
    """Forecast the weather of a city."""
    begin(f"weather:{thing}")
    return Weather(city=thing, degrees=21)


@mcp.tool(annotations=READS)
def meta_of(thing: str, ctx: Context[Any, Any]) -> str:
    """Return the metadata of the call."""
    begin(f"meta_of:{thing}")
    meta: Any = ctx.request_context.meta or {}
    return " ".join(sorted(f"{key}={value}" for key, value in dict(meta).items() if "/" not in key))


class Nights(BaseModel):
    """How long."""

    nights: int


def how_long() -> Elicit[Nights]:
    """Ask for the number of nights."""
    return Elicit("How many nights?", Nights)


@mcp.tool()
def stay(thing: str, asked: Annotated[Nights, Resolve(how_long)]) -> str:
    """Book a stay, whose length a person is asked for."""
    begin(f"stay:{thing}:{asked.nights}")
    return f"{asked.nights} nights in {thing}"


@mcp.tool()
async def pushes(thing: str, ctx: Context[Any, Any]) -> str:
    """Book a stay, asking in the middle of the call as servers did before 2026."""
    begin(f"pushes:{thing}")
    answer = await ctx.elicit("How many nights?", Nights)
    if answer.action != "accept":
        return f"nothing booked in {thing}"
    begin(f"pushed:{thing}:{answer.data.nights}")
    return f"{answer.data.nights} nights in {thing}"


WORDS = CreateMessageRequestParams(
    messages=[SamplingMessage(role="user", content=TextContent(text="Say it."))], max_tokens=9
)
WISHES: dict[str, CreateMessageRequest | ListRootsRequest] = {
    "words": CreateMessageRequest(params=WORDS),
    "roots": ListRootsRequest(),
}


@mcp.tool()
def wants(thing: str) -> InputRequiredResult:
    """End with a request for a model's words or the client's directories."""
    begin(f"wants:{thing}")
    return InputRequiredResult(input_requests={"one": WISHES[thing]})


@mcp.tool()
async def demands(thing: str, ctx: Context[Any, Any]) -> str:
    """Request the same in the middle of the call, as servers did before 2026."""
    begin(f"demands:{thing}")
    session: Any = ctx.session  # whose methods for it are deprecated
    if thing == "roots":
        return str(await session.list_roots())
    return str(await session.create_message(WORDS.messages, max_tokens=9))


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
    place: dict[str, Any] = {}
    if len(sys.argv) > 3:
        place = {"transport": sys.argv[2], "port": int(sys.argv[3]), "host": "127.0.0.1"}
    mcp.run(**place)
