"""Server and worker are killed while tasks wait: for a time, an outcome, or their beginning."""

from holdfast import Task
from tests.crash.lab import Lab
from tests.support.rig import until


async def until_waits(lab: Lab, task: Task) -> None:
    """Wait until a call of a task waits."""

    async def condition() -> bool:
        return bool((await lab.runner.get_task(task)).waits)

    await until(condition)


async def crash(lab: Lab) -> None:
    """Kill the server and all workers, and start both again."""
    await lab.kill_server()
    for worker in [each for each in lab.processes if each.exitcode is None]:
        await lab.kill(worker)
    await lab.restart_server()
    lab.start()


async def test_a_sleep_ends_once_after_server_and_worker_were_killed(own_lab: Lab) -> None:
    lab = own_lab
    await lab.serve()
    task = await lab.create("charge:a nap:5 look:b", step_mode="automatic")
    await until_waits(lab, task)
    await crash(lab)
    await lab.until_status(task, "answered")
    assert (await lab.runner.run_task(task)).output == "final charge(a) woke(5) look(b)"
    assert lab.starts == {"a": 1, "5": 1, "b": 1}


async def test_a_call_is_completed_by_its_token_after_server_and_worker_were_killed(
    own_lab: Lab,
) -> None:
    lab = own_lab
    await lab.serve()
    task = await lab.create("order:tea look:b", step_mode="automatic")
    await until_waits(lab, task)
    await crash(lab)
    await lab.runner.complete((lab.home / "token.tea").read_text(), "delivered")
    await lab.until_status(task, "answered")
    assert (await lab.runner.run_task(task)).output == "final delivered look(b)"
    assert lab.starts == {"tea": 1, "b": 1}


async def test_a_token_counts_whose_worker_was_killed_before_its_tool_had_ended(
    own_lab: Lab,
) -> None:
    lab = own_lab
    lab.hold("order")
    worker = await lab.serve()
    task = await lab.create("order:tea", step_mode="automatic")
    await lab.until_event("start")
    await lab.kill(worker)
    await lab.runner.complete((lab.home / "token.tea").read_text(), "delivered")
    lab.let_go("order")
    lab.start()
    await lab.until_status(task, "answered")
    assert (await lab.runner.run_task(task)).output == "final delivered"
    assert lab.starts == {"tea": 1}


async def test_a_schedule_goes_on_after_server_and_worker_were_killed(own_lab: Lab) -> None:
    lab = own_lab
    await lab.serve()
    name = f"{lab.job.app}-tick"
    await lab.runner.add_schedule(name, lab.say("look:a"), every="2 s")

    async def ids() -> set[str]:
        found = await lab.runner.list_tasks("finished")
        return {each.task_id for each in found if each.task_id.startswith(name)}

    await until(ids)
    before = await ids()
    await crash(lab)

    async def goes_on() -> bool:
        return len(await ids() - before) > 1

    await until(goes_on)
    [schedule] = await lab.runner.list_schedules()
    await lab.runner.delete_schedule(name)
    assert before < await ids()
    assert schedule.missed == 0


async def test_an_event_sent_twice_reaches_both_tasks_once_after_server_and_worker_were_killed(
    own_lab: Lab,
) -> None:
    lab = own_lab
    await lab.serve()
    tasks = [await lab.create("hear:tea look:b", step_mode="automatic") for _ in range(2)]
    for task in tasks:
        await until_waits(lab, task)
    await lab.kill_server()
    for worker in [each for each in lab.processes if each.exitcode is None]:
        await lab.kill(worker)
    await lab.restart_server()
    for _ in range(2):  # while no worker is up
        sent = await lab.runner.send_event("paid", {"thing": "tea"}, id="e1")
        assert sent.status == "recorded"
    lab.start()
    for task in tasks:
        await lab.until_status(task, "answered")
        heard = str((await lab.runner.run_task(task)).output)
        assert heard.count('"id": "e1"') == 1
        assert "look(b)" in heard
    assert (await lab.runner.send_event("paid", {"thing": "tea"}, id="e1")).waiters == len(tasks)
