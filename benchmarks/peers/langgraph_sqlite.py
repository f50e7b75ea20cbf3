"""LangGraph with its SQLite checkpointer: a checkpoint after each node."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiosqlite
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from benchmarks.peers.sqlite_file import stored_bytes
from benchmarks.shared import (
    ANSWER,
    API_KEY,
    INSTRUCTIONS,
    MODEL,
    PRAGMAS,
    TOOL,
    Source,
    Stack,
    arguments,
    done_with,
    id_of,
    looked_up,
    main,
    prompt,
    turns_in,
)


@tool
async def lookup(query: str) -> str:
    """Look something up."""
    return looked_up(query)


async def answer(state: MessagesState) -> dict[str, Any]:
    """Answer at once, from the messages alone."""
    messages = state["messages"]
    newest = messages[-1]
    done = done_with(newest.tool_call_id if newest.type == "tool" else None)
    if done == turns_in(str(messages[0].content)):
        return {"messages": [AIMessage(ANSWER)]}
    call = {"name": TOOL, "args": arguments(done), "id": id_of(done)}
    return {"messages": [AIMessage("", tool_calls=[call])]}


def asking(url: str) -> Any:
    """Make the node that calls the model over HTTP."""
    client = ChatOpenAI(model=MODEL, base_url=url, api_key=API_KEY, use_responses_api=True)
    model = client.bind_tools([lookup])

    async def ask(state: MessagesState) -> dict[str, Any]:
        said = await model.ainvoke([SystemMessage(INSTRUCTIONS), *state["messages"]])
        return {"messages": [said]}

    return ask


def after_model(state: MessagesState) -> str:
    """Return the node that follows a model's answer."""
    last = state["messages"][-1]
    return "tools" if isinstance(last, AIMessage) and last.tool_calls else END


def graph_of(node: Any, saver: AsyncSqliteSaver) -> Any:
    """Make the loop of model and tools."""
    graph = StateGraph(MessagesState)
    graph.add_node("model", node)
    graph.add_node("tools", ToolNode([lookup]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", after_model, ["tools", END])
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver)


class LangGraph(Stack):
    packages = ("langgraph", "langgraph-checkpoint-sqlite", "langchain-openai", "openai")

    def __init__(self, saver: AsyncSqliteSaver, url: str, path: Path | None) -> None:
        self._graphs = {"free": graph_of(answer, saver), "http": graph_of(asking(url), saver)}
        self._path = path
        self._before = 0

    async def prepare(self) -> None:
        self._before = stored_bytes(self._path) if self._path else 0

    async def run(self, source: Source, turns: int, task_id: str) -> None:
        found = await self._graphs[source].ainvoke(
            {"messages": [HumanMessage(prompt(turns))]},
            {"configurable": {"thread_id": task_id}, "recursion_limit": 2 * turns + 10},
            durability="sync",
        )
        assert found["messages"][-1].text == ANSWER

    async def recorded(self, task_id: str, *, replays: bool) -> dict[str, Any]:
        del task_id, replays
        return {"bytes": stored_bytes(self._path) - self._before} if self._path else {}


@asynccontextmanager
async def opened(given: Namespace) -> AsyncGenerator[Stack]:
    path = given.directory / "checkpoints.sqlite" if given.directory else None
    async with aiosqlite.connect(path or ":memory:") as connection:
        saver = AsyncSqliteSaver(connection)
        await saver.setup()
        for name, value in PRAGMAS.items():
            await connection.execute(f"PRAGMA {name}={value}")
        yield LangGraph(saver, given.url or "http://127.0.0.1", path)


if __name__ == "__main__":
    main(__doc__, opened)
