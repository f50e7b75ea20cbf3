"""Worker processes are killed while calls wait for a batch: none is submitted twice, or lost."""

from collections.abc import Generator
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Agent
from holdfast.models.libraries.any_llm import AnyLLMModel
from holdfast.serving.batches import BatchModel, hand, workflow
from tests.crash.lab import Lab
from tests.crash.programs import AGENT, Job
from tests.support.batch_api import BatchApi, serving_batches
from tests.support.scale import EXHAUSTIVE, all_of, times

ANTHROPIC = "anthropic/claude-sonnet-4-5"

TASKS = times(4, 500)
GAP = times(5, 50) / 10
SEAMS = {
    "gpt-5-mini": [
        "POST /v1/files",  # the file is there, and no one knows
        "*POST /v1/batches",  # so is the batch
        "GET /v1/batches/batch_.*",
        "*GET /v1/files/.*/content",
        "DELETE /v1/files/.*",
    ],
    ANTHROPIC: [
        "*POST /v1/messages/batches",  # the batch is there, and no one knows which it is
        "GET /v1/messages/batches",
        "GET /v1/messages/batches/[^/]*",
        "*GET /v1/messages/batches/.*/results",
        "DELETE /v1/messages/batches/.*",
    ],
}
"""Requests within which a worker is killed; `make test` takes those with a star."""


@pytest.fixture
def batch_api() -> Generator[BatchApi]:
    """Serve the fake."""
    with serving_batches() as api:
        yield api


def make(job: Job) -> Agent:
    """Make an agent whose calls wait for a batch, which is looked at often."""
    hand.FIRST_GAP = hand.LONGEST_GAP = GAP
    workflow.HEARTBEAT = timedelta(seconds=2)
    url = job.base_url.removesuffix("/v1")
    model = AnyLLMModel(job.input, base_url=url, api_key="k") if "/" in job.input else job.input
    batched = BatchModel(model, age="2 s", size=TASKS, account=job.app)
    return Agent(name=AGENT, model=batched)


@pytest.mark.parametrize("model", ["gpt-5-mini", all_of(ANTHROPIC)])
async def test_killed_wherever_a_batch_is_each_call_is_submitted_once_and_answered(
    lab: Lab, batch_api: BatchApi, model: str
) -> None:
    api = batch_api
    api.auto = 0
    served: dict[str, Any] = {"make": make, "base_url": api.base_url, "input": model}
    words = [f"word-{k}" for k in range(TASKS)]
    worker = await lab.serve(**served)
    tasks = [await lab.runner.create_task(word, step_mode="automatic") for word in words]
    seams = [each.removeprefix("*") for each in SEAMS[model] if EXHAUSTIVE or each[0] == "*"]
    for seam in seams:
        if seam.endswith(("content", "[^/]*", "results")):
            api.auto = 1  # calls that come later, too, are answered
            api.end()
        api.held.clear()
        api.wait_in = seam
        await lab.until(api.held.is_set, seam)
        await lab.kill(worker)
        api.wait_in = ""
        worker = lab.start(**served)
    for task, word in zip(tasks, words, strict=True):
        await lab.until_status(task, "answered")
        assert str(await lab.runner.run_task(task)) == f"<{word}>"
        assert (await lab.runner.get_task(task)).usage.requests == 1
    assert api.lines == dict.fromkeys(words, 1)
    assert not api.direct
    # more than one, if some calls came late
    assert api.uploads == sum("input_file_id" in each for each in api.batches.values())
