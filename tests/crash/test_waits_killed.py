"""Server and worker are killed while tasks work, or wait for a time, an outcome or an event."""

from collections.abc import Mapping

from holdfast import Task
from tests.crash.lab import Lab
from tests.support.rig import until, until_task


async def until_waits(lab: Lab, task: Task) -> None:
    """Wait until a call of a task waits."""
    await until_task(lab.runner, task, lambda found: found.waits)


async def scheduled(lab: Lab, name: str) -> set[str]:
    """Return the tasks that a schedule has begun and that have ended."""
    found = await lab.runner.list_tasks("finished")
    return {each.task_id for each in found if each.task_id.startswith(name)}


async def answers(lab: Lab, tasks: Mapping[str, Task]) -> dict[str, str]:
    """Wait for the answers of tasks."""
    found: dict[str, str] = {}
    for name, task in tasks.items():
        await lab.until_status(task, "answered")
        found[name] = str((await lab.runner.run_task(task)).output)
    return found


async def test_whatever_tasks_wait_for_comes_once_after_server_and_worker_were_killed(
    own_lab: Lab,
) -> None:
    lab, name = own_lab, f"{own_lab.job.app}-tick"
    await lab.serve()
    await lab.runner.add_schedule(name, lab.say("look:tick"), every="2 s")
    before = await until(lambda: scheduled(lab, name))
    lab.hold("book")
    turns = {
        "works": "charge:a book:b",
        "outcome": "order:tea look:c",
        "event": "hear:tea look:d",
        "same event": "hear:tea look:e",
        "sleep": "charge:f nap:9 look:g",
    }
    tasks = {each: await lab.create(turns[each], step_mode="automatic") for each in turns}
    await lab.until_event("start", thing="b")
    for each in tasks.keys() - {"works"}:
        await until_waits(lab, tasks[each])
    await lab.kill_server()
    for worker in [each for each in lab.processes if each.exitcode is None]:
        await lab.kill(worker)
    lab.let_go("book")
    await lab.restart_server()
    for _ in range(2):  # while no worker is up
        sent = await lab.runner.send_event("paid", {"thing": "tea"}, id="e1")
        assert sent.status == "recorded"
    lab.start()
    await lab.runner.complete((lab.home / "token.tea").read_text(), "delivered")
    found = await answers(lab, tasks)
    for each, thing in (("event", "d"), ("same event", "e")):
        heard = found.pop(each)
        assert heard.count('"id": "e1"') == 1, each
        assert f"look({thing})" in heard, each
    assert found == {
        "works": "final charge(a) book(b)",
        "outcome": "final delivered look(c)",
        "sleep": "final charge(f) woke(9) look(g)",
    }
    assert (await lab.runner.send_event("paid", {"thing": "tea"}, id="e1")).waiters == 2
    # Only the call that ran meanwhile, and may be repeated, was made again.
    again = {thing: n for thing, n in lab.starts.items() if n > 1 and thing != "tick"}
    assert again == {"b": 2, "tea": 3}  # an order, and two that hear

    await until(lambda: scheduled(lab, name), lambda found: len(found - before) > 1)
    [schedule] = await lab.runner.list_schedules()
    await lab.runner.delete_schedule(name)
    assert schedule.missed == 0
