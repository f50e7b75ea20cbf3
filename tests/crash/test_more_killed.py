"""Killed with more in hand than a tool: a worker with money or a message, a client, the server."""

import asyncio

from holdfast import Budget, Price, Prices, Webhook
from tests.crash import programs
from tests.crash.lab import Lab
from tests.crash.programs import make_runner
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


# ---- a client is only a handle: when its process dies, another one gets the answer


async def test_killed_in_a_step_and_started_again_gets_the_output_of_that_step(lab: Lab) -> None:
    given = {"task_id": f"{lab.job.app}-orphan", "input": lab.say("look:a look:b")}
    lab.hold("look")
    lab.start()
    client = lab.start(programs.step, **given)
    await lab.until_event("start", thing="a")
    await lab.kill(client)
    again = lab.start(programs.step, **given)
    await lab.until_event("asks", 2)
    lab.let_go("look")
    await lab.until_event("stepped", sources=["look(a)"])
    await lab.until_dead(again)
    assert (await lab.runner.get_task(given["task_id"])).steps == 1
    # A third run, after one that ended in peace, goes on with the next step.
    await lab.until_dead(lab.start(programs.step, **given))
    await lab.until_event("stepped", sources=["look(b)"])
    assert lab.asked == [0, 1]


# ---- the Temporal server is killed while a worker goes on, and started on its SQLite file


PATIENT = 15.0
"""A heartbeat timeout longer than the server is away: else calls in flight count as lost."""


async def test_killed_while_a_tool_runs_that_must_not_be_repeated(own_lab: Lab) -> None:
    lab = own_lab
    lab.runner = await make_runner(lab.job, heartbeat=PATIENT)
    lab.hold("charge")
    lab.start()
    task = await lab.create("charge:a look:b")
    running = asyncio.create_task(lab.runner.run_step(task))
    await lab.until_event("start")
    await lab.kill_server()
    lab.let_go("charge")
    await lab.restart_server()
    assert (await running).status == "done"
    assert (await lab.runner.run_task(task)).output == "final charge(a) look(b)"
    assert lab.asked == [0, 1, 2]
    assert lab.starts == lab.ends == {"a": 1, "b": 1}
