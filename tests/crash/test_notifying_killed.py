"""A worker process is killed while it notifies people of an approval."""

from __future__ import annotations

import asyncio

from holdfast import Webhook
from tests.crash.lab import Lab
from tests.support.people import ask
from tests.support.receiver import SECRET, receiving


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
