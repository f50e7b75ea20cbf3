"""What is held in a bucket with Object Lock cannot be deleted there either."""

import asyncio
import itertools
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any
from urllib.request import Request, urlopen

import pytest
from moto.s3.exceptions import AccessDeniedByLock
from moto.s3.models import S3Backend
from moto.server import ThreadedMotoServer

from holdfast import AgentRunner
from holdfast.archive import Archive, Keys
from holdfast.archive.bytestore import S3Store, key_id, key_path, record_name, writing_for
from holdfast.archive.holds import end_hold
from holdfast.cli.commands.keeping import end_hold_command, hold_command
from holdfast.cli.options import Common
from holdfast.errors import ArchiveError
from holdfast.reading.audit.verification import evidence
from holdfast.reading.reader import Reader
from holdfast.values.checks.gate import as_object
from tests.live.test_erasure import finished, served
from tests.support.cli import Cli
from tests.support.master_keys import keys
from tests.support.rig import until

pytestmark = pytest.mark.usefixtures("logs_told")


MOST_LOCKED = 3
"""Files that a client locks before it is killed."""


ON = {"Status": "ON"}


@pytest.fixture
def bucket(buckets: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "a")
    s3 = buckets()
    s3.call_s3("create_bucket", Bucket="plain")
    s3.call_s3("create_bucket", Bucket="locked", ObjectLockEnabledForBucket=True)
    yield s3
    urlopen(Request(f"http://{host}:{port}/moto-api/reset", method="POST")).close()
    server.stop()


@asynccontextmanager
async def runner_of(
    bucket: Any, place: Path, keys: Keys | None = None, name: str = "locked"
) -> AsyncGenerator[AgentRunner]:
    """Run tasks of two people on a disk, and move the archive into a bucket."""
    async with AgentRunner.local(served(*["answer"] * 3), data_dir=place, keys=keys) as local:
        await finished(local, "MKquestion", session="talk", task_id="t1", by="kim")
        await finished(local, "again", session="talk", task_id="t2", by="kim")
        await finished(local, "mine", task_id="t3", by="bo")
        bucket.put(f"{local.archive.url}/", f"{name}/a/", recursive=True)
        archive = Archive(f"s3://{name}/a", keys=keys)
        yield AgentRunner(agent="clerk", client=local.client, archive=archive)


def paged(patch: pytest.MonkeyPatch, answer: Any = None) -> None:
    """Have lists of versions come in pages of one; or answer what asks for Object Lock."""
    before = S3Store._call

    def call(store: S3Store, method: str, path: str, **given: Any) -> Any:
        if method == "list_object_versions":
            given["MaxKeys"] = 1
        elif method == "get_object_lock_configuration" and answer is not None:
            return answer()
        return before(store, method, path, **given)

    patch.setattr(S3Store, "_call", call)


def locked(bucket: Any, *, alone: bool = False) -> set[str]:
    """Return which versions of files have a legal hold; with `alone`, delete all else."""
    found = set[str]()
    for each in bucket.call_s3("list_object_versions", Bucket="locked").get("Versions", ()):
        asked = {"Bucket": "locked", "Key": each["Key"], "VersionId": each["VersionId"]}
        said = bucket.call_s3("get_object_legal_hold", **asked)
        if said.get("LegalHold", {}).get("Status") == "ON":
            with pytest.raises(PermissionError):
                bucket.call_s3("delete_object", **asked)
            found.add(f"{each['Key'].removeprefix('a/')} {each['VersionId']}")
        elif alone:
            bucket.call_s3("delete_object", **asked)
    return found


def named(versions: set[str]) -> set[str]:
    return {each.split()[0] for each in versions}


@pytest.mark.parametrize("own", [None, keys()], ids=["plain", "encrypted"])
async def test_files_are_locked_until_the_last_hold_of_them_ends(
    own: Keys | None, bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paged(monkeypatch)
    async with runner_of(bucket, tmp_path, own) as runner:
        others = {record_name("tasks", "t1.5"), record_name("tasks", "t1.json")}
        others.add(record_name("sessions", f"{runner.session('talk').id}.b"))
        for each in others:
            runner.archive.put_record(each, runner.archive.get_record("tasks/t3.json"))
        held = await runner.hold("task:t1", case="A", by="ann")
        first = locked(bucket)
        assert held.locked == len(first)
        own_files = {each for each in named(first) if not each.startswith(("blobs/", "keys/"))}
        assert own_files - {"archive.key"} == {"tasks/t1.json", "effects/t1/0.2.0.0.json"}
        sha256 = runner.archive.put(b"late")  # and nothing refers to it
        whole = runner.archive.get_record("tasks/t1.json")
        runner.archive.put_record("tasks/t1.json", whole)
        assert (await runner.hold("task:t1", case="A", by="ann")).locked == held.locked
        assert len(locked(bucket)) == len(first) + 1  # both versions of the record
        assert not [each for each in named(locked(bucket)) if sha256 in each]

        await runner.hold("person:kim", case="B", by="ann")
        both = locked(bucket)
        assert {"tasks/t1.json", "tasks/t2.json"} <= named(both)
        assert named(both).isdisjoint({"tasks/t3.json", *others})
        await runner.end_hold("task:t1", case="A", by="ann")
        assert locked(bucket) == both
        await runner.hold("task:t1", case="A", by="ann")
        both_there = asyncio.Barrier(2)

        async def end(*given: Any, **options: Any) -> Any:
            await both_there.wait()
            return await end_hold(*given, **options)

        monkeypatch.setattr("holdfast.client.agent_runner.erasing.end_hold", end)
        ends = [("person:kim", "B"), ("task:t1", "A")]
        await asyncio.gather(*(runner.end_hold(each, case=case, by="ann") for each, case in ends))
        assert locked(bucket) == set()


@pytest.mark.parametrize("own", [None, keys()], ids=["plain", "encrypted"])
async def test_what_is_locked_proves_what_is_held_without_all_else(
    own: Keys | None, bucket: Any, tmp_path: Path
) -> None:
    async with runner_of(bucket, tmp_path, own) as runner:
        record = as_object(runner.archive.get_record("tasks/t2.json"))
        with writing_for("t3"):  # which has a value that `t2` has for itself
            runner.archive.put(runner.archive.get(str(as_object(record["segment"])["sha256"])))
        await runner.hold("task:t2", case="A", by="ann")  # and `t1` has the turn before it
        assert key_path(key_id("t3")) not in named(locked(bucket, alone=True))
        reader = Reader(runner.client, Archive(runner.archive.url, keys=own))
        assert not (await evidence(reader, "t2"))[1]
        assert [each.text for each in await reader.transcript("t2")][-2:] == ["again", "answer"]


async def test_a_task_that_no_worker_serves_does_not_keep_others_from_being_locked(
    bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def torn(*_: object) -> None:
        raise ArchiveError("It is torn.")

    async with runner_of(bucket, tmp_path, keys()) as runner:
        lone = AgentRunner(
            agent="clerk", client=runner.client, archive=runner.archive, queue="gone"
        )
        await lone.create_task("open", task_id="t4", by="kim", session="lone")
        with writing_for("t4"):  # by its own data key
            runner.archive.put_record("effects/t4/0.json", {})
        for _ in range(2):
            with pytest.raises(ArchiveError, match=r"It is held.*Start") as caught:
                await runner.hold("person:kim", case="A", by="ann")
            assert "s3:" not in str(caught.value)
        of_it = {"tasks/t1.json", "tasks/t2.json", "effects/t4/0.json", key_path(key_id("t4"))}
        assert of_it <= named(locked(bucket))
        ended = await runner.end_hold("person:kim", case="A", by="ann")
        assert locked(bucket) == set()
        bucket.pipe("locked/a/tasks/t2.json", b"{")  # may be anybody's
        with monkeypatch.context() as patch:
            patch.setattr(Reader, "session", torn)
            with pytest.raises(ArchiveError, match=r"It is held.*torn"):
                await runner.hold("task:t1", case="B", by="ann")
        assert "tasks/t1.json" in named(locked(bucket))
        assert (await runner.hold("person:bo", case="B", by="ann")).locked
        for each in ("task:t1", "person:bo"):
            await runner.end_hold(each, case="B", by="ann")
        # As where S3 failed after the end was recorded.
        bucket.call_s3(
            "put_object_legal_hold", Bucket="locked", Key="a/tasks/t1.json", LegalHold=ON
        )
        assert await runner.end_hold("person:kim", case="A", by="bo") == ended
        assert locked(bucket) == set()


async def test_where_locking_is_refused_the_hold_stands_and_is_locked_later(
    bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> None:
        raise AccessDeniedByLock

    async with runner_of(bucket, tmp_path) as runner:
        with monkeypatch.context() as patch:
            patch.setattr(S3Backend, "put_object_legal_hold", denied)
            with pytest.raises(ArchiveError, match=r"(?s)It is held.*s3:PutObjectLegalHold"):
                await runner.hold("task:t1", case="A", by="ann")
        assert [each.case for each in await runner.list_holds()] == ["A"]
        # One that was added while this one ended has its files locked all the same.
        before = S3Backend.put_object_legal_hold
        assert (await runner.hold("task:t1", case="A", by="ann")).locked
        all_of_it = locked(bucket)
        meanwhile = list[str]()

        def put(backend: S3Backend, *given: Any) -> None:
            before(backend, *given)
            if not meanwhile:
                meanwhile.append("B")
                other = Archive("s3://locked/a")
                hold = other.get_record(other.list_records("holds")[0])
                assert isinstance(hold, dict)
                other.put_record("holds/b.json", {**hold, "id": "b", "case": "B"})
                for name in other.list_records("locks"):
                    other.put_record("locks/b/1.json", other.get_record(name))

        monkeypatch.setattr(S3Backend, "put_object_legal_hold", put)
        await runner.end_hold("task:t1", case="A", by="ann")
        assert locked(bucket) == all_of_it


async def test_a_bucket_without_object_lock_is_told(
    bucket: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with runner_of(bucket, tmp_path, name="plain") as runner:
        host = runner.client.service_client.config.target_host
        common = Common(
            data_dir=None, address=host, namespace=None, archive=runner.archive.url, json=False
        )
        for each in (hold_command, end_hold_command):
            await each(common, "task:t1", app=runner.app, case="A", by="ann", reason="")
        said = capsys.readouterr().err
        assert said.count("with Object Lock") == 1

        def denied() -> None:
            raise PermissionError(13)

        paged(monkeypatch, dict)
        assert (await runner.hold("task:t1", case="A", by="ann")).locked is None
        paged(monkeypatch, denied)
        with pytest.raises(ArchiveError, match=r"It is held.*Allow s3:GetBucketObjectLock"):
            await runner.hold("task:t1", case="A", by="ann")
        await runner.end_hold("task:t1", case="A", by="ann")
        assert await runner.list_holds() == []


async def test_a_hold_whose_client_was_killed_unlocks_at_its_end_what_was_locked(
    bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, count, is_killed = S3Backend.put_object_legal_hold, itertools.count(), Event()

    def put(*given: Any) -> None:
        if next(count) >= MOST_LOCKED and not is_killed.is_set():
            is_killed.wait()
            raise AccessDeniedByLock
        before(*given)

    async with runner_of(bucket, tmp_path) as runner:
        monkeypatch.setattr(S3Backend, "put_object_legal_hold", put)
        config = runner.client.service_client.config
        where = ["--address", config.target_host, "--archive", runner.archive.url]
        add = ["hold", "add", "session:talk", "--case", "A", "--by", "ann", "--app", runner.app]
        with Cli(tmp_path).running(*add, *where) as client:
            await until(lambda: asyncio.to_thread(locked, bucket))
            client.end(signal.SIGKILL)
        is_killed.set()
        assert locked(bucket)
        await runner.end_hold("session:talk", case="A", by="ann")
        assert locked(bucket) == set()
