"""DBOS with SQLite: the loop is written by hand, its model calls and tool calls are steps."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dbos import DBOS, SetWorkflowID
from openai import AsyncOpenAI
from sqlalchemy import event
from sqlalchemy.engine import Engine

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

Item = dict[str, Any]
SCHEMA = {
    "type": "function",
    "name": TOOL,
    "description": "Look something up.",
    "parameters": {
        "type": "object",
        "properties": {"query": {"type": "string"}},
        "required": ["query"],
        "additionalProperties": False,
    },
    "strict": True,
}


@DBOS.step()
async def free_model(items: list[Item]) -> Item:
    """Answer at once, from the items alone."""
    newest = items[-1]
    done = done_with(newest["call_id"] if newest.get("type") == "function_call_output" else None)
    if done < turns_in(items[0]["content"]):
        call = {"id": f"fc_{done}", "call_id": id_of(done), "name": TOOL}
        return {"type": "function_call", **call, "arguments": json.dumps(arguments(done))}
    return {"type": "message", "role": "assistant", "content": [{"text": ANSWER}]}


class HttpModel:
    """The client, made by the process that runs the steps."""

    client: AsyncOpenAI


@DBOS.step()
async def http_model(items: list[Any]) -> Item:
    """Call the model over HTTP."""
    response = await HttpModel.client.responses.create(
        model=MODEL, instructions=INSTRUCTIONS, input=items, tools=[SCHEMA]
    )
    return response.output[0].model_dump(mode="json", exclude_none=True)


@DBOS.step()
async def lookup(query: str) -> str:
    """Look something up."""
    return looked_up(query)


@DBOS.workflow()
async def agent_task(source: Source, text: str) -> str:
    """Call model and tool in turn until the model answers with a text."""
    model = free_model if source == "free" else http_model
    items: list[Item] = [{"role": "user", "content": text}]
    while True:
        item = await model(items)
        if item["type"] == "message":
            return item["content"][0]["text"]
        output = await lookup(json.loads(item["arguments"])["query"])
        result = {"type": "function_call_output", "call_id": item["call_id"], "output": output}
        items += [item, result]


class DBOSSqlite(Stack):
    packages = ("dbos", "openai")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before = 0

    async def prepare(self) -> None:
        self._before = stored_bytes(self._path)

    async def run(self, source: Source, turns: int, task_id: str) -> None:
        with SetWorkflowID(task_id):
            assert await agent_task(source, prompt(turns)) == ANSWER

    async def recorded(self, task_id: str, *, replays: bool) -> dict[str, Any]:
        del task_id, replays
        return {"bytes": stored_bytes(self._path) - self._before}


def set_pragmas(connection: Any, record: Any) -> None:
    """Give a new connection the settings that all stacks have."""
    del record
    for name, value in PRAGMAS.items():
        connection.execute(f"PRAGMA {name}={value}")


@asynccontextmanager
async def opened(given: Namespace) -> AsyncGenerator[Stack]:
    HttpModel.client = AsyncOpenAI(base_url=given.url or "http://127.0.0.1", api_key=API_KEY)
    path = given.directory / "dbos.sqlite"
    event.listen(Engine, "connect", set_pragmas)
    DBOS(
        config={
            "name": "bench",
            "system_database_url": f"sqlite:///{path}",
            "log_level": "ERROR",
            "run_admin_server": False,
        }
    )
    DBOS.launch()
    yield DBOSSqlite(path)
    DBOS.destroy()


if __name__ == "__main__":
    main(__doc__, opened)
