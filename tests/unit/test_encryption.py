import base64
import json
import logging
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import httpx
import pytest
from fsspec import AbstractFileSystem
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from google.protobuf.json_format import MessageToDict
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.failure.v1 import Failure
from temporalio.converter import (
    DataConverter,
    DefaultFailureConverter,
    FailureConverter,
    PayloadConverter,
    WorkflowSerializationContext,
)

from holdfast.archive import Archive, Keys, hashed
from holdfast.archive.bytestore import (
    FsspecStore,
    LocalStore,
    blob_path,
    key_id,
    key_path,
    writing_for,
)
from holdfast.archive.encryption import data_keys as cached_keys
from holdfast.archive.encryption.codec import KeysCodec, encrypting
from holdfast.archive.encryption.data_keys import DataKeys
from holdfast.archive.encryption.store import EncryptedStore
from holdfast.cli.commands.start.codec import codec_app
from holdfast.desk.identity.tokens import Tokens
from holdfast.engine.converter import holdfast_converter, telling
from holdfast.errors import (
    ArchiveError,
    DigestMismatchError,
    ErasedError,
    InvalidArgumentError,
    KeyMissingError,
    is_torn,
)
from holdfast.task.data.state import SessionState, TaskInput
from holdfast.values.text.logs import log
from tests.support.master_keys import K1, K2, LINE, keys

pytestmark = pytest.mark.usefixtures("logs_told")

TEXT = b"the words of a person"


def files(place: Path) -> dict[str, bytes]:
    return {
        each.relative_to(place).as_posix(): each.read_bytes()
        for each in place.rglob("*")
        if each.is_file()
    }


def encrypted(archive: Archive) -> EncryptedStore:
    assert archive.encrypted is not None
    return archive.encrypted


def test_no_text_and_no_digest_of_one_is_in_the_archive(tmp_path: Path) -> None:
    archive = Archive(tmp_path, keys=keys())
    name = archive.put(TEXT)
    archive.put_record("tasks/t.json", {"q": TEXT.decode()})
    archive.create_record("tasks/u.json", {"q": TEXT.decode()})
    secret = archive.mac("x")
    found = files(tmp_path)
    assert not [path for path, data in found.items() if TEXT in data or name in path]
    assert found["archive.key"].startswith(b"\x00HFE1")
    again = Archive(tmp_path, keys=keys())
    assert (again.get(name), again.mac("x")) == (TEXT, secret)
    assert again.get_record("tasks/u.json") == {"q": TEXT.decode()}


def test_equal_texts_look_different_and_a_changed_or_moved_file_is_noticed(tmp_path: Path) -> None:
    archive = Archive(tmp_path, keys=keys())
    for name in ("tasks/a.json", "tasks/b.json"):
        archive.put_record(name, {"same": 1})
    a, b = tmp_path / "tasks/a.json", tmp_path / "tasks/b.json"
    assert a.read_bytes() != b.read_bytes()
    a.write_bytes(b.read_bytes())
    with pytest.raises(DigestMismatchError, match=r"a\.json' was changed"):
        archive.get_record("tasks/a.json")
    *kept, last = b.read_bytes()
    b.write_bytes(bytes([*kept, last ^ 1]))
    with pytest.raises(DigestMismatchError, match="Restore it from a backup"):
        archive.get_record("tasks/b.json")


def test_master_keys_are_exchanged_without_touching_what_they_encrypt(tmp_path: Path) -> None:
    name = Archive(tmp_path, keys=keys()).put(TEXT)
    before = files(tmp_path)
    both = Archive(tmp_path, keys=keys(k2=K2, k1=K1))
    assert both.get(name) == TEXT
    rotating = encrypted(both).data_keys.rotate()
    assert next(rotating)
    rotating.close()  # killed after the first: the rest is done by the next one
    assert sorted(encrypted(both).data_keys.masters()) == ["k1", "k2"]
    assert sorted(encrypted(both).data_keys.rotate()) == [False, True]
    after = files(tmp_path)
    assert [path for path in before if before[path] != after[path]] == [
        path for path in before if path.startswith("keys/")
    ]
    assert Archive(tmp_path, keys=keys(k2=K2)).get(name) == TEXT
    with pytest.raises(KeyMissingError, match=r"the key 'k2', which is not here \(only k1\)"):
        Archive(tmp_path, keys=keys()).archive_id()


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (None, "is encrypted, and this process has no keys"),
        ({"k9": K2}, "the key 'k1', which is not here"),
        ({"k1": K2}, "another key of the name 'k1'"),
    ],
)
def test_a_process_without_the_key_is_told_which_and_reads_and_changes_nothing(
    tmp_path: Path, other: dict[str, bytes] | None, why: str
) -> None:
    """Also a program that asks for no id: a worker's tools, a script with a client."""
    archive = Archive(tmp_path, keys=keys())
    archive.archive_id()
    name, before = archive.put(TEXT), files(tmp_path)
    uses: list[Callable[[Archive], object]] = [
        Archive.archive_id,
        lambda archive: archive.put(b"new"),
        lambda archive: archive.get(name),
        lambda archive: archive.create_record("tasks/a.json", {}),
        lambda archive: archive.find_record("tasks/a.json"),
        lambda archive: archive.mac("x"),
    ]
    for use in uses:
        with pytest.raises(KeyMissingError, match=why):
            use(Archive(tmp_path, keys=Keys(other) if other else None))
    assert files(tmp_path) == before


def test_what_was_written_without_keys_is_read_and_can_be_encrypted(tmp_path: Path) -> None:
    plain = Archive(tmp_path)
    id, name, code = plain.archive_id(), plain.put(TEXT), plain.mac("x")
    plain.put_record("tasks/t.json", {"q": TEXT.decode()})
    archive = Archive(tmp_path, keys=keys())
    for _ in range(2):
        assert (archive.archive_id(), archive.get(name), archive.mac("x")) == (id, TEXT, code)
        assert archive.get_record("tasks/t.json") == {"q": TEXT.decode()}
        assert archive.put(TEXT) == name
        list(encrypted(archive).encrypt_plain())
    assert not [path for path, data in files(tmp_path).items() if TEXT in data]
    assert blob_path(name) not in files(tmp_path)
    assert not any(encrypted(archive).encrypt_plain())


def test_plain_text_in_the_place_of_what_is_encrypted_is_refused_once_all_is(
    tmp_path: Path,
) -> None:
    """What says so is bound to the key without which no value can be read."""
    begun_plain, begun_with_keys, name = tmp_path / "plain", tmp_path / "keys", ""
    Archive(begun_plain).archive_id()
    for place in (begun_plain, begun_with_keys):
        archive = Archive(place, keys=keys())
        archive.archive_id()
        name = archive.put(TEXT)
        archive.put_record("tasks/t.json", {})
        archive.mac("x")
        (place / "tasks/t.json").write_bytes(b'{"by": "me"}')
        (place / "archive.key").write_bytes(b"0" * 64)
        again = Archive(place, keys=keys())
        for read in (partial(again.get_record, "tasks/t.json"), partial(again.mac, "x")):
            if place == begun_plain:
                assert read()
                continue
            with pytest.raises(DigestMismatchError, match="plain text, and all of this"):
                read()
            assert "plain text" in again.problem_of("tasks/t.json")
    store = encrypted(Archive(begun_plain, keys=keys()))
    assert sum(store.encrypt_plain()) == 2
    assert sum(store.data_keys.rotate(is_all=True)) == 1
    assert sum(store.data_keys.rotate()) == 0
    assert all([*encrypted(Archive(begun_plain, keys=keys(k2=K2, k1=K1))).data_keys.rotate()])
    archive = Archive(begun_plain, keys=keys(k2=K2))
    assert (archive.get(name), archive.get_record("tasks/t.json")) == (TEXT, {"by": "me"})
    (begun_plain / "tasks/t.json").write_bytes(b"{}")
    with pytest.raises(DigestMismatchError, match="plain text, and all of this"):
        archive.get_record("tasks/t.json")
    key = begun_plain / key_path(key_id("names of blobs"))
    key.write_bytes(key.read_bytes().replace(b',"all":true', b"").replace(b'"all":true,', b""))
    with pytest.raises(KeyMissingError, match="another key of the name 'k2'"):
        Archive(begun_plain, keys=keys(k2=K2)).get_record("tasks/t.json")


def _lose(place: Path, *paths: str) -> dict[str, bytes]:
    kept = files(place)
    for each in paths:
        (place / each).unlink(missing_ok=True)
    return kept


OWN = tuple(key_path(key_id(each)) for each in ("names of blobs", "archive"))


@pytest.mark.parametrize("lost", [OWN, OWN[:1], OWN[1:], (*OWN, "encrypted.json")])
def test_lost_data_keys_are_asked_for_and_not_made_anew(
    tmp_path: Path, lost: tuple[str, ...]
) -> None:
    """Plain text that takes the place of a record is not believed because the keys are gone."""
    archive = Archive(tmp_path, keys=keys())
    archive.archive_id()
    archive.put(TEXT)
    kept = _lose(tmp_path, *lost)
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/t.json").write_bytes(b'{"by": "me"}')
    before = files(tmp_path)
    uses: tuple[Callable[[Archive], object], ...] = (
        partial(Archive.get_record, name="tasks/t.json"),
        partial(Archive.put, data=TEXT),
        lambda own: encrypted(own).data_keys.of_scope("t"),
    )
    for use in uses:
        with pytest.raises(KeyMissingError, match=r"lost the data key.*Restore keys/ from a back"):
            use(Archive(tmp_path, keys=keys()))
    assert files(tmp_path) == before
    for path in lost:
        (tmp_path / path).write_bytes(kept[path])
    assert Archive(tmp_path, keys=keys()).get(archive.put(TEXT))


def test_an_archive_in_plain_text_is_read_with_keys_and_stays_as_it_is(tmp_path: Path) -> None:
    name = Archive(tmp_path).put(TEXT)
    Archive(tmp_path).archive_id()
    before = files(tmp_path)
    archive = Archive(tmp_path, keys=keys())
    assert (archive.archive_id() != "", archive.get(name)) == (True, TEXT)
    assert files(tmp_path) == before
    archive.put_record("tasks/t.json", {})
    assert {"encrypted.json", *OWN} <= {*files(tmp_path)}
    (tmp_path / "encrypted.json").unlink()  # as of an archive of before there was one
    assert Archive(tmp_path, keys=keys()).get(name) == TEXT
    Archive(tmp_path, keys=keys()).put(b"another")
    assert (tmp_path / "encrypted.json").exists()
    _lose(tmp_path, *OWN)
    with pytest.raises(KeyMissingError, match="has no keys"):
        Archive(tmp_path).get(name)


def test_a_scope_is_erased_with_its_key_also_in_a_backup_and_no_other_is(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a", keys=keys())
    archive.archive_id()
    before, name, other = files(tmp_path / "a"), "", ""
    for scope in ("t1", "t2", "t1"):
        with writing_for(scope):
            name, other = archive.put(TEXT), archive.put(scope.encode())
            archive.put_record(f"tasks/{scope}.json", {"q": scope})
    assert len(files(tmp_path / "a")) - len(before) == 2 * (1 + 2 + 1)  # keys, values, records
    assert (archive.get(name), archive.get(other)) == (TEXT, b"t1")
    assert not [archive.problem_of(each) for each in archive.files() if archive.problem_of(each)]
    shutil.copytree(tmp_path / "a", tmp_path / "backup")
    encrypted(archive).data_keys.erase("t1", "Erased by ann.")
    shutil.rmtree(tmp_path / "backup/keys")
    shutil.copytree(tmp_path / "a/keys", tmp_path / "backup/keys")
    for place in (tmp_path / "a", tmp_path / "backup"):
        found = Archive(place, keys=keys())
        assert found.get(name) == TEXT
        assert found.get_record("tasks/t2.json") == {"q": "t2"}
        for read in (partial(found.get, other), partial(found.get_record, "tasks/t1.json")):
            with pytest.raises(ErasedError, match="Erased by ann"):
                read()
        with writing_for("t1"), pytest.raises(ErasedError):
            found.put(b"again")
        assert all(encrypted(found).data_keys.rotate()) is False
    encrypted(archive).data_keys.erase("t2", "Erased.")
    with pytest.raises(ErasedError):
        archive.get(name)


def test_of_processes_that_begin_at_once_all_have_one_data_key(tmp_path: Path) -> None:
    def put(n: int) -> str:
        return Archive(tmp_path, keys=keys()).put(f"{n}".encode())

    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(put, range(40)))
    archive = Archive(tmp_path, keys=keys())
    assert [archive.get(each) for each in names] == [f"{n}".encode() for n in range(40)]


Memory: Any = MemoryFileSystem  # fsspec has no types
Default: Any = AbstractFileSystem
PartOf: Any = DirFileSystem


def takes_no_notice(self: Any, path: str, value: bytes, **_: Any) -> None:
    """Write, as s3fs before 2024.12 and a botocore of that time do."""
    Memory.pipe_file(self, path, value)


def knows_no_mode(self: Any, path: str, value: bytes) -> None:
    Memory.pipe_file(self, path, value)


def looks_and_writes(self: Any, path: str, value: bytes, mode: str = "overwrite") -> None:
    if mode == "create" and self.exists(path):
        raise FileExistsError(path)
    time.sleep(0.1)  # as long as a request takes
    Memory.pipe_file(self, path, value)


def memory(**methods: Any) -> Any:
    return type("Own", (Memory,), {"cachable": False, **methods})()


@pytest.mark.parametrize(
    "pipe_file", [Default.pipe_file, takes_no_notice, knows_no_mode, looks_and_writes]
)
def test_a_store_that_cannot_keep_one_data_key_of_two_is_not_encrypted(pipe_file: Any) -> None:
    """The default of fsspec looks first, so it passes a test of one process."""
    filesystem = memory(pipe_file=pipe_file)
    for each in (filesystem, PartOf("/a", filesystem)):
        store = FsspecStore(each, f"/{pipe_file.__name__}")
        with pytest.raises(ArchiveError, match=r"cannot be encrypted.*s3fs 2024\.12"):
            DataKeys(store, keys()).of_scope("t")
        assert not store.find("keys")
        assert not store.create("plain.json", b"{}")
        assert store.find("") == ["plain.json"]


def test_a_store_is_asked_once_whether_it_keeps_one_data_key_of_two() -> None:
    deleted: list[str] = []
    one_at_a_time = Lock()  # two threads may pass the look of fsspec's own at once

    def pipe_file(self: Any, path: str, value: bytes, mode: str = "overwrite") -> None:
        with one_at_a_time:
            Memory.pipe_file(self, path, value, mode=mode)

    def rm_file(self: Any, path: str) -> None:
        deleted.append(path)
        Memory.rm_file(self, path)

    store = FsspecStore(memory(rm_file=rm_file, pipe_file=pipe_file), "/exclusive")
    data_keys = DataKeys(store, keys())
    assert data_keys.of_scope("a") != data_keys.of_scope("b")
    assert len(deleted) == 1
    assert len(store.find("keys")) == 4


def test_a_record_that_is_not_as_it_was_written_is_told_with_keys_as_without(
    tmp_path: Path,
) -> None:
    for given, errors in ((None, {"cut": True}), (keys(), {"cut": True, "lost": False})):
        archive = Archive(tmp_path / str(given), keys=given)
        archive.put_record("tasks/t.json", {"a": 1})
        file = tmp_path / str(given) / "tasks/t.json"
        whole = file.read_bytes()
        data_key = b"\0" * 16  # of another archive
        damages = {"cut": whole[:-3], "lost": whole[:5] + data_key + whole[21:]}
        for damage, torn in errors.items():
            file.write_bytes(damages[damage])
            with pytest.raises(ArchiveError) as bad:
                archive.find_record("tasks/t.json")
            assert is_torn(bad.value) == torn


def test_a_key_service_wraps_data_keys_and_its_failure_tells_no_secret(tmp_path: Path) -> None:
    class Kms:
        def __init__(self) -> None:
            self.is_down = False
            self.calls: list[bytes] = []

        def wrap(self, data_key: bytes, scope: bytes) -> bytes:
            self.calls.append(scope)
            return bytes(each ^ 7 for each in data_key)

        def unwrap(self, wrapped: bytes, scope: bytes) -> bytes:
            if self.is_down:
                raise ConnectionError("token=s3cr3t")
            return bytes(each ^ 7 for each in wrapped)

    kms = Kms()
    archive = Archive(tmp_path, keys=Keys({"kms": kms}))
    name = archive.put(TEXT)
    assert archive.get(name) == TEXT
    assert kms.calls == [b"names of blobs; all is encrypted", b"archive"]
    kms.is_down = True
    with pytest.raises(
        ArchiveError, match=r"key 'kms' could not decrypt .* ConnectionError"
    ) as bad:
        Archive(tmp_path, keys=Keys({"kms": kms})).get(name)
    assert "s3cr3t" not in str(bad.value)
    kms.is_down = False
    assert Archive(tmp_path, keys=Keys({"kms": kms})).get(name) == TEXT


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "There is no key in"),
        ("k1 tooshort", "Line 1 of the keys in .* is not a key"),
        ("# ours\nk1", "Line 2"),
        (f"{LINE}\n{LINE}", "repeats a name"),
        (LINE.replace("k1", "a/b"), "'a/b' cannot name a key"),
        ("\udcff", "cannot be read from .* UnicodeDecodeError"),
    ],
)
def test_a_file_of_keys_that_cannot_be_used_is_refused_without_its_text(
    tmp_path: Path, text: str, why: str
) -> None:
    file = tmp_path / "keys.txt"
    file.write_text(text, "utf-8", "surrogateescape")
    with pytest.raises(InvalidArgumentError, match=why) as bad:
        Keys.read(str(file))
    assert LINE[3:] not in str(bad.value)
    assert "tooshort" not in str(bad.value)


def test_keys_come_from_a_file_or_a_command_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keys.txt").write_text(f"# ours\n\n{LINE}\n")
    name = Archive(tmp_path / "archive", keys=keys()).put(TEXT)
    prints = f"{sys.executable} -c 'print(\"{LINE}\")'"
    for place in (str(tmp_path / "keys.txt"), f"command:{prints}"):
        monkeypatch.setenv("HOLDFAST_KEYS", place)
        assert Archive(tmp_path / "archive").get(name) == TEXT
    monkeypatch.setenv("HOLDFAST_KEYS", "command:false")
    with pytest.raises(InvalidArgumentError, match="CalledProcessError"):
        Archive(tmp_path / "archive")
    assert repr(Keys({"k1": K1})) == "Keys(k1)"
    for wrong in ({}, {"k1": "text"}, None):
        with pytest.raises(InvalidArgumentError):
            Keys(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match=r"keys is made by Keys\(...\)"):
        Archive(tmp_path, keys="k1")  # type: ignore[arg-type]


class Counting(LocalStore):
    """Counts how often each file was read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.reads: Counter[str] = Counter()

    def read(self, path: str) -> bytes:
        self.reads[path] += 1
        return super().read(path)


def test_many_tasks_take_no_key_of_the_archive_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached_keys, "_MOST_CACHED", 4)
    inner = Counting(tmp_path)
    store = EncryptedStore(inner, keys())
    path = f"blobs/00/{'0' * 64}"
    store.write(path, TEXT)
    mine = {each: inner.reads[each] for each in inner.find("keys")}
    assert set(mine.values()) == {1}

    def use(n: int) -> bool:
        store.data_keys.of_scope(f"{n % 9}")
        return store.read(path) == TEXT

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(use, range(400)))
    assert {each: inner.reads[each] for each in mine} == mine
    assert len([n for n in range(9) if store.data_keys.known(key_id(f"{n}"))]) == 2


def test_a_damaged_data_key_is_found_and_a_file_that_is_deleted_meanwhile_is_none(
    tmp_path: Path,
) -> None:
    archive = Archive(tmp_path, keys=keys())
    archive.put_record("tasks/t.json", {})
    data_keys = encrypted(archive).data_keys
    data_keys.of_scope("lost")
    data_keys.of_scope("other")
    lost, other = (key_path(key_id(each)) for each in ("lost", "other"))
    assert not [each for each in archive.files() if archive.problem_of(each)]
    found = json.loads((tmp_path / lost).read_bytes())
    for change, why in (
        ({"wrapped": "AAAA"}, "another key of the name 'k1'"),
        ({"by": "k7"}, "the key 'k7', which is not here"),
        ({"scope": "x"}, "is not the data key of that name"),
    ):
        (tmp_path / lost).write_text(json.dumps(found | change))
        assert why in archive.problem_of(lost)
        assert not archive.problem_of(other)
    for name in ("tasks/gone.json", "keys/gone.json"):
        for each in (archive, Archive(tmp_path / "plain")):
            assert not each.problem_of(name)


async def test_a_failure_converter_of_a_team_stays_and_encodes_texts_if_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Marked(DefaultFailureConverter):
        def to_failure(
            self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure
        ) -> None:
            super().to_failure(exception, payload_converter, failure)
            failure.source = "ours"

    class Other(FailureConverter):
        def to_failure(
            self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure
        ) -> None:
            raise NotImplementedError

        def from_failure(
            self, failure: Failure, payload_converter: PayloadConverter
        ) -> BaseException:
            raise NotImplementedError

    data_keys = encrypted(Archive(tmp_path, keys=keys())).data_keys
    for kind, source in ((DefaultFailureConverter, ""), (Marked, "ours")):
        converter = encrypting(DataConverter(failure_converter_class=kind), data_keys)
        failure = Failure()
        await converter.encode_failure(ValueError(TEXT.decode()), failure)
        assert (failure.source, failure.message) == (source, "Encoded failure")
        assert TEXT not in failure.SerializeToString()
        for reader in (converter, telling(converter)):
            read = Failure()
            read.CopyFrom(failure)
            assert str(await reader.decode_failure(read)) == f"ValueError: {TEXT.decode()}"
        await telling(converter).encode_failure(ValueError(TEXT.decode()), failure)
        assert failure.message == TEXT.decode()
    kept = encrypting(DataConverter(failure_converter_class=Other), data_keys)
    assert kept.failure_converter_class is telling(kept).failure_converter_class is Other
    assert "no DefaultFailureConverter of Temporal" in caplog.text


async def test_a_history_has_one_data_key_for_each_task_and_plain_payloads_pass(
    tmp_path: Path,
) -> None:
    data_keys = encrypted(Archive(tmp_path, keys=keys())).data_keys
    converter = encrypting(DataConverter.default, data_keys)
    ids: set[bytes] = set()
    for task in ("a", "b"):
        own = converter.with_context(WorkflowSerializationContext("default", task))
        [sealed] = await own.encode([TEXT.decode()])
        assert TEXT not in sealed.SerializeToString()
        assert await converter.decode([sealed]) == [TEXT.decode()]
        ids.add(sealed.data[:16])
        sealed.data = sealed.data[:-1] + b"~"
        with pytest.raises(DigestMismatchError, match="was changed"):
            await converter.decode([sealed])
    assert len(ids) == 2
    [plain] = await DataConverter.default.encode([TEXT.decode()])
    assert await converter.decode([plain]) == [TEXT.decode()]
    own_codec = DataConverter(payload_codec=KeysCodec(data_keys, "own"))
    assert encrypting(own_codec, data_keys) is own_codec


async def test_a_remote_codec_answers_whoever_has_a_token_and_its_own_pages(tmp_path: Path) -> None:
    data_keys = encrypted(Archive(tmp_path / "archive", keys=keys())).data_keys
    codec = KeysCodec(data_keys, "a")
    lost = KeysCodec(encrypted(Archive(tmp_path / "other", keys=keys())).data_keys, "z")
    [plain] = await DataConverter.default.encode([TEXT.decode()])
    given = Payloads(payloads=[*await codec.encode([plain]), *await lost.encode([plain]), plain])
    tokens = Tokens(tmp_path / "tokens.json")
    token = tokens.make("ann", ["viewer"])
    app = codec_app(codec, tokens, ["https://temporal.example.com"])
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://codec"
    ) as client:
        for headers in ({}, {"Authorization": "Bearer hfd_wrong"}):
            refused = await client.post("/decode", json=MessageToDict(given), headers=headers)
            assert refused.status_code == 401
        client.headers["Authorization"] = f"Bearer {token}"
        bad = [b"no json", b"\xff", b"1", b"null", b'{"payloads": [1]}', b"[" * 100_000]
        for body in bad:
            refused = await client.post("/decode", content=body)
            assert (refused.status_code, "JSON" in refused.text) == (400, True)
        for length in ("x", "-1", ""):
            refused = await client.post("/decode", headers={"Content-Length": length})
            assert (refused.status_code, "Content-Length" in refused.text) == (400, True)
        whole = given.payloads[0].data
        for cut in range(0, len(whole), 7):
            torn = Payload(metadata=given.payloads[0].metadata, data=whole[:cut])
            asked = MessageToDict(Payloads(payloads=[torn, plain]))
            first, second = (await client.post("/decode", json=asked)).json()["payloads"]
            assert base64.b64decode(second["data"]) == plain.data
            assert b"changed" in (said := base64.b64decode(first["data"])) or b"cut" in said
        answer = (await client.post("/decode", json=MessageToDict(given))).json()["payloads"]
        first, second, third = (base64.b64decode(each["data"]) for each in answer)
        assert first == third == plain.data
        assert b"is not in the archive" in second
        back = (await client.post("/encode", json={"payloads": answer[:1]})).json()["payloads"]
        [sealed] = [Payload(data=base64.b64decode(each["data"])) for each in back]
        assert TEXT not in sealed.data
        ask = {"Access-Control-Request-Method": "POST"}
        for origin, status in (("https://temporal.example.com", 200), ("https://evil.test", 400)):
            preflight = await client.options("/decode", headers={"Origin": origin} | ask)
            assert preflight.status_code == status


def test_logs_have_classes_and_digests_in_place_of_texts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Archive(tmp_path, keys=keys())
    try:
        try:
            raise ValueError(TEXT.decode())
        except ValueError as error:
            raise RuntimeError("other words") from error
    except RuntimeError:
        log.exception(
            "%r: %s, %d times, %s, %s", "task-1", TEXT.decode(), 3, {"q": "words"}, "words"
        )
    logging.getLogger("temporalio.activity").warning("Failed", exc_info=ValueError("some words"))
    assert "'task-1'" in caplog.text
    assert "3 times" in caplog.text
    assert "ValueError (text of 21 characters, digest " in caplog.text
    assert "RuntimeError (text of 11 characters" in caplog.text
    assert "words" not in caplog.text.replace("the_words", "")


def test_logs_of_loggers_that_are_made_later_and_finished_texts_are_hidden_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Archive(tmp_path, keys=keys())
    caplog.set_level("DEBUG")
    later = logging.getLogger("temporalio.made_later")
    later.warning("Failed with %s", "secret words")
    later.warning("Failed with %(text)s", {"text": "secret words"})
    later.warning("Completing with error of type <class 'ValueError'>: secret words ({'a': 'b'})")
    later.warning("Completing as failed ({'activity_id': '3', 'attempt': 2})")
    core = logging.getLogger("temporalio.core")
    core.handle(
        core.makeRecord(
            "temporalio.core-sdk_core::worker",
            *(logging.WARNING, "", 0, "[sdk_core::worker] Failing {'failure': 'secret words'}"),
            *((), None, None, {"temporal_log": "secret words"}),
        )
    )
    logging.getLogger("a.team").warning("their own %s", "words")
    assert "secret" not in caplog.text
    assert "Completing with error of type <class 'ValueError'> (text of " in caplog.text
    assert "({'activity_id': '3', 'attempt': 2})" in caplog.text
    assert "[sdk_core::worker] Failing (text of " in caplog.text
    assert "their own words" in caplog.text
    assert not [each for each in caplog.records if hasattr(each, "temporal_log")]


def test_a_hashed_name_needs_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgumentError, match="HOLDFAST_NAMES_KEY"):
        hashed("ann@bank.com")
    names: set[str] = set()
    for secret in ("s" * 16, "t" * 16):
        monkeypatch.setenv("HOLDFAST_NAMES_KEY", secret)
        names.add(hashed("ann@bank.com"))
        assert hashed("ann@bank.com") in names
    assert len(names) == 2


def test_an_input_that_a_process_cannot_decode_is_no_bad_input(tmp_path: Path) -> None:
    """Counted as bad, it would end the task or the session for good."""
    converter = holdfast_converter().payload_converter
    key = encrypted(Archive(tmp_path, keys=keys())).data_keys.of_scope("t")
    sealed = Payload(metadata={"encoding": b"binary/holdfast-encrypted"}, data=key.id + b"x")
    strange = Payload(metadata={"encoding": b"binary/of-a-team"}, data=b"x")
    for kind in (TaskInput, SessionState, str):
        with pytest.raises(KeyMissingError, match=f"{key.id.hex()!r}.*Set HOLDFAST_KEYS"):
            converter.from_payloads([sealed], [kind])
        with pytest.raises(KeyError, match="binary/of-a-team"):
            converter.from_payloads([strange], [kind])
