"""A worker process is killed between the reservation of money and the answer that it pays for."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Budget, Price, Prices, StepFailedError
from holdfast.testing import fail
from tests.crash.lab import Lab

PRICES = Prices({"fake-model": Price(input=0, output=1000)})
"""A tenth of a cent for each token of output."""


async def test_a_call_that_a_lost_worker_may_have_made_counts_with_its_most(lab: Lab) -> None:
    options = {**lab.job.options, "prices": PRICES}
    lab.hold_model(0)
    worker = await lab.serve(options=options)
    task = await lab.create("look:a", budget=Budget(max_dollars=20, on_exceeded="fail"))
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.until(lambda: len(lab.requests) == 1, "the first call")
    await lab.kill(worker)
    lab.start(options=options)
    assert (await running).output
    calls = [each for each in await lab.runner.audit(task) if each.kind == "model_call"]
    assert [call.attempts for call in calls] == [2, 1]
    asked = [request.body["max_output_tokens"] for request in lab.requests]
    left = 20_000 - 16_384  # as if the lost one had said all that it may
    first = calls[0].cost
    assert first is not None
    assert asked == [16_384, left, left - first * 1000]


@pytest.mark.exhaustive
async def test_each_call_that_lost_workers_may_have_made_counts(lab: Lab) -> None:
    options = {**lab.job.options, "prices": PRICES}
    lab.hold_model(0, times=2)
    worker = await lab.serve(options=options)
    task = await lab.create("look:a", budget=Budget(max_dollars=40, on_exceeded="fail"))
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.until(lambda: len(lab.requests) == 1, "the first call")
    await lab.kill(worker)
    worker = await lab.serve(options=options)
    await lab.until(lambda: len(lab.requests) == 2, "the second call")
    await lab.kill(worker)
    lab.start(options=options)
    assert (await running).output
    asked = [request.body["max_output_tokens"] for request in lab.requests]
    assert asked[:3] == [16_384, 16_384, 40_000 - 2 * 16_384]


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_final", [False, True])
async def test_a_lost_call_counts_when_a_failed_one_follows(lab: Lab, *, is_final: bool) -> None:
    options = {**lab.job.options, "prices": PRICES}
    lab.hold_model(0)
    worker = await lab.serve(options=options)
    task = await lab.create("look:a", budget=Budget(max_dollars=20, on_exceeded="fail"))
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.until(lambda: len(lab.requests) == 1, "the first call")
    status = 400 if is_final else 500
    lab.api.when(lab.is_mine, fail(status), times=1)
    await lab.kill(worker)
    lab.start(options=options)
    if is_final:
        with pytest.raises(StepFailedError):
            await running
        assert (await lab.runner.run_task(task)).output
    else:
        assert (await running).output
    asked = [request.body["max_output_tokens"] for request in lab.requests]
    assert asked[:3] == [16_384, 20_000 - 16_384, 20_000 - 16_384]
