"""The embedded server as its users meet it: several processes, kills, stale files, leases."""

import asyncio
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO

import httpx
import psutil
import pytest
from temporalio import activity, workflow
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.worker import Worker

import holdfast
from holdfast.archive.archive import Archive
from holdfast.archive.bytestore import OWNER_FILE
from holdfast.engine.connect import connect_embedded
from holdfast.engine.dev_server import leases, watch
from holdfast.engine.dev_server import server as dev_server
from holdfast.engine.dev_server.leases import (
    acquire_lease,
    leased_server,
    release_lease,
)
from holdfast.engine.dev_server.process import processes_in, start_time, wait_until
from holdfast.engine.dev_server.server import (
    ensure_server,
    find_server,
    read_json,
    revive_server,
    stop_server,
    write_json,
)
from holdfast.errors import ArchiveMismatchError, ServerStartError
from holdfast.serving.names import check_archive
from tests.support import forked
from tests.support.lent import ephemeral_server

ROOT = Path(holdfast.__file__).parents[1]
SOON = 100.0

ENSURE = """
import asyncio, sys
from pathlib import Path
from holdfast.engine.dev_server.server import ensure_server
print(asyncio.run(ensure_server(Path(sys.argv[1]))).pid)
"""
HOLD_LEASE = """
import asyncio, os, sys
from pathlib import Path
from holdfast.engine.dev_server.leases import acquire_lease
from holdfast.engine.dev_server.server import ensure_server
asyncio.run(acquire_lease(Path(sys.argv[1])))
print(asyncio.run(ensure_server(Path(sys.argv[1]))).pid, os.getpid(), flush=True)
sys.stdin.read()
"""
NEVER_CLOSED = """
import asyncio, os, signal, sys
from holdfast import Agent
from holdfast.engine.dev_server import server
from holdfast.sync import AgentRunner
server.LEFT_SECONDS = 0.2
runner = AgentRunner.local(Agent(name="idle", model="offline"), data_dir=sys.argv[1] or None)
print(runner.chat("What is 6 * 7?"), flush=True)
print(runner.twin._engine.server.pid, flush=True)
"""
HOLD_EPHEMERAL = """
import asyncio, sys
from tests.support.lent import ephemeral_server
server = asyncio.run(ephemeral_server())
print(server.info.pid, flush=True)
sys.stdin.read()
"""


@activity.defn(name="engine_test.echo")
async def echo(text: str) -> str:
    return text


@workflow.defn(name="engine_test.Echo", sandboxed=False)
class Echo:
    @workflow.run
    async def run(self, text: str) -> str:
        result: str = await workflow.execute_activity(
            echo, text, start_to_close_timeout=timedelta(seconds=10)
        )
        return result


@pytest.fixture
async def data_dir(tmp_path: Path) -> AsyncGenerator[Path]:
    path = tmp_path / "data dir?%20"
    yield path
    # Not gracefully: that takes more than a second per test.
    if (left := find_server(path)) is not None:
        os.kill(left.pid, signal.SIGKILL)
    await stop_server(path)


@contextmanager
def child(code: str, *arguments: object) -> Generator[tuple[subprocess.Popen[str], IO[str]]]:
    """Run Python code in a process; it is killed at the end of the block."""
    process = subprocess.Popen(
        forked.command("-c", code, *map(str, arguments)),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process:
        try:
            yield process, process.stdout
        finally:
            process.kill()


def is_gone(pid: int) -> bool:
    # A killed process is a zombie at once, but holds its leases until its last thread has ended.
    return start_time(pid) is None


def watchers(pid: int) -> list[int]:
    """List the processes that watch the leases of a server."""
    found: list[int] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            command = process.cmdline()
            if any(part.endswith("watch.py") for part in command) and str(pid) in command:
                found.append(process.pid)
    return found


async def start_task(client: Client, task_id: str) -> None:
    await client.start_workflow("engine_test.Echo", "x", id=task_id, task_queue="engine-test")


async def work(client: Client, task_id: str) -> str:
    async with Worker(
        client, task_queue="engine-test", workflows=[Echo], activities=[echo], build_id="x"
    ):
        return str(await client.get_workflow_handle(task_id).result())


async def test_a_server_runs_detached_for_its_owner_alone_and_is_joined_by_all_processes(
    data_dir: Path,
) -> None:
    before = os.umask(0o022)
    try:
        with ExitStack() as stack:
            at_once = [stack.enter_context(child(ENSURE, data_dir)) for _ in range(2)]
            [pid] = {int(await asyncio.to_thread(output.readline)) for _, output in at_once}
            for process, _ in at_once:
                assert await asyncio.to_thread(process.wait) == 0
        first = await ensure_server(data_dir)  # it has outlived those that started it
    finally:
        os.umask(before)
    assert first.pid == pid == os.getsid(pid)
    assert find_server(data_dir) == first
    assert (data_dir / ".gitignore").read_text(encoding="utf-8") == "*\n"
    record = read_json(data_dir / "server.json")
    assert (record["pid"], f"127.0.0.1:{record['port']}") == (pid, first.address)
    assert record["version"]
    listening = [c for c in psutil.Process(pid).net_connections() if c.status == "LISTEN"]
    assert {connection.laddr.ip for connection in listening} == {"127.0.0.1"}
    modes = dict[str, int]()
    for each in (data_dir, *data_dir.rglob("*")):
        with suppress(FileNotFoundError):  # the server may delete it meanwhile
            modes[each.name] = each.stat().st_mode & 0o077
    assert {"temporal.db", "server.log", "server.lock"} <= {*modes}
    assert [name for name, mode in modes.items() if mode] == []

    (data_dir / "server.json").unlink()  # a lost or damaged file starts no second server
    assert await ensure_server(data_dir) == first
    (data_dir / "server.json").write_text("{half", encoding="utf-8")
    assert await ensure_server(data_dir) == first
    (data_dir / "server.json").unlink()
    assert await stop_server(data_dir)
    assert is_gone(pid)


async def test_a_server_that_is_killed_hangs_or_was_stopped_comes_back_with_all_tasks(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not await stop_server(data_dir)
    before = await ensure_server(data_dir)
    client = await connect_embedded(before)
    for number in range(3):
        await start_task(client, f"task-{number}")
    os.kill(before.pid, signal.SIGKILL)

    after = await ensure_server(data_dir, ui=True)
    assert after.pid != before.pid
    assert after.address == before.address
    # The client of before reconnects by itself, because the address is the same.
    found = await client.get_workflow_handle("task-0").describe()
    assert found.status == WorkflowExecutionStatus.RUNNING
    assert await work(client, "task-1") == "x"

    os.kill(after.pid, signal.SIGKILL)
    await wait_until(lambda: find_server(data_dir) is None, SOON)
    await revive_server(data_dir)
    record = dev_server.read_record(data_dir)
    assert record is not None
    assert record.pid not in {before.pid, after.pid}
    assert f"http://127.0.0.1:{record.ui_port}" == after.ui_url

    monkeypatch.setattr(dev_server, "JOIN_SECONDS", 0.2)
    monkeypatch.setattr(dev_server, "HUNG_GRACE_SECONDS", 0.2)
    os.kill(record.pid, signal.SIGSTOP)
    again = await ensure_server(data_dir)
    monkeypatch.undo()
    assert is_gone(record.pid)

    assert await stop_server(data_dir)
    assert is_gone(again.pid)
    assert find_server(data_dir) is None
    assert not await stop_server(data_dir)
    with socket.create_server(("127.0.0.1", int(again.address.rpartition(":")[2]))):
        moved = await ensure_server(data_dir)
    assert moved.address != again.address
    assert await work(await connect_embedded(moved), "task-2") == "x"


async def test_a_server_that_is_killed_under_its_user_comes_back_and_a_stopped_one_does_not(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with leased_server(data_dir) as before:
        os.kill(before.pid, signal.SIGKILL)

        def is_back() -> bool:
            found = find_server(data_dir)
            return found is not None and found.pid != before.pid

        await wait_until(is_back, SOON)
        after = await ensure_server(data_dir)  # waits until it answers
        assert after.address == before.address
        await start_task(await connect_embedded(before), "after-the-kill")
        await stop_server(data_dir)
        seen: list[Path] = []

        async def looked(directory: Path) -> None:
            seen.append(directory)
            await revive_server(directory)

        monkeypatch.setattr(leases, "revive_server", looked)
        await wait_until(lambda: len(seen) > 1, SOON)
        assert find_server(data_dir) is None


async def test_a_reused_pid_is_neither_joined_nor_killed(data_dir: Path) -> None:
    server = await ensure_server(data_dir)
    record = read_json(data_dir / "server.json")
    with child("import sys; sys.stdin.read()") as (other, _):
        reused = {**record, "pid": other.pid, "started": record["started"] - 60}
        write_json(data_dir / "server.json", reused)
        assert find_server(data_dir) is None
        await stop_server(data_dir)
        assert other.poll() is None
    assert await wait_until(lambda: is_gone(server.pid), SOON)


async def test_a_new_server_is_found_once_it_keeps_closed_tasks_for_years(data_dir: Path) -> None:
    """The dev server deletes closed tasks after a day unless it is told otherwise in time."""
    found: set[int] = set()
    starting = asyncio.create_task(ensure_server(data_dir))
    while not starting.done():  # the one that makes the database is replaced
        if (server := find_server(data_dir)) is not None:
            found.add(server.pid)
        await asyncio.sleep(0)
    assert found <= {(await starting).pid}
    assert find_server(data_dir) == await starting
    client = await connect_embedded(await starting)
    await start_task(client, "early")
    await work(client, "early")

    def last_timer() -> datetime:
        with sqlite3.connect(data_dir / "temporal.db") as database:
            rows = database.execute("select max(visibility_timestamp) from timer_tasks")
            return datetime.fromisoformat(str(rows.fetchone()[0]))

    in_years = datetime.now(UTC) + timedelta(days=3000)
    assert await wait_until(lambda: last_timer() > in_years, SOON)


@asynccontextmanager
async def held(data_dir: Path) -> AsyncGenerator[int]:
    """Hold a lease in another process, which is killed at the end; give the server's pid."""
    with child(HOLD_LEASE, data_dir) as (_, output):
        server, holder = map(int, (await asyncio.to_thread(output.readline)).split())
        yield server
        os.kill(holder, signal.SIGKILL)
    assert await wait_until(lambda: is_gone(holder), SOON)


async def test_the_last_lease_stops_the_server_not_before_and_who_comes_always_has_one(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dev_server, "LEFT_SECONDS", 60.0)  # its watcher must not be quicker
    mine = await acquire_lease(data_dir)
    server = await ensure_server(data_dir)
    async with held(data_dir) as pid:
        assert pid == server.pid
        assert not await release_lease(mine)
        assert find_server(data_dir) == server
    # The killed process left its lease behind; it no longer counts.
    again = await acquire_lease(data_dir)
    assert await release_lease(again)
    assert is_gone(server.pid)
    assert not list((data_dir / "leases").iterdir())

    async def come_and_go() -> None:
        for _ in range(2):
            async with leased_server(data_dir) as other:
                await connect_embedded(other)

    await asyncio.gather(*(come_and_go() for _ in range(3)))  # those of one process are counted
    assert find_server(data_dir) is None


async def test_a_server_ends_by_itself_once_its_last_holder_is_killed_unless_it_is_kept(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dev_server, "LEFT_SECONDS", 0.2)
    async with leased_server(data_dir) as server:
        async with held(data_dir) as pid:
            assert pid == server.pid
        assert len(watchers(pid)) == 1
        assert not watch.is_left(data_dir)  # it stays for those that are left
    assert await wait_until(lambda: not watchers(pid), SOON)
    server = await ensure_server(data_dir)
    assert not watch.is_left(data_dir)  # nobody has leased it yet
    async with held(data_dir):
        pass
    assert await wait_until(lambda: is_gone(server.pid), SOON)
    assert await wait_until(lambda: not list((data_dir / "leases").iterdir()), SOON)
    assert not (data_dir / "server.json").exists()


async def test_a_server_whose_directory_is_deleted_ends_with_its_last_holder(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dev_server, "LEFT_SECONDS", 2.0)  # the leases are gone before they count
    async with held(data_dir) as pid:
        held_by = watch.users_of(data_dir)
    shutil.rmtree(data_dir)
    assert watch.is_left(data_dir, held_by)
    assert not watch.is_left(data_dir, {*held_by, os.getpid()})
    assert await wait_until(lambda: is_gone(pid), SOON)
    data_dir.mkdir()  # for the fixture


async def test_an_ephemeral_server_works_stops_and_takes_no_web_page_s_order() -> None:
    async with await ephemeral_server() as running, httpx.AsyncClient() as page:
        assert running.info.data_dir is None
        client = await connect_embedded(running.info)
        await start_task(client, "in-memory")
        assert await work(client, "in-memory") == "x"
        every = psutil.Process(running.info.pid).net_connections("tcp")
        ports = {each.laddr.port for each in every if each.status == psutil.CONN_LISTEN}
        assert len(ports) > 2
        for host in ("127.0.0.1", "localhost", "evil.example"):
            answers = {port: await answer_to_a_page(page, host, port) for port in ports}
            assert 403 in answers.values()  # the HTTP API is there, and closed
            assert all(status is None or status >= 400 for status in answers.values())
    assert is_gone(running.info.pid)
    await running.stop()


async def answer_to_a_page(page: httpx.AsyncClient, host: str, port: int) -> int | None:
    """Order a task as a page of a browser could; return the status, or None of a gRPC port."""
    headers = {"Host": f"{host}:{port}", "Origin": "https://evil.example"}
    headers["Content-Type"] = "text/plain"  # for which a browser asks nobody
    url = f"http://127.0.0.1:{port}/api/v1/namespaces/default/workflows/w"
    order = {"workflowType": {"name": "AgentTask"}, "taskQueue": {"name": "hf:clerk"}}
    with suppress(httpx.TransportError):
        return (await page.post(url, headers=headers, content=json.dumps(order))).status_code
    return None


async def test_an_owner_that_forks_does_not_keep_its_ephemeral_server_alive() -> None:
    code = HOLD_EPHEMERAL.replace(
        "sys.stdin.read()",
        "import os\nif os.fork() == 0:\n    sys.stdin.read()\n    os._exit(0)\n"
        "os.kill(os.getpid(), 9)",
    )
    with child(code) as (_, output):
        pid = int(await asyncio.to_thread(output.readline))
        assert await wait_until(lambda: is_gone(pid), SOON)


async def test_a_server_that_cannot_start_says_what_its_log_says(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "temporal"
    broken.write_text("#!/bin/sh\necho the disk is on fire >&2\nexit 1\n", encoding="utf-8")
    broken.chmod(0o755)
    monkeypatch.setenv("HOLDFAST_TEMPORAL_CLI", str(broken))
    with pytest.raises(ServerStartError, match="the disk is on fire"):
        await ensure_server(data_dir)
    assert not (data_dir / "server.json").exists()
    with pytest.raises(ServerStartError, match="the disk is on fire"):
        await ephemeral_server()


async def test_a_server_killed_while_it_makes_its_database_leaves_the_directory_usable(
    data_dir: Path,
) -> None:
    starting = asyncio.create_task(ensure_server(data_dir))
    assert await wait_until((data_dir / "temporal.db").exists, SOON)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    (server,) = processes_in(data_dir)
    os.kill(server.pid, signal.SIGKILL)
    assert await wait_until(lambda: is_gone(server.pid), SOON)
    with closing(sqlite3.connect(data_dir / "temporal.db", isolation_level=None)) as database:
        database.execute("CREATE TABLE IF NOT EXISTS executions (shard_id INTEGER)")
        database.execute("DROP TABLE IF EXISTS namespaces")
    again = await ensure_server(data_dir)
    await connect_embedded(again)
    assert read_json(data_dir / "server.json")["pid"] == again.pid
    assert not (data_dir / "setup").exists()


async def test_what_is_deleted_under_its_server_is_begun_anew_and_an_archive_is_told(
    data_dir: Path,
) -> None:
    first = await ensure_server(data_dir)
    shutil.rmtree(data_dir)
    second = await ensure_server(data_dir)
    for file in data_dir.glob("temporal.db*"):
        file.unlink()
    third = await ensure_server(data_dir)
    assert len({first.pid, second.pid, third.pid}) == 3
    assert is_gone(first.pid)
    assert is_gone(second.pid)
    client = await connect_embedded(third)
    await check_archive(client, Archive(data_dir / "archive"))
    (data_dir / "archive" / OWNER_FILE).write_text('{"id": "prod 1234"}')
    with pytest.raises(ArchiveMismatchError, match=f"'prod 1234'.* delete the file '{OWNER_FILE}'"):
        await check_archive(client, Archive(data_dir / "archive"))
    shutil.rmtree(data_dir / "archive")
    with pytest.raises(ArchiveMismatchError, match="was deleted or replaced") as refused:
        await check_archive(client, Archive(data_dir / "archive"))
    assert str(refused.value).count(str(data_dir)) == 1


IN_A_LOOP = """
async def kernel():
    runner.chat("What is 6 * 8?")  # blocks the loop, as a cell of a notebook does
asyncio.run(kernel())
sys.exit()
"""
ENDS = {
    "end of the program": "",
    "sys.exit": "sys.exit(3)",
    "exception": "1 / 0",
    "loop of a kernel": IN_A_LOOP,
}
KILLS = {
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "os._exit": "os._exit(0)",
}


USUAL = (("data", "loop of a kernel"), ("data", "SIGKILL"), ("memory", "SIGKILL"))


@pytest.mark.parametrize(
    ("where", "end"),
    [
        pytest.param(where, end, marks=() if (where, end) in USUAL else pytest.mark.exhaustive)
        for where in ("data", "memory")
        for end in ENDS | KILLS
    ],
)
async def test_a_runner_that_is_never_closed_leaves_no_server_however_its_process_ends(
    data_dir: Path, where: str, end: str
) -> None:
    directory = data_dir if where == "data" else ""
    with child(f"{NEVER_CLOSED}\n{(ENDS | KILLS)[end]}", directory) as (process, output):
        assert "42" in await asyncio.to_thread(output.readline)
        pid = int(await asyncio.to_thread(output.readline))
        await asyncio.to_thread(process.wait)
    if where == "data" and end in ENDS:
        assert is_gone(pid)
        assert not list((data_dir / "leases").iterdir())
    assert await wait_until(lambda: is_gone(pid), SOON)
    if where == "data":
        assert await wait_until(lambda: not list((data_dir / "leases").iterdir()), SOON)
