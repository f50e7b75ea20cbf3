"""Measure lookups that do not need each other: planned at once, and called one after the other.

    python -m benchmarks.parallel --lookups 8 --tool-ms 200

What is measured, and how:
* The work: `--lookups` lookups, then one call that needs all their results. Every tool sleeps for
  `--tool-ms`; the model is a function in the worker process and answers after `--model-ms`.
* wall_s: from `chat` to its answer, median over `--runs`, once with LLMCompilerAgentWorker, once
  with FunctionCallingAgentWorker that calls one tool at a time.
* critical_path_s: the longest chain of calls that need each other, model calls included: no
  schedule is faster.
* overhead_s: what the task itself takes, beyond that.

Prints one JSON line for each worker, then one that compares them.
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
from typing import Any

from holdfast import Agent, AgentRunner, Message, ToolCall, Usage, tool
from holdfast.agents.tools.decorator import Tool
from holdfast.models import ModelAnswer, ModelRequest
from holdfast.workers import AgentWorker, FunctionCallingAgentWorker, LLMCompilerAgentWorker


class Delay:
    """What the model and the tools wait, in seconds."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.tool = given.tool_ms / 1000
        self.model = given.model_ms / 1000


class Planner:
    """Plans all lookups, then answers with what the last call gave."""

    name = "planner"

    def __init__(self, lookups: int, delay: Delay) -> None:
        self.lookups = lookups
        self.delay = delay

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Write the plan, or the answer."""
        await asyncio.sleep(self.delay.model)
        if "join()" in request.instructions:
            ids = range(1, self.lookups + 1)
            lines = [f'{id}. lookup("topic {id}")' for id in ids]
            lines.append(f"{self.lookups + 1}. combine([{', '.join(f'${id}' for id in ids)}])")
            return answer(Message(role="assistant", content="\n".join([*lines, "join()"])))
        told = request.messages[-1].text.rsplit("result: ", 1)[1]
        return answer(Message(role="assistant", content=f"Thought: done\nAction: finish({told})"))


class OneByOne:
    """Calls one lookup per turn, then combines them and answers."""

    name = "one-by-one"

    def __init__(self, lookups: int, delay: Delay) -> None:
        self.lookups = lookups
        self.delay = delay

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Call the next tool, or answer."""
        await asyncio.sleep(self.delay.model)
        found = [message.text for message in request.messages if message.role == "tool"]
        done = len(found)
        if done > self.lookups:
            return answer(Message(role="assistant", content=found[-1]))
        name, arguments = "lookup", {"topic": f"topic {done + 1}"}
        if done == self.lookups:
            name, arguments = "combine", {"texts": found}  # type: ignore[dict-item]
        call = ToolCall(id=f"call_{done}", name=name, arguments=json.dumps(arguments))
        return answer(Message(role="assistant", calls=(call,)))


def answer(message: Message) -> ModelAnswer:
    """Make an answer that costs one request."""
    return ModelAnswer(message=message, usage=Usage(requests=1))


def tools(delay: Delay) -> list[Tool]:
    """Make the two tools."""

    @tool(effect="read")
    async def lookup(topic: str) -> str:
        """Look a topic up."""
        await asyncio.sleep(delay.tool)
        return f"about {topic}"

    @tool(effect="read")
    async def combine(texts: list[str]) -> str:
        """Combine texts."""
        await asyncio.sleep(delay.tool)
        return "; ".join(texts)

    return [lookup, combine]


async def measure(
    given: argparse.Namespace, worker: AgentWorker, model: Planner | OneByOne, path: float
) -> dict[str, Any]:
    """Run the work with one worker."""
    agent = Agent(name="bench", model=model, tools=tools(model.delay), worker=worker)
    walls: list[float] = []
    calls = 0
    with tempfile.TemporaryDirectory() as directory:
        async with AgentRunner.local(agent, data_dir=directory) as runner:
            await runner.chat("warm up")
            for _ in range(given.runs):
                start = time.perf_counter()
                response = await runner.chat("look everything up")
                walls.append(time.perf_counter() - start)
                assert response.response.count("about topic") == given.lookups
                assert len(response.sources) == given.lookups + 1
                calls = response.usage.requests
    wall = statistics.median(walls)
    return {
        "worker": type(worker).__name__,
        "model_calls": calls,
        "tool_calls": given.lookups + 1,
        "critical_path_s": round(path, 3),
        "wall_s": round(wall, 3),
        "overhead_s": round(wall - path, 3),
    }


async def main(given: argparse.Namespace) -> None:
    """Measure both, print, compare."""
    delay = Delay(given)
    planned = await measure(
        given,
        LLMCompilerAgentWorker(),
        Planner(given.lookups, delay),
        2 * delay.model + 2 * delay.tool,
    )
    print(json.dumps(planned, separators=(",", ":")), flush=True)
    in_order = await measure(
        given,
        FunctionCallingAgentWorker(allow_parallel_tool_calls=False),
        OneByOne(given.lookups, delay),
        (given.lookups + 2) * delay.model + (given.lookups + 1) * delay.tool,
    )
    print(json.dumps(in_order, separators=(",", ":")), flush=True)
    compared = {
        "bench": "parallel",
        "python": ".".join(map(str, sys.version_info[:3])),
        "cpus": os.cpu_count(),
        "loadavg_at_end": round(os.getloadavg()[0], 2),
        "lookups": given.lookups,
        "tool_ms": given.tool_ms,
        "model_ms": given.model_ms,
        "runs": given.runs,
        "wall_ratio": round(in_order["wall_s"] / planned["wall_s"], 2),
        "critical_path_ratio": round(in_order["critical_path_s"] / planned["critical_path_s"], 2),
    }
    print(json.dumps(compared, separators=(",", ":")), flush=True)


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lookups", type=int, default=8, help="lookups")
    parser.add_argument("--tool-ms", type=float, default=200, help="what a tool takes")
    parser.add_argument("--model-ms", type=float, default=0, help="what a model call takes")
    parser.add_argument("--runs", type=int, default=3, help="repetitions; medians are reported")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(read_arguments()))
