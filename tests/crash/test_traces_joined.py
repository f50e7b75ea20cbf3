"""A task is one trace, whichever processes run it, and whenever they are killed."""

import asyncio
from pathlib import Path

from opentelemetry import trace as api
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from tests.crash import programs
from tests.crash.lab import Lab
from tests.crash.programs import Job
from tests.support.spans import Lines, Seen, assert_joined, read_lines, tree


def traced(job: Job) -> None:
    """Serve; each span is written as it ends."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Lines(job.home / "spans.jsonl")))
    api.set_tracer_provider(provider)
    programs.work(job)


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
