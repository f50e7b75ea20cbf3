"""A worker is killed with more in hand than a tool: money, a message."""

import asyncio

from holdfast import Budget, Price, Prices, Webhook
from tests.crash.lab import Lab
from tests.support.people import ask
from tests.support.receiver import SECRET, receiving

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


async def test_a_message_of_a_lost_worker_is_sent_again_with_its_id(lab: Lab) -> None:
    with receiving() as receiver:
        options = {**lab.job.options, "notify": [Webhook(receiver.url, SECRET)]}
        receiver.is_open.clear()
        worker = await lab.serve(agent="asking", options=options)
        task = await lab.create("look:a")
        running = asyncio.create_task(lab.runner.run_task(task))
        await lab.until(lambda: bool(receiver.got), "the message")
        await lab.kill(worker)
        receiver.is_open.set()
        lab.start(agent="asking", options=options)
        await lab.until(lambda: len(receiver.got) == 2, "the message again")
        assert (await running).status == "waiting"
        question = await ask(lab.runner, task)
        assert receiver.ids() == [f"{question.id}:asked"] * 2
        assert all(each.is_signed for each in receiver.got)
        await lab.runner.approve(question, "ann")
        assert (await lab.runner.run_task(task)).output
        assert len(receiver.got) == 2
        assert lab.starts == {"a": 1}
