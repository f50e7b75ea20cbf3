"""A task is one trace, whichever processes run it, and whenever they are killed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from opentelemetry import trace as api
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

from tests.crash import programs
from tests.crash.lab import Lab
from tests.crash.programs import Job
from tests.support.spans import Lines, Seen, assert_joined, read_lines, tree


def serve_with(job: Job, processor: SpanProcessor) -> None:
    """Serve the agent of a job; its spans go to this processor."""
    provider = TracerProvider()
    provider.add_span_processor(processor)
    api.set_tracer_provider(provider)
    programs.work(job)


def traced(job: Job) -> None:
    """Serve; each span is written as it ends."""
    serve_with(job, SimpleSpanProcessor(Lines(job.home / "spans.jsonl")))


def batched(job: Job) -> None:
    """Serve; spans are held back, and lost when the process is killed."""
    lines = Lines(job.home / "spans.jsonl")
    serve_with(job, BatchSpanProcessor(lines, schedule_delay_millis=600_000))


async def spans_of(lab: Lab, count: int) -> list[Seen]:
    """Return all spans, once the last of a closed task is there."""
    file: Path = lab.home / "spans.jsonl"
    await lab.until(
        lambda: (
            file.exists()
            and any(span.name.startswith("invoke_agent") for span in read_lines(file))
            and sum(span.name.startswith("step") for span in read_lines(file)) >= count
        ),
        "the task's spans",
    )
    return read_lines(file)


async def test_a_worker_that_is_killed_in_a_model_call_leaves_one_trace(lab: Lab) -> None:
    lab.hold_model(1)
    worker = lab.start(traced)
    task = await lab.create("look:a look:b")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.api.until_held()
    await lab.kill(worker)
    lab.start(traced)
    await running
    await lab.runner.finalize_response(task)
    spans = await spans_of(lab, 3)
    assert_joined(spans)
    assert tree(spans) == [
        "invoke_agent crash",
        "  step s1",
        "    chat fake-model",
        "    execute_tool look",
        "  step s2",
        "    chat fake-model",
        "    execute_tool look",
        "  step s3",
        "    chat fake-model",
    ]
    [again] = [span for span in spans if span.attributes.get("holdfast.attempt")]
    assert (again.name, again["holdfast.attempt"]) == ("chat fake-model", 2)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("tool", "point"), [("book", "end:tool"), ("look", "end:step")])
async def test_a_worker_that_is_killed_in_a_tool_leaves_one_trace(
    lab: Lab, tool: str, point: str
) -> None:
    worker = lab.start(traced, agent="single", die=((point, 2),))
    task = await lab.create(f"{tool}:a {tool}:b")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.until_dead(worker)
    lab.start(traced, agent="single")
    await running
    await lab.runner.finalize_response(task)
    spans = await spans_of(lab, 3)
    assert_joined(spans)
    # The tool ran twice, and both runs are there: the first was killed before it was recorded.
    twice = [span for span in spans if span.name == f"execute_tool {tool}"]
    assert [span.attributes.get("holdfast.attempt") for span in twice] == [None, None, 2]
    assert len({span.id for span in twice}) == 3


@pytest.mark.exhaustive
async def test_steps_whose_spans_were_lost_are_told_by_the_next_worker(lab: Lab) -> None:
    lab.hold_model(2)
    worker = lab.start(batched)
    task = await lab.create("look:a look:b")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.api.until_held()
    await lab.kill(worker)
    lab.start(traced)
    await running
    await lab.runner.finalize_response(task)
    spans = await spans_of(lab, 3)
    assert_joined(spans)
    # Their calls are lost; the steps are not, so that what follows has its place.
    assert tree(spans)[:4] == ["invoke_agent crash", "  step s1", "  step s2", "  step s3"]
