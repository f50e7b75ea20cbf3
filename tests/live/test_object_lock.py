"""What is held in a bucket with Object Lock cannot be deleted there either."""

import asyncio
import itertools
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any
from urllib.request import Request, urlopen

import fsspec
import pytest
from moto.s3.exceptions import AccessDeniedByLock
from moto.s3.models import S3Backend
from moto.server import ThreadedMotoServer

from holdfast import AgentRunner
from holdfast.archive import Archive, Keys
from holdfast.cli.commands.keeping import end_hold_command, hold_command
from holdfast.cli.options import Common
from holdfast.errors import ArchiveError
from tests.live.test_erasure import finished, served
from tests.support.master_keys import keys, logs_are_told_again
from tests.support.rig import until

__all__ = ["logs_are_told_again"]
pytestmark = pytest.mark.usefixtures("logs_told")


MOST_LOCKED = 3
"""Files that a client locks before it is killed."""


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Any:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "a")
    known: Any = fsspec  # it ships no types
    known.get_filesystem_class("s3").clear_instance_cache()  # one of another server
    s3 = known.filesystem("s3")
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


def locked(bucket: Any) -> set[str]:
    """Return which versions of files have a legal hold."""
    found = set[str]()
    for each in bucket.call_s3("list_object_versions", Bucket="locked").get("Versions", ()):
        asked = {"Bucket": "locked", "Key": each["Key"], "VersionId": each["VersionId"]}
        said = bucket.call_s3("get_object_legal_hold", **asked)
        if said.get("LegalHold", {}).get("Status") == "ON":
            with pytest.raises(PermissionError):
                bucket.call_s3("delete_object", **asked)
            found.add(f"{each['Key'].removeprefix('a/')} {each['VersionId']}")
    return found


def named(versions: set[str]) -> set[str]:
    return {each.split()[0] for each in versions}


@pytest.mark.parametrize("own", [None, keys()], ids=["plain", "encrypted"])
async def test_files_are_locked_until_the_last_hold_of_them_ends(
    own: Keys | None, bucket: Any, tmp_path: Path
) -> None:
    async with runner_of(bucket, tmp_path, own) as runner:
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
        assert "tasks/t3.json" not in named(both)
        await runner.end_hold("task:t1", case="A", by="ann")
        assert locked(bucket) == both
        await runner.end_hold("person:kim", case="B", by="ann")
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
    bucket: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
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
        assert await runner.list_holds() == []


async def test_a_hold_whose_client_is_killed_is_whole_when_it_is_added_again(
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
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "holdfast", *add, *where, env=dict(os.environ)
        )
        await until(lambda: asyncio.to_thread(locked, bucket))
        client.kill()
        await client.wait()
        is_killed.set()
        some = locked(bucket)
        held = await runner.hold("session:talk", case="A", by="ann")
        assert len(some) < len(locked(bucket)) == held.locked
        assert len(await runner.list_holds()) == 1
        await runner.end_hold("session:talk", case="A", by="ann")
        assert locked(bucket) == set()
