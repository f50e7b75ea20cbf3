"""Traces on the console: two runs as one trace, drawn as a tree; offline.

pip install ".[local,otel]"
python examples/traced_run.py
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from opentelemetry import trace as otel
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast import Agent, AgentRunner, Runner, flush_traces, tool, trace


@tool(effect="read")
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@tool(effect="read")
def divide(a: float, b: float) -> float:
    """Divide a by b."""
    with otel.get_tracer("my.calculator").start_as_current_span("check b"):  # a span of our own
        return a / b


arithmetic = Agent(name="arithmetic", model="offline", tools=[add, divide])


def line(span: ReadableSpan) -> str:
    """Say in a line what a span is about."""
    facts: dict[str, Any] = dict(span.attributes or {})
    took = ((span.end_time or 0) - (span.start_time or 0)) / 1e6
    said = [f"{span.name:<28}", f"{took:6.0f} ms"]
    if "gen_ai.usage.input_tokens" in facts:
        said.append(f"{facts['gen_ai.usage.input_tokens']} tokens in")
    if "gen_ai.tool.call.arguments" in facts:
        said.append(facts["gen_ai.tool.call.arguments"])
    if "error.type" in facts:
        said.append(f"failed: {span.status.description}")
    return "  ".join(said)


def draw(spans: Sequence[ReadableSpan], parent: int | None = None, depth: int = 0) -> None:
    """Print the spans below one span, and what is below them."""
    for span in sorted(spans, key=lambda span: span.start_time or 0):
        if (span.parent.span_id if span.parent else None) == parent and span.context:
            print("  " * depth + line(span))
            draw(spans, span.context.span_id, depth + 1)


async def main() -> None:
    """Run two questions in one trace, and draw it."""
    questions = sys.argv[1:] or ["What is (12 + 30) / 2?", "What is 1 / 0?"]
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    otel.set_tracer_provider(provider)  # all that Holdfast needs

    async with AgentRunner.local(arithmetic, data_dir=None) as runner:
        with trace("Two questions", group_id="demo") as block:
            for question in questions:
                result = await Runner.run(arithmetic, question, runner=runner)
                print(f"{question} {result.final_output}")
    flush_traces()
    print(f"\n{block.trace_id}")
    draw(kept.get_finished_spans())


if __name__ == "__main__":
    asyncio.run(main())
