import asyncio
import os
import stat
from pathlib import Path

import pytest

from holdfast.archive.archive import Archive
from holdfast.engine.dev_server.process import end_process, is_alive, start_time
from holdfast.engine.dev_server.server import locked, prepare, read_json, write_json
from holdfast.errors import ServerStartError


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
