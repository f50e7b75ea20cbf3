import asyncio
import contextvars
import dataclasses
import os
import socket
import stat
import threading
import traceback
from collections.abc import Generator
from importlib import metadata
from pathlib import Path
from typing import NoReturn

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    DataConverter,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
)

from holdfast.archive.archive import Archive
from holdfast.engine.converter import THRESHOLD_BYTES, ArchiveStorageDriver, archive_storage
from holdfast.engine.dev_server.command import find_cli
from holdfast.engine.dev_server.process import end_process, is_alive, start_time
from holdfast.engine.dev_server.server import ensure_server, locked, prepare, read_json, write_json
from holdfast.engine.listening import listening_socket
from holdfast.engine.loop import LoopThread, shared_loop
from holdfast.engine.rests import may_rest, rest_of
from holdfast.errors import ServerStartError


@pytest.fixture
def loop() -> Generator[LoopThread]:
    made = LoopThread()
    yield made
    made.close()


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


async def fail() -> None:
    raise LookupError("of the coroutine")


def test_run_from_inside_the_loop_says_what_to_do(loop: LoopThread) -> None:
    async def inside() -> int:
        return loop.run(double(1))

    with pytest.raises(RuntimeError, match="from inside Holdfast's own loop"):
        loop.run(inside())


async def test_wrap_awaits_from_another_loop(loop: LoopThread) -> None:
    async def where() -> str:
        return threading.current_thread().name

    assert await loop.wrap(where()) == "holdfast-loop"
    with pytest.raises(LookupError):
        await loop.wrap(fail())


async def _wait(begun: threading.Event, steps: list[str]) -> None:
    try:
        begun.set()
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.01)
        steps.append("cleaned up")


async def test_wrap_passes_cancellation_on_and_waits_for_the_clean_up(loop: LoopThread) -> None:
    begun = threading.Event()
    steps: list[str] = []

    waiting = asyncio.create_task(loop.wrap(_wait(begun, steps)))
    await asyncio.to_thread(begun.wait, 100)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert steps == ["cleaned up"]


async def test_context_variables_are_passed_on(loop: LoopThread) -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("set")

    async def read() -> str:
        return variable.get()

    assert await loop.wrap(read()) == "set"


def test_close_cancels_what_runs_and_refuses_what_comes(loop: LoopThread) -> None:
    steps: list[str] = []
    begun = threading.Event()

    loop.submit(_wait(begun, steps))
    assert begun.wait(100)
    loop.close()
    loop.close()
    assert steps == ["cleaned up"]
    with pytest.raises(RuntimeError, match="closed"):
        loop.run(double(1))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_makes_its_own_loop_and_is_refused_the_old_one() -> None:
    old = shared_loop()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            assert shared_loop() is not old
            assert shared_loop().run(double(4)) == 8
            try:
                old.run(double(1))
            except RuntimeError as error:
                code = 0 if "forked" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert shared_loop() is old


def frames(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def test_an_error_of_ours_comes_without_the_frames_of_the_loop(loop: LoopThread) -> None:
    with pytest.raises(ServerStartError) as caught:
        loop.run(ensure_server(Path(os.devnull) / "data"))
    assert frames(caught.value) == [
        "test_an_error_of_ours_comes_without_the_frames_of_the_loop",
        "run",
    ]


async def _leave() -> None:
    raise SystemExit(3)


def test_a_loop_goes_on_when_code_on_it_wants_to_end_the_process() -> None:
    loop = LoopThread()
    with pytest.raises(SystemExit):
        loop.submit(_leave()).result(timeout=100)
    loop.loop.call_soon_threadsafe(loop.loop.stop)
    assert loop.run(asyncio.sleep(0, "still here")) == "still here"
    loop.close()
    assert loop.loop.is_closed()


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> NoReturn:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.delenv("HOLDFAST_TEMPORAL_CLI", raising=False)
    monkeypatch.setattr(metadata, "files", missing)


def test_the_variable_wins_and_one_that_names_nothing_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = executable(tmp_path / "mine")
    monkeypatch.setenv("HOLDFAST_TEMPORAL_CLI", str(named))
    assert find_cli() == named
    monkeypatch.setenv("HOLDFAST_TEMPORAL_CLI", str(tmp_path / "none"))
    with pytest.raises(ServerStartError, match="not an executable file"):
        find_cli()


def test_the_package_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_TEMPORAL_CLI", raising=False)
    monkeypatch.setenv("PATH", "")
    assert find_cli().name == "temporal"


@pytest.mark.usefixtures("no_package")
def test_the_path_is_next_and_without_any_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = executable(tmp_path / "bin" / "temporal")
    monkeypatch.setenv("PATH", str(found.parent))
    assert find_cli() == found
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ServerStartError, match=r"pip install 'holdfast-agents\[local\]'"):
        find_cli()


def test_a_new_directory_is_kept_out_of_git(tmp_path: Path) -> None:
    path = prepare(tmp_path / "deep" / "dir")
    assert (path / ".gitignore").read_text(encoding="utf-8") == "*\n"
    (path / ".gitignore").unlink()
    assert prepare(path) == path
    assert not (path / ".gitignore").exists()


def modes(root: Path) -> dict[str, int]:
    """Return the permissions of everything below a directory, and its own."""
    found = [root, *root.rglob("*")]
    return {str(each.relative_to(root.parent)): stat.S_IMODE(each.stat().st_mode) for each in found}


async def test_only_their_owner_can_read_the_data_directory_and_the_archive(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        path = prepare(tmp_path / "deep" / "dir")
        write_json(path / "server.json", {"pid": 1})
        async with locked(path):
            archive = Archive(path / "archive")
            archive.archive_id()
            archive.put(b"said in confidence")
            archive.put_record("tasks/t", {})
    finally:
        os.umask(before)
    found = modes(tmp_path / "deep")
    assert {name for name, mode in found.items() if mode & 0o077} == set()
    assert len(found) > 10


def test_a_file_is_not_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ServerStartError, match="file' is a file, not a directory"):
            prepare(path)


def test_a_file_is_replaced_and_a_damaged_one_is_none(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    assert read_json(path) is None
    write_json(path, {"a": 1})
    assert read_json(path) == {"a": 1}
    path.write_text("{", encoding="utf-8")
    assert read_json(path) is None
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


async def test_the_lock_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    inside = 0
    most = 0

    async def enter() -> None:
        nonlocal inside, most
        async with locked(tmp_path):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(enter() for _ in range(5)))
    assert most == 1


async def test_a_cancelled_waiter_does_not_take_the_lock(tmp_path: Path) -> None:
    async def enter() -> None:
        async with locked(tmp_path):
            pass

    async with locked(tmp_path):
        waiting = asyncio.create_task(enter())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
    await enter()


async def test_a_process_is_named_by_pid_and_start_time() -> None:
    started = start_time(os.getpid())
    assert started is not None
    assert is_alive(os.getpid(), started)
    assert not is_alive(os.getpid(), started - 60)
    assert not await end_process(os.getpid(), started - 60)
    assert start_time(2**22 + 1) is None


async def test_payloads_come_back_in_order_and_equal_ones_are_stored_once(tmp_path: Path) -> None:
    driver = ArchiveStorageDriver(Archive(tmp_path))
    payloads = [Payload(metadata={"b": b"1", "a": b"2"}, data=each) for each in (b"x", b"y", b"x")]
    claims = await driver.store(StorageDriverStoreContext(), payloads)
    assert claims[0] == claims[2]
    assert await driver.retrieve(StorageDriverRetrieveContext(), claims) == payloads
    assert sum(path.is_file() for path in tmp_path.rglob("*")) == 2


async def test_a_converter_stores_only_large_values(tmp_path: Path) -> None:
    converter = dataclasses.replace(
        DataConverter.default, external_storage=archive_storage(Archive(tmp_path))
    )
    small, large = "s", "l" * (THRESHOLD_BYTES + 1)
    encoded = await converter.encode([small, large])
    assert sum(path.is_file() for path in tmp_path.rglob("*")) == 1
    assert sum(each.ByteSize() for each in encoded) < 1000
    assert await converter.decode(encoded) == [small, large]


# ---- hints that tasks may rest


async def test_those_who_wait_for_a_task_are_told_from_another_thread() -> None:
    with rest_of("a") as first, rest_of("a") as second, rest_of("b") as other:
        thread = threading.Thread(target=may_rest, args=("a",))
        thread.start()
        await first.wait()
        await second.wait()
        thread.join()
        assert not other.is_set()


# ---- sockets at which programs listen


def test_a_port_is_taken_from_the_start() -> None:
    with listening_socket("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            listening_socket("127.0.0.1", port)
        with socket.create_connection(("127.0.0.1", port)):
            pass
    listening_socket("127.0.0.1", port).close()
