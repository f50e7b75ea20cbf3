"""Temporal without a framework: a workflow whose turns are one activity each.

Only for the scenarios with a model over HTTP. The activity calls the model and the tool that the
answer asks for. Nothing else is done: no answer is stored before its tool runs, nobody can approve
a call, undo or read a step. What this takes is the least for any stack on Temporal.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from openai import AsyncOpenAI
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from benchmarks.shared import (
    ANSWER,
    API_KEY,
    INSTRUCTIONS,
    MODEL,
    Source,
    Stack,
    looked_up,
    main,
    prompt,
)

QUEUE = "bench"


class Turns:
    """The activity."""

    def __init__(self, client: AsyncOpenAI) -> None:
        self._client = client

    @activity.defn
    async def turn(self, items: list[Any]) -> list[Any]:
        """Ask the model, and look up what it asks for; return the new items."""
        found = await self._client.responses.create(
            model=MODEL, instructions=INSTRUCTIONS, input=items
        )
        made = list[Any]()
        for item in found.output:
            made.append(item.model_dump(mode="json", exclude_none=True))
            if item.type == "function_call":
                result = looked_up(**json.loads(item.arguments))
                made.append(
                    {"type": "function_call_output", "call_id": item.call_id, "output": result}
                )
        return made


@workflow.defn(sandboxed=False)
class Task:
    """One task."""

    @workflow.run
    async def run(self, text: str) -> str:
        items = list[Any]([{"role": "user", "content": text}])
        while "content" not in items[-1] or items[-1]["role"] == "user":
            items += await workflow.execute_activity_method(
                Turns.turn, items, start_to_close_timeout=timedelta(seconds=60)
            )
        return str(items[-1]["content"][0]["text"])


class TemporalAlone(Stack):
    packages = ("temporalio", "openai")

    def __init__(self, client: Client) -> None:
        self._client = client

    async def run(self, source: Source, turns: int, task_id: str) -> None:
        assert source == "http"
        found = await self._client.execute_workflow(
            Task.run, prompt(turns), id=task_id, task_queue=QUEUE
        )
        assert found == ANSWER


@asynccontextmanager
async def opened(given: Namespace) -> AsyncGenerator[Stack]:
    client = await Client.connect(given.address)
    turns = Turns(AsyncOpenAI(base_url=given.url, api_key=API_KEY, max_retries=0))
    async with Worker(
        client,
        task_queue=QUEUE,
        workflows=[Task],
        activities=[turns.turn],
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_concurrent_activities=1000,
    ):
        yield TemporalAlone(client)


if __name__ == "__main__":
    main(__doc__, opened)
