import asyncio
import importlib
import inspect
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.converter import DataConverter, ExternalStorage
from temporalio.service import RPCError, RPCStatusCode

import holdfast
from holdfast.archive import Keys
from holdfast.archive.archive import Archive, record_name
from holdfast.archive.bytestore import LocalStore, S3Store, blob_path, key_in, open_store
from holdfast.archive.kept_answers import drop_answers, drop_lanes, find_answer, keep_answer
from holdfast.archive.segments import commit_at, read_turns, turns, write_messages, write_record
from holdfast.engine.converter import ArchiveStorageDriver
from holdfast.errors import (
    ArchiveError,
    BlobMissingError,
    ConnectError,
    DigestMismatchError,
    InvalidArgumentError,
    NoWorkerError,
    QueryFailedError,
)
from holdfast.reading.queries import server_errors, unanswered
from holdfast.serving.plugin import HoldfastPlugin
from holdfast.task.data.head import TaskHead
from holdfast.task.data.state import CommitRef, SessionState, TaskRecord
from holdfast.task.data.wire import NOTHING_KEPT, KeptAnswer
from holdfast.values.base import canonical, digest
from holdfast.values.messages import user
from holdfast.values.steps import Task
from holdfast.workflows.session import read_commit
from tests.support.master_keys import LINE, keys


@pytest.fixture(params=["directory", "file url", "memory", "encrypted"])
def archive(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs_told: None
) -> Archive:
    del logs_told
    urls: dict[str, str | Path] = {
        "directory": tmp_path / "an archive",
        "file url": (tmp_path / "an archive").as_uri(),
        "memory": f"memory://{uuid4()}",
        "encrypted": f"memory://{uuid4()}",
    }
    if request.param == "encrypted":
        (tmp_path / "keys.txt").write_text(LINE)
        monkeypatch.setenv("HOLDFAST_KEYS", str(tmp_path / "keys.txt"))
    return Archive(urls[request.param])


def test_what_is_put_is_got(archive: Archive) -> None:
    for data in (b"", b"some bytes", bytes(300_000)):
        name = archive.put(data)
        assert (name, archive.put(data)) == (digest(data), name)
        assert archive.get(name) == data


def test_a_missing_blob_is_named_with_its_place(archive: Archive) -> None:
    missing = digest(b"never stored")
    with pytest.raises(BlobMissingError, match=missing) as caught:
        archive.get(missing)
    assert archive.url in str(caught.value)


def test_changed_bytes_are_noticed_and_a_blob_cut_short_is_healed(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    name = archive.put(b"original")
    path = tmp_path / "blobs" / name[:2] / name
    path.write_bytes(b"tampered")
    with pytest.raises(DigestMismatchError, match=str(path)):
        archive.get(name)
    path.write_bytes(b"orig")
    archive.put(b"original")
    assert archive.get(name) == b"original"


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive(tmp_path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ArchiveError, match="No space left on device"):
        archive.put(b"data")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", ["", "x", "../../etc/passwd", "A" * 64, "0" * 63])
def test_only_digests_name_blobs(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidArgumentError):
        Archive(tmp_path).get(name)


def test_records_are_replaced_listed_and_deleted(archive: Archive) -> None:
    first, second = record_name("tasks", "b/../ü?"), record_name("tasks", "a")
    assert archive.list_records("tasks/") == []
    assert not archive.has_record(first)
    assert archive.find_record(first) is None
    archive.put_record(first, {"n": 1})
    archive.put_record(first, {"n": 2, "text": "ü"})
    archive.put_record(second, [1, None])
    archive.put_record("other/c.json", {})
    assert archive.get_record(first) == archive.find_record(first) == {"n": 2, "text": "ü"}
    assert archive.list_records("tasks/") == sorted([first, second])
    assert archive.delete_record(first)
    assert not archive.delete_record(first)
    assert not archive.has_record(first)
    with pytest.raises(BlobMissingError, match="tasks/"):
        archive.get_record(first)


@pytest.mark.parametrize(
    "name", ["", "/etc/x", "../x", "a/../x", "a//x", "blobs/x", "archive.key", "a\\..\\x", "."]
)
def test_a_record_cannot_lead_elsewhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidArgumentError):
        Archive(tmp_path).put_record(name, {})


@given(st.text(min_size=1), st.text(min_size=1))
def test_different_keys_have_different_and_usable_names(one: str, other: str) -> None:
    assert (record_name("tasks", one) == record_name("tasks", other)) == (one == other)


def test_the_id_is_made_once(archive: Archive) -> None:
    made = archive.archive_id()
    assert (archive.archive_id(), Archive(archive.url).archive_id()) == (made, made)


def test_processes_at_once_agree_on_the_id_and_the_key(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom holdfast.archive.archive import Archive\n"
        "archive = Archive(sys.argv[1])\nprint(archive.archive_id(), archive.mac('a'))"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            stdout=subprocess.PIPE,
            env={"PYTHONPATH": str(Path(holdfast.__file__).parents[1])},
        )
        for _ in range(3)
    ]
    assert len({process.communicate()[0] for process in processes}) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"archive.json", "archive.key"}


def test_the_key_of_an_archive_is_for_its_owner(tmp_path: Path) -> None:
    Archive(tmp_path).mac("a")
    assert (tmp_path / "archive.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", ["", "{", "[]", '{"id": 1}'])
def test_a_damaged_id_is_an_error_and_stays(tmp_path: Path, content: str) -> None:
    (tmp_path / "archive.json").write_text(content, encoding="utf-8")
    with pytest.raises(ArchiveError, match=r"archive\.json"):
        Archive(tmp_path).archive_id()
    assert (tmp_path / "archive.json").read_text(encoding="utf-8") == content


def test_errors_say_what_is_wrong_with_the_place(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="nosuch"):
        Archive("nosuch://bucket")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ArchiveError, match="cannot be written"):
        Archive(tmp_path / "file").put(b"x")


def test_a_protocol_whose_package_is_missing_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    known: dict[str, object] = importlib.import_module("fsspec.registry")._registry
    monkeypatch.delitem(known, "s3", raising=False)  # it may be known by another test
    with pytest.raises(ArchiveError, match=r"pip install 'holdfast-agents\[s3\]'"):
        Archive("s3://bucket/prefix")


def test_every_method_has_an_async_twin() -> None:
    methods = inspect.getmembers(Archive, inspect.isfunction)
    public = {name: method for name, method in methods if not name.startswith("_")}
    names = [name for name in public if not (name[0] == "a" and name[1:] in public)]
    for name in names:
        twin = public[f"a{name}"]
        assert inspect.signature(twin) == inspect.signature(public[name])


async def test_the_record_of_another_end_is_kept_and_a_damaged_one_is_replaced(
    tmp_path: Path,
) -> None:
    archive = Archive(tmp_path)
    for status in ("finished", "finished", "abandoned"):
        task = Task(task_id="t", input="q", status=status).wire()
        await write_record(archive, "t", TaskRecord(task=task, head=TaskHead(agent="ann")))
    [kept] = archive.list_records("superseded")
    assert '"finished"' in str(archive.get_record(kept)).replace("'", '"')
    (tmp_path / "tasks" / "t.json").write_bytes(b"cut sh")
    await write_record(archive, "t", TaskRecord(task={}, head=TaskHead(agent="ann")))
    assert archive.list_records("superseded") == [kept]
    assert '"ann"' in str(archive.get_record("tasks/t.json")).replace("'", '"')


@pytest.mark.parametrize("key", ["t", "a/b c~d", "\ud800x", "é" * 30, "1=2", "x" * 180])
def test_the_name_of_a_record_gives_its_key_back(key: str) -> None:
    assert key_in(record_name("tasks", key)) == key


@pytest.mark.parametrize("key", ["x" * 181, *("a" * n + "é" * 200 for n in range(6))])
def test_the_name_of_a_long_key_gives_its_beginning(key: str) -> None:
    found = key_in(record_name("tasks", key))
    assert len(found) > 15
    assert key.startswith(found)


async def test_turns_of_a_session_are_read_once(tmp_path: Path) -> None:
    archive, lists = Archive(tmp_path), [[user(f"question {k}"), user("more")] for k in range(45)]
    digests = [await write_messages(archive, messages) for messages in lists]
    commits = [CommitRef(task=f"t{k}", sha256=each) for k, each in enumerate(digests)]
    page = await archive.aput(canonical([commit.wire() for commit in commits[:40]]))
    state = SessionState(commits=tuple(commits[40:]), older=(page,), base=40)
    told = [message for messages in lists for message in messages]
    assert await read_turns(archive, state, 44) == told[:88]
    for sha256 in digests[:44]:
        (tmp_path / blob_path(sha256)).unlink()
    assert await read_turns(archive, state, 45) == told
    with pytest.raises(BlobMissingError):
        await read_turns(Archive(tmp_path), state, 45)


# ---- answers in the archive that their tasks have not recorded yet

MINE = KeptAnswer(activity="run:7", runs={0: "digest"})


async def test_an_answer_is_found_by_its_activity_alone(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    await keep_answer(archive, "t", 0, MINE)
    assert await find_answer(archive, "t", 0, ("run:9", "run:7")) == MINE
    for task, lane, activity in (("t", 0, "run:8"), ("t", 1, "run:7"), ("t.0", 0, "run:7")):
        assert await find_answer(archive, task, lane, (activity, "")) == NOTHING_KEPT


async def test_an_answer_that_a_power_cut_has_damaged_counts_as_none(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    await keep_answer(archive, "t", 0, MINE)
    [file] = (tmp_path / "answers").iterdir()
    file.write_bytes(b"")
    assert await find_answer(archive, "t", 0, ("run:7",)) == NOTHING_KEPT


@pytest.mark.usefixtures("logs_told")
async def test_an_encrypted_answer_that_was_cut_anywhere_counts_as_none(tmp_path: Path) -> None:
    archive = Archive(tmp_path, keys=keys())
    await keep_answer(archive, "t", 0, MINE)
    [file] = (tmp_path / "answers").iterdir()
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        assert await find_answer(archive, "t", 0, ("run:7",)) == NOTHING_KEPT, length
    file.write_bytes(whole)
    assert await find_answer(archive, "t", 0, ("run:7",)) == MINE


async def test_the_answers_of_all_lanes_of_a_task_are_dropped(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    long = "long, " * 100
    for task in ("t", "t.0", "other", long):
        await keep_answer(archive, task, 2, MINE)
        await keep_answer(archive, task, 100, MINE)  # a task's first lanes may have nothing
    await drop_answers(archive, ["t", long])
    others = ["t.0.100", "t.0.2"]
    left = [f"answers/{each}.json" for each in ("other.100", "other.2", *others)]
    assert await archive.alist_records("answers") == left
    await drop_lanes(archive, "other", 101)
    assert await archive.alist_records("answers") == left[2:]


# ---- what an archive asks of a bucket that it may read and write, and not list


class Bucket(BaseHTTPRequestHandler):
    """S3 without leave to list: it says 403 of what is missing."""

    objects: dict[str, bytes]
    asked: list[str]
    is_shut = False
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Return an object, or its length."""
        path, _, query = self.path.partition("?")
        self.asked.append("LIST" if "list-type" in query else self.command)
        data = None if self.is_shut or "list-type" in query else self.objects.get(path)
        denied = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"
        self.answer(403 if data is None else 200, denied if data is None else data)

    do_HEAD = do_GET  # noqa: N815

    def do_PUT(self) -> None:
        """Put an object, unless it is there."""
        self.asked.append(self.command)
        data = self.rfile.read(int(self.headers["Content-Length"]))
        is_there = self.headers.get("If-None-Match") and self.path in self.objects
        taken = b"<Error><Code>PreconditionFailed</Code></Error>"
        if not is_there:
            self.objects[self.path] = data
        self.answer(412 if is_there else 200, taken if is_there else b"")

    def answer(self, status: int, data: bytes) -> None:
        """Send an answer."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Last-Modified", "Sun, 01 Nov 2026 10:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def bucket(buckets: Any, monkeypatch: pytest.MonkeyPatch) -> Generator[type[Bucket]]:
    """Serve a bucket."""
    Bucket.objects, Bucket.asked, Bucket.is_shut = {}, [], False
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
    threading.Thread(target=server.serve_forever).start()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    yield Bucket
    server.shutdown()
    server.server_close()


def test_what_is_there_and_what_is_missing_is_told_without_a_list(bucket: type[Bucket]) -> None:
    store = open_store("s3://b/root", {})
    assert isinstance(store, S3Store)
    assert store.size("x") is None
    store.write("x", b"some")
    assert (store.size("x"), store.read("x")) == (4, b"some")
    assert bucket.asked == ["HEAD", "PUT", "HEAD", "GET"]
    assert store.written("x") == 1_793_527_200
    with pytest.raises(FileNotFoundError):
        store.read("y")
    assert store.size("y") is None
    assert "LIST" not in bucket.asked
    bucket.is_shut = True
    for ask in (store.read, store.size):
        with pytest.raises(PermissionError):  # not taken for a missing one
            ask("x")


def test_an_answer_and_a_record_are_put_and_read_back_by_a_request_each(
    bucket: type[Bucket],
) -> None:
    archive = Archive("s3://b/root")
    name = archive.put(b"answer")
    bucket.asked.clear()  # the first one looked whether the archive is encrypted
    assert archive.find_record("tasks/t") is None
    archive.put_record("tasks/t", {"answer": archive.put(b"another")})
    assert archive.find_record("tasks/t") == {"answer": archive.put(b"another")}
    assert archive.get(name) == b"answer"
    assert "LIST" not in bucket.asked
    assert bucket.asked[-6:] == ["PUT", "PUT", "GET", "PUT", "HEAD", "GET"]
    [path] = [path for path, data in bucket.objects.items() if data == b"answer"]
    bucket.objects[path] = b"answ"  # cut short
    archive.put(b"answer")
    assert archive.get(name) == b"answer"


# ---- the client's pure parts, the archive's failures, and what a session reads


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
