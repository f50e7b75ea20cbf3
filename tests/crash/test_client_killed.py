"""A client is only a handle: when its process dies, another one gets the answer."""

from tests.crash import programs
from tests.crash.lab import Lab


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
