"""The server's database is put back to a backup; the archive and the world are as they were."""

import shutil
from multiprocessing.process import BaseProcess
from pathlib import Path

from holdfast.engine.dev_server.command import DATABASE
from holdfast.engine.dev_server.server import find_server
from tests.crash.lab import Lab
from tests.support.people import asked
from tests.support.rig import activities_of, until


async def stop(lab: Lab, worker: BaseProcess) -> list[Path]:
    """Kill worker and server; return the files of the database."""
    directory = lab.job.server.data_dir
    assert directory is not None
    await lab.kill(worker)
    await lab.kill_server()
    await lab.until(lambda: find_server(directory) is None, "the end of the server")
    return [*directory.glob(f"{DATABASE}*")]


async def test_what_was_paid_since_the_backup_is_asked_about(own_lab: Lab) -> None:
    """One payment is being made when the database is copied, and one waits for a worker."""
    lab = own_lab
    lab.hold("charge")
    worker = await lab.serve(options={"max_concurrent_activities": 1})
    task = await lab.create("charge:a,charge:b", step_mode="automatic")
    await lab.until_event("start")

    async def both_are_scheduled() -> bool:
        return (await activities_of(lab.runner.client, task.task_id)).count("tool") == 2

    await until(both_are_scheduled)
    backup = lab.home / "backup"
    backup.mkdir()
    for file in await stop(lab, worker):
        shutil.copy(file, backup)
    lab.let_go("charge")
    await lab.restart_server()
    worker = await lab.serve()
    await lab.until_event("end")
    assert lab.starts == {"a": 1, "b": 1}
    for file in await stop(lab, worker):
        file.unlink()
    for file in backup.iterdir():
        shutil.copy(file, lab.job.server.data_dir or "")
    await lab.restart_server()
    await lab.serve()
    for each in await asked(lab.runner, task, 2):
        assert each.kind == "unknown"
        await lab.runner.respond(each, by="ann", result="paid, says the bank")
    assert (await lab.runner.run_task(task)).output == "final" + 2 * " paid, says the bank"
    assert lab.starts == {"a": 1, "b": 1}
