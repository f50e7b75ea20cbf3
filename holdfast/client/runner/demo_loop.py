"""A conversation with an agent in the terminal, to try it out."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.agents.agent import Agent
from holdfast.agents.runs.state import DEFAULT_MAX_TURNS
from holdfast.client.runner.runner import Runner, RunResult
from holdfast.client.runner.streamed_run import RunResultStreaming
from holdfast.reading.streams.reader import (
    AgentUpdatedStreamEvent,
    RawResponsesStreamEvent,
    RunItemStreamEvent,
    StreamEvent,
)
from holdfast.values.text.terminal import printable

ENDS = ("exit", "quit")


def _say(text: str = "", *, end: str = "\n", flush: bool = False) -> None:
    print(text, end=end, flush=flush)  # noqa: T201  to talk is what the loop is for


async def run_demo_loop(
    agent: Agent[Any],
    *,
    stream: bool = True,
    context: Any = None,
    max_turns: int | None = DEFAULT_MAX_TURNS,
) -> None:
    """Talk with an agent in the terminal; `exit`, `quit` or the end of the input ends it.

    Each line is a run of its own, which goes on from the ones before it with the agent that
    answered last.

    Args:
        agent: The agent.
        stream: Whether answers are printed while they come.
        context: As for `Runner.run`.
        max_turns: As for `Runner.run`.

    Raises:
        Exception: Whatever `Runner.run` raises.
    """
    said: list[Any] = []
    while True:
        try:
            line = await asyncio.to_thread(input, " > ")
        except (EOFError, KeyboardInterrupt):
            _say()
            return
        if line.strip().lower() in ENDS:
            return
        if not line.strip():
            continue
        said.append({"role": "user", "content": line})
        result: RunResult | RunResultStreaming
        if stream:
            result = Runner.run_streamed(agent, said, context=context, max_turns=max_turns)
            async for event in result.stream_events():
                _show(event)
            _say()
        else:
            result = await Runner.run(agent, said, context=context, max_turns=max_turns)
            if result.final_output is not None:
                _say(printable(str(result.final_output)))
        agent = result.last_agent
        said = result.to_input_list()


def _show(event: StreamEvent) -> None:
    match event:
        case RawResponsesStreamEvent(data=data) if data.type == "response.output_text.delta":
            _say(printable(data.delta), end="", flush=True)
        case RunItemStreamEvent(item=item) if item.type == "tool_call_item":
            _say("\n[tool called]", flush=True)
        case RunItemStreamEvent(item=item) if item.type == "tool_call_output_item":
            _say(f"\n[tool output: {printable(str(item.output))}]", flush=True)
        case AgentUpdatedStreamEvent(new_agent=new):
            _say(f"\n[Agent updated: {printable(new.name)}]", flush=True)
        case _:
            return
