"""The client's pure parts, the archive's failures, and what a session reads."""

# pyright: reportPrivateUsage=false

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from temporalio.converter import DataConverter, ExternalStorage
from temporalio.service import RPCError, RPCStatusCode

from holdfast.archive import Archive, Keys
from holdfast.archive.bytestore import LocalStore
from holdfast.archive.segments import commit_at, turns
from holdfast.engine.converter import ArchiveStorageDriver
from holdfast.errors import (
    ArchiveError,
    BlobMissingError,
    ConnectError,
    InvalidArgumentError,
    NoWorkerError,
    QueryFailedError,
)
from holdfast.reading.queries import server_errors, unanswered
from holdfast.serving.plugin import HoldfastPlugin
from holdfast.task.data.state import CommitRef, SessionState
from holdfast.values.base import canonical, digest
from holdfast.workflows.session import read_commit
from tests.support.master_keys import keys, logs_are_told_again

__all__ = ["logs_are_told_again"]


@pytest.mark.parametrize("what", ["blob", "record", "deletion"])
def test_a_write_that_finds_no_place_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    archive = Archive(tmp_path)

    def no_bucket(*_: object) -> None:
        raise FileNotFoundError("The specified bucket does not exist")

    monkeypatch.setattr(LocalStore, "write", no_bucket)
    monkeypatch.setattr(LocalStore, "delete", no_bucket)
    if what == "deletion":
        assert not archive.delete_record("tasks/a.json")
        archive._id = "known, and gone"
    uses: dict[str, Callable[[], object]] = {
        "blob": lambda: archive.put(b"data"),
        "record": lambda: archive.put_record("tasks/a.json", {}),
        "deletion": lambda: archive.delete_record("tasks/a.json"),
    }
    with pytest.raises(ArchiveError, match=r"bucket|archive\.json") as caught:
        uses[what]()
    assert not isinstance(caught.value, BlobMissingError)


@pytest.mark.usefixtures("logs_told")
@pytest.mark.parametrize("given", [None, keys()], ids=["plain", "encrypted"])
def test_an_archive_whose_disk_is_lost_is_not_made_anew_and_lacks_nothing(
    tmp_path: Path, given: Keys | None
) -> None:
    archive = Archive(tmp_path / "mounted", keys=given)
    archive.archive_id()
    kept = archive.put(b"kept")
    (tmp_path / "mounted").rename(tmp_path / "away")
    for use in (
        lambda: archive.put(b"more"),
        lambda: archive.put_record("tasks/a.json", {}),
        lambda: archive.get(kept),
    ):
        with pytest.raises(ArchiveError) as caught:
            use()
        assert not isinstance(caught.value, BlobMissingError)
    assert not (tmp_path / "mounted").exists()
    (tmp_path / "away").rename(tmp_path / "mounted")
    assert archive.get(kept) == b"kept"
    with pytest.raises(BlobMissingError):
        archive.get(digest(b"more"))


@pytest.mark.parametrize("status", list(RPCStatusCode))
def test_no_error_of_the_server_reaches_a_caller_raw(status: RPCStatusCode) -> None:
    kind = InvalidArgumentError if status is RPCStatusCode.INVALID_ARGUMENT else ConnectError
    with pytest.raises(kind, match="said why"), server_errors():
        raise RPCError("said why", status, b"")


@pytest.mark.parametrize(
    ("said", "status", "kind", "text"),
    [
        ("no poller seen lately", RPCStatusCode.FAILED_PRECONDITION, NoWorkerError, "'hf:a'"),
        ("Timeout expired", RPCStatusCode.CANCELLED, QueryFailedError, "counts for 70 s"),
        ("too slow", RPCStatusCode.DEADLINE_EXCEEDED, QueryFailedError, "polled the queue 'hf:a'"),
        ("not begun", RPCStatusCode.FAILED_PRECONDITION, QueryFailedError, "with: not begun"),
    ],
)
def test_a_query_without_an_answer_says_what_is_known_of_the_worker(
    said: str, status: RPCStatusCode, kind: type[Exception], text: str
) -> None:
    error = unanswered(RPCError(said, status, b""), "task-1", "view", "hf:a")
    assert type(error) is kind
    assert "task-1" in str(error)
    assert text in str(error)


@pytest.mark.parametrize(
    ("name", "payloads"),
    [
        ("commit", []),
        ("commit", [b"{}", b"{}"]),
        ("commit", [b"rubbish"]),
        ("commit", [b"\xff\xfe"]),
        ("commit", [b"[" * 100_000]),
        ("commit", [b'{"task": 1}']),
        ("commit", [b'{"task": "t", "sha256": "no digest"}']),
        ("other", [b'{"task": "t"}']),
    ],
)
def test_what_is_no_commit_is_none_and_raises_nothing(name: str, payloads: list[bytes]) -> None:
    assert read_commit(name, payloads) is None


@pytest.mark.parametrize("size", [1, 3, 20])
def test_turns_that_others_replace_are_not_in_force_however_they_are_indexed(
    tmp_path: Path, size: int
) -> None:
    archive = Archive(tmp_path)
    replaces = {2: 1, 3: 2, 6: 1, 8: 5}  # the last one more turns than there are since the reset
    commits = [
        CommitRef(task=f"{k}", sha256="" if k == 5 else digest(b"%d" % k), replaces=n)
        for k, n in ((k, replaces.get(k, 0)) for k in range(10))
    ]
    pages = [commits[k : k + size] for k in range(0, len(commits) - size, size)]
    older = tuple(archive.put(canonical([c.wire() for c in page])) for page in pages)
    base = sum(map(len, pages))
    state = SessionState(commits=tuple(commits[base:]), older=older, base=base, index_size=size)
    wanted = {1: "0", 2: "01", 3: "02", 4: "3", 5: "34", 6: "", 7: "6", 8: "67", 9: "8", 10: "89"}
    for upto, tasks in wanted.items():
        found = asyncio.run(turns(archive, state, upto))
        assert "".join(commit.task for commit in found) == tasks
    for n, commit in enumerate(commits):
        assert asyncio.run(commit_at(archive, state, n)) == commit
    assert asyncio.run(commit_at(archive, state, 10)) is None


def test_the_plugin_keeps_a_teams_own_external_storage(tmp_path: Path) -> None:
    plugin = HoldfastPlugin(archive=Archive(tmp_path / "ours"))
    own = ExternalStorage(drivers=[ArchiveStorageDriver(Archive(tmp_path / "theirs"))])

    def configured(converter: DataConverter) -> DataConverter:
        config: Any = {"data_converter": converter, "plugins": []}
        made: DataConverter = plugin.configure_client(config)["data_converter"]
        return made

    assert configured(DataConverter(external_storage=own)).external_storage is own
    assert configured(DataConverter.default).external_storage is not None
