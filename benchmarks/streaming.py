"""Measure streams: how long a token takes from the model to a reader, and what streams cost.

    python -m benchmarks.streaming --tokens 200 --token-ms 20

What is measured, and how:
* The work: a model in the worker process tells `--tokens` tokens, one each `--token-ms`. Each token
  is the time at which it was told, so a reader knows its age when it arrives.
* token_ms: the age, median and 95th percentile, for a reader in the worker's process and for one in
  a process of its own, which is connected and reads heartbeats through the Temporal server.
  Several tokens may arrive together; each counts.
* bytes: size of the history of a task of `--turns` turns with answers of 200 bytes, once with and
  once without somebody who reads the stream.

Prints one JSON line for each reader, then one for the bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from holdfast import Agent, AgentRunner, Message, ToolCall, Usage, tool
from holdfast.models import ModelAnswer, ModelRequest
from holdfast.models.base import Delta, Tell
from holdfast.reading.streams.reader import RawResponsesStreamEvent, StreamEvent

ANSWER_BYTES = 200


class Clock:
    """Answers with tokens that are the times at which they are told."""

    name = "clock"

    def __init__(self, tokens: int, seconds: float) -> None:
        self.tokens = tokens
        self.seconds = seconds

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Answer in one piece."""
        return await self.stream(request, lambda _: None)

    async def stream(self, _: ModelRequest, tell: Tell) -> ModelAnswer:
        """Tell the time again and again."""
        said: list[str] = []
        for _number in range(self.tokens):
            await asyncio.sleep(self.seconds)
            said.append(f"{time.time():.6f} ")
            tell(Delta("text", said[-1]))
        return answer(Message(role="assistant", content="".join(said)))


class Talker:
    """Calls a tool in each turn, with some words beside it."""

    name = "talker"

    def __init__(self, turns: int) -> None:
        self.turns = turns

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Answer in one piece."""
        done = sum(message.role == "tool" for message in request.messages)
        text = "words " * (ANSWER_BYTES // 6)
        if done >= self.turns:
            return answer(Message(role="assistant", content=text))
        call = ToolCall(id=f"call_{done}", name="look", arguments='{"where": "here"}')
        return answer(Message(role="assistant", content=text, calls=(call,)))

    async def stream(self, request: ModelRequest, tell: Tell) -> ModelAnswer:
        """Answer word by word."""
        said = await self.respond(request)
        for word in said.text.split(" "):
            tell(Delta("text", f"{word} " if word else ""))
            await asyncio.sleep(0)
        return said


def answer(message: Message) -> ModelAnswer:
    """Make an answer that costs one request."""
    return ModelAnswer(message=message, usage=Usage(requests=1))


@tool(effect="read")
def look(where: str) -> str:
    """Look somewhere."""
    return f"seen {where}"


async def ages(events: AsyncIterator[StreamEvent]) -> list[float]:
    """Return how old each token was when it arrived, in seconds."""
    found: list[float] = []
    rest = ""
    async for event in events:
        if isinstance(event, RawResponsesStreamEvent):
            now = time.time()
            if event.data.type == "response.output_text.delta":
                *whole, rest = (rest + event.data.delta).split(" ")
                found += [now - float(told) for told in whole]
    return found


async def read_elsewhere(runner: AgentRunner, home: Path, address: str) -> list[float]:
    """Let another process read the stream of a task."""
    task = await runner.create_task("tell me", streams=True)
    follow = ("--follow", task.task_id, "--address", address, "--archive", str(home / "archive"))
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.streaming", *follow),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    await child.stdout.readline()  # it is ready
    await runner.run_task(task)
    await runner.finalize_response(task)
    out, _ = await child.communicate()
    found: list[float] = json.loads(out)
    return found


async def follow(given: argparse.Namespace) -> None:
    """Be the other process."""
    runner = await AgentRunner.connect(given.address, agent="bench", archive=given.archive)
    async with runner:
        events = runner.stream_events(given.follow)
        await anext(events)  # the task's agent: what connecting takes is not measured
        print("ready", flush=True)
        print(json.dumps(await ages(events)))


async def history_bytes(runner: AgentRunner, *, streams: bool) -> int:
    """Run a task of many turns and return the size of its history."""
    task = await runner.create_task("talk", agent="talker", streams=streams)
    running = asyncio.create_task(runner.run_task(task))
    if streams:
        async for _ in runner.stream_events(task, until="waiting"):
            pass
    await running
    history = await runner.client.get_workflow_handle(task.task_id).fetch_history()
    return sum(event.ByteSize() for event in history.events)


def report(reader: str, found: list[float], given: argparse.Namespace) -> None:
    """Print the ages of tokens."""
    found.sort()
    line: dict[str, Any] = {
        "bench": "streaming",
        "reader": reader,
        "tokens": len(found),
        "token_ms_median": round(1000 * statistics.median(found), 1),
        "token_ms_p95": round(1000 * found[int(0.95 * (len(found) - 1))], 1),
        "told_each_ms": given.token_ms,
    }
    print(json.dumps(line, separators=(",", ":")), flush=True)


async def main(given: argparse.Namespace) -> None:
    """Measure both readers, then the bytes."""
    clock = Agent(name="bench", model=Clock(given.tokens, given.token_ms / 1000))
    talker = Agent(name="talker", model=Talker(given.turns), tools=[look])
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        async with AgentRunner.local(clock, talker, data_dir=home) as runner:
            async for _ in runner.stream_chat("warm up", agent="talker"):
                pass
            stream = runner.stream_chat("tell me")
            report("same process", await ages(aiter(stream)), given)
            address = runner.client.service_client.config.target_host
            report("another process", await read_elsewhere(runner, home, address), given)
            plain = await history_bytes(runner, streams=False)
            streamed = await history_bytes(runner, streams=True)
    line = {
        "bench": "streaming",
        "python": ".".join(map(str, sys.version_info[:3])),
        "cpus": os.cpu_count(),
        "loadavg_at_end": round(os.getloadavg()[0], 2),
        "turns": given.turns,
        "bytes_plain": plain,
        "bytes_streamed": streamed,
        "ratio": round(streamed / plain, 3),
    }
    print(json.dumps(line, separators=(",", ":")), flush=True)


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokens", type=int, default=200, help="tokens of the answer")
    parser.add_argument("--token-ms", type=float, default=20, help="time between two tokens")
    parser.add_argument("--turns", type=int, default=50, help="turns of the task that is weighed")
    parser.add_argument("--follow", default="", help="read the stream of this task instead")
    parser.add_argument("--address", default="", help="with --follow: the server")
    parser.add_argument("--archive", default="", help="with --follow: the archive")
    return parser.parse_args()


if __name__ == "__main__":
    arguments = read_arguments()
    asyncio.run(follow(arguments) if arguments.follow else main(arguments))
