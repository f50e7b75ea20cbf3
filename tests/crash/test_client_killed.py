"""A client is only a handle: when its process dies, another one gets the answer."""

from tests.crash import programs
from tests.crash.lab import Lab


async def test_killed_in_the_middle_of_run_task(lab: Lab) -> None:
    given = {"task_id": f"{lab.job.app}-orphan", "input": lab.say("look:a charge:b look:c")}
    lab.hold("charge")
    lab.start()
    client = lab.start(programs.run, **given)
    await lab.until_event("start", thing="b")
    await lab.kill(client)
    lab.let_go("charge")
    # The task goes on without any client.
    await lab.until_status(given["task_id"], "answered")
    output = await lab.runner.run_task(given["task_id"])
    assert output.output == "final look(a) charge(b) look(c)"
    assert str(await lab.runner.finalize_response(given["task_id"])) == output.output
    assert not lab.events("answered")
    assert lab.asked == [0, 1, 2, 3]
    assert lab.starts == {"a": 1, "b": 1, "c": 1}


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
