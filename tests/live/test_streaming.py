"""Streams: what a run tells while it goes on, in order, once, and again from any offset."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from holdfast import Agent, AgentRunner, Runner, tool
from holdfast.client.streamed_run import RunResultStreaming
from holdfast.stream_events import (
    AgentUpdatedStreamEvent,
    RawResponsesStreamEvent,
    RunItemStreamEvent,
    StreamEvent,
)
from holdfast.testing import FakeOpenAI
from tests.support.rig import MakeAgent, Rig


@tool(effect="read")
def look(where: str = "here") -> str:
    """Look somewhere."""
    return f"seen {where}"


async def read(events: AsyncIterator[StreamEvent]) -> list[StreamEvent]:
    """Read a stream to its end."""
    async with asyncio.timeout(60):
        return [event async for event in events]


def words(events: Iterable[StreamEvent]) -> list[str]:
    """Say in a word what each event is; deltas that follow each other are one."""
    found: list[str] = []
    for event in events:
        match event:
            case AgentUpdatedStreamEvent():
                word = f"agent {event.new_agent.name}"
            case RawResponsesStreamEvent():
                word = event.data.type.removeprefix("response.")
            case RunItemStreamEvent():
                word = event.name
        if not (word.endswith(".delta") and found and found[-1] == word):
            found.append(word)
    return found


def said(events: Iterable[StreamEvent]) -> str:
    """Put the text together that was told; an answer that is made anew begins anew."""
    text = ""
    for event in events:
        if isinstance(event, RawResponsesStreamEvent):
            if event.data.type == "response.created":
                text = ""
            elif event.data.type == "response.output_text.delta":
                text += event.data.delta
    return text


TEXT = [
    "created",
    "output_item.added",
    "content_part.added",
    "output_text.delta",
    "output_text.done",
    "content_part.done",
    "output_item.done",
]
CALL = [
    "output_item.added",
    "function_call_arguments.delta",
    "function_call_arguments.done",
    "output_item.done",
]
REASONING = [
    "created",
    "output_item.added",
    "reasoning_summary_part.added",
    "reasoning_summary_text.delta",
    "reasoning_summary_text.done",
    "reasoning_summary_part.done",
    "output_item.done",
]


class Streaming:
    """Runs agents on the test's own worker."""

    def __init__(self, rig: Rig, make_agent: MakeAgent) -> None:
        self.rig = rig
        self.make_agent = make_agent
        self.runner: AgentRunner = rig.runner()
        self.agent: Agent | None = None

    async def __call__(self, *tools: Any, agent: Agent | None = None, **options: Any) -> Any:
        self.agent = agent or self.make_agent(*tools)
        await self.rig.serve(self.agent)
        return Runner.run_streamed(self.agent, "Q", runner=self.runner, **options)

    async def plain(self, *tools: Any) -> Any:
        agent = self.make_agent(*tools)
        await self.rig.serve(agent)
        return await Runner.run(agent, "Q", runner=self.runner)


@pytest.fixture
def streaming(rig: Rig, make_agent: MakeAgent) -> Streaming:
    return Streaming(rig, make_agent)


async def test_a_text_turn_in_order(streaming: Streaming, model: FakeOpenAI) -> None:
    model.reply("The answer has some words.")
    run: RunResultStreaming = await streaming()
    assert not run.is_complete
    events = await read(run.stream_events())
    assert words(events) == ["agent agent", *TEXT, "completed", "message_output_created"]
    assert said(events) == run.final_output == "The answer has some words."
    offsets = [event.offset for event in events]
    assert offsets == sorted(set(offsets))
    assert run.is_complete
    assert run.current_turn == 1


async def test_a_tool_turn_in_order(streaming: Streaming, model: FakeOpenAI) -> None:
    model.calls([("look", {"where": "a"}), ("look", {"where": "b"})], reasoning="let me look")
    model.reply("done")
    run = await streaming(look)
    events = await read(run.stream_events())
    assert words(events) == [
        "agent agent",
        *REASONING,
        *CALL,
        *CALL,
        "completed",
        "reasoning_item_created",
        "tool_called",
        "tool_called",
        "tool_output",
        "tool_output",
        *TEXT,
        "completed",
        "message_output_created",
    ]
    items = [event.item for event in events if isinstance(event, RunItemStreamEvent)]
    assert [item.raw_item for item in items] == [item.raw_item for item in run.new_items]
    outputs = [item.raw_item["output"] for item in items if item.type == "tool_call_output_item"]
    assert outputs == ["seen a", "seen b"]
    assert run.current_turn == 2
