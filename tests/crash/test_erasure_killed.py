"""A worker is killed while it erases a session."""

from __future__ import annotations

import asyncio

from holdfast.archive.archive import record_name
from holdfast.values.checks.gate import as_array, as_object
from tests.crash.lab import Lab


async def test_a_session_whose_erasing_worker_is_killed_is_gone_with_one_certificate(
    own_lab: Lab,
) -> None:
    lab = own_lab  # all tasks of a server are read, and those of other tests have no worker
    worker = await lab.serve()
    tasks = list[str]()
    for _ in range(2):
        task = await lab.create("look:a", session="talk")
        await lab.runner.run_task(task)
        await lab.runner.finalize_response(task)
        tasks.append(task.task_id)
    names = [record_name("tasks", each) for each in tasks]
    asked = asyncio.create_task(lab.runner.erase(session="talk", by="ann", reason="r"))

    def has_begun() -> bool:
        assert not asked.done() or asked.result()  # a refusal says why
        found = (as_object(lab.runner.archive.find_record(each)) for each in names)
        return any("erased" in each for each in found)

    await lab.until(has_begun, "an erased task")
    await lab.kill(worker)
    lab.start()
    certificate = await asked
    assert set(as_array(certificate["tasks"])) == set(tasks)
    assert len(await lab.runner.archive.alist_records("erasures")) == 1
    left = {each.id async for each in lab.runner.client.list_workflows()}
    assert not left & {*tasks, lab.runner.session("talk").id}
