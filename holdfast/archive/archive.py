"""The archive: large values and closed records, in a directory or any fsspec URL.

Values are named by the SHA-256 of their bytes and never change. Records are JSON documents with a
name; the last writer wins. `archive.json` holds the archive's id, `archive.key` the key by which it
knows the references that were made for it.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from holdfast.archive.bytestore import (
    BEGUN_ENCRYPTED,
    BLOBS,
    ENCRYPTED_FILE,
    ID_FILE,
    KEY_FILE,
    KEYS_VARIABLE,
    NAMES_SCOPE,
    OWNER_FILE,
    UNUSED,
    LocalStore,
    S3Store,
    aside_path,
    blob_path,
    copy_path,
    key_id,
    key_path,
    open_store,
    record_name,
    record_path,
    used_path,
)
from holdfast.errors import (
    ArchiveError,
    BlobMissingError,
    DigestMismatchError,
    KeyMissingError,
    message_of,
)
from holdfast.values.base import Json, digest, in_order
from holdfast.values.checks.gate import check_arguments
from holdfast.values.text.redact import conceal, credentials_of, redact, without_credentials

if TYPE_CHECKING:
    from holdfast.archive.encryption.keys import Keys
    from holdfast.archive.encryption.store import EncryptedStore
else:  # loaded where there are keys
    Keys = object

__all__ = ["Archive", "record_name"]

_KEY_BYTES = 64
_SAY_ENCRYPTED = (ENCRYPTED_FILE, key_path(key_id(NAMES_SCOPE)))
_CHECK = "Check the archive's address, its permissions and the free space."
_LOCK = "Allow s3:GetBucketObjectLockConfiguration, s3:ListBucketVersions, s3:PutObjectLegalHold."
_MAC_DIGITS = 32
"""128 bits: too many to find such a code by trying."""


P = ParamSpec("P")
R = TypeVar("R")


def _in_thread(
    method: Callable[Concatenate[Archive, P], R],
) -> Callable[Concatenate[Archive, P], Coroutine[Any, Any, R]]:
    """Make the async twin of a method, which calls that of a subclass where there is one."""

    @functools.wraps(method)
    async def call(self: Archive, /, *args: P.args, **kwargs: P.kwargs) -> R:
        given: Callable[P, R] = getattr(self, method.__name__)
        return await asyncio.to_thread(given, *args, **kwargs)

    return call


class Archive:
    """A store of blobs and records; any number of processes may use one at the same time.

    Every method has an async twin with the prefix `a`, which runs it in a thread.

    Attributes:
        url: Where it is; credentials that the given URL held are left out.
        encrypted: What encrypts it; None without keys.
    """

    def __init__(
        self,
        url: str | Path,
        options: Mapping[str, Json] | None = None,
        *,
        keys: Keys | None = None,
    ) -> None:
        """Open an archive. Nothing is read or written yet.

        Args:
            url: A directory, or an fsspec URL such as `s3://bucket/prefix` or `memory://name`.
            options: Storage options of the fsspec file system (endpoint, credentials, ...); they
                are in no error and no log.
            keys: What encrypts the archive, and the histories of tasks whose programs use it; the
                keys that `HOLDFAST_KEYS` names by default.

        Raises:
            ArchiveError: Unknown protocol, or a missing package for it.
            InvalidArgumentError: One of these is of another type, or the keys cannot be read.
        """
        check_arguments(Archive.__init__, url=url, options=options)
        conceal(credentials_of(str(url), options or {}))
        self.url = without_credentials(str(url))
        self._store = self._kept = open_store(str(url), options or {})
        self._is_directory = isinstance(self._store, LocalStore)
        self.encrypted: EncryptedStore | None = None
        if keys is not None or os.environ.get(KEYS_VARIABLE):
            from holdfast.archive.encryption.keys import Keys
            from holdfast.archive.encryption.store import EncryptedStore

            self._store = self.encrypted = EncryptedStore(self._store, Keys.given(keys))
        self._id: str | None = None
        self._key = b""
        self._has_keys = False

    def put(self, data: bytes) -> str:
        """Store bytes, once; return their SHA-256 as 64 hexadecimal digits.

        Raises:
            ArchiveError: The archive cannot be written.
        """
        name = digest(data)
        path = blob_path(name)
        with self._failures("written", path):
            self._store.add(path, data)
        return name

    def get(self, sha256: str) -> bytes:
        """Return the bytes stored under this digest.

        Raises:
            BlobMissingError: The archive has no such blob.
            DigestMismatchError: The stored bytes are not the ones that were put.
            ArchiveError: The archive cannot be read.
        """
        path = blob_path(sha256)
        with self._failures("read", path):
            try:
                data = self._store.read(path)
            except FileNotFoundError:
                self._put_back(path)
                data = self._store.read(path)
        if digest(data) != sha256:
            raise DigestMismatchError(
                f"The blob {sha256} of the archive {self.url!r} was changed: its {len(data)} bytes"
                f" have the digest {digest(data)}.",
                remedy=f"Restore {self._where(path)!r} from a backup.",
            )
        return data

    def put_record(self, name: str, data: Json, *, forced: bool = True) -> None:
        """Write a JSON record, replacing an older one in one step.

        Args:
            name: A path such as `record_name("tasks", task_id)`.
            data: Anything JSON.
            forced: Whether it must outlast a power cut; else it outlasts this process only, and
                costs a fraction of the time.

        Raises:
            InvalidArgumentError: The name leads outside the archive or into its blobs.
            ArchiveError: The archive cannot be written.
        """
        path = record_path(name)
        with self._failures("written", path):
            self._store.write(path, in_order(data), forced=forced)

    def create_record(self, name: str, data: Json) -> Json:
        """Write a JSON record unless there is one; return the one that is there then.

        Args:
            name: As for put_record.
            data: Anything JSON.

        Raises:
            InvalidArgumentError: As for put_record.
            ArchiveError: The archive cannot be written or read.
        """
        path = record_path(name)
        with self._failures("written", path):
            is_made = self._store.create(path, in_order(data))
        return data if is_made else self._read_json(path)

    def get_record(self, name: str) -> Json:
        """Return a JSON record.

        Raises:
            BlobMissingError: There is no record of this name.
            ArchiveError: The archive cannot be read, or the record is not JSON.
        """
        return self._read_json(record_path(name))

    def find_record(self, name: str) -> Json | None:
        """Return a JSON record, or None if there is no such record.

        Raises:
            ArchiveError: The archive cannot be read, or the record is not JSON.
        """
        path = record_path(name)
        with self._failures("read", path):
            try:
                data = self._store.read(path)
            except FileNotFoundError:
                return None
        return self._json(path, data)

    def has_record(self, name: str) -> bool:
        """Say whether there is a record of this name.

        Raises:
            ArchiveError: The archive cannot be read.
        """
        path = record_path(name)
        with self._failures("read", path):
            return self._store.size(path) is not None

    def delete_record(self, name: str) -> bool:
        """Delete a record; return whether there was one.

        Raises:
            ArchiveError: The archive cannot be written.
        """
        path = record_path(name)
        with self._failures("deleted", path):
            try:
                self._store.delete(path)
            except FileNotFoundError:
                if self._is_directory and self._is_gone():
                    raise
                return False
        return True

    def erase_scopes(self, scopes: Sequence[str], why: str) -> int:
        """Delete the data keys and the values of tasks and sessions for good.

        Without keys nothing is deleted: other tasks may have equal values.

        Args:
            scopes: Ids of the tasks, and workflow ids of the sessions.
            why: What the error says when one is needed again.

        Returns:
            How many values there were.

        Raises:
            ArchiveError: The archive cannot be used.
        """
        if self.encrypted is None:
            return 0
        with self._failures("written", BLOBS):
            return self.encrypted.erase(scopes, why)

    def list_records(self, folder: str) -> list[str]:
        """Return the names of all records below a folder such as `tasks/`, sorted.

        Raises:
            InvalidArgumentError: The folder is outside the archive or among its blobs.
            ArchiveError: The archive cannot be read.
        """
        path = record_path(folder.rstrip("/"))
        with self._failures("read", path):
            return sorted(self._store.find(path))

    def files(self) -> list[str]:
        """Return the paths of all files below the archive's place, for `problem_of`, sorted.

        Raises:
            ArchiveError: The archive cannot be read.
        """
        with self._failures("read", ""):
            return sorted(self._store.find(""))

    def problem_of(self, path: str) -> str:
        """Read a file; say why it cannot be used, or nothing, as of a file that is deleted.

        Raises:
            ArchiveError: The archive cannot be read at all.
        """
        if path in {ID_FILE, OWNER_FILE, KEY_FILE}:
            return ""  # they are read whenever the archive is used
        is_blob = path.startswith(f"{BLOBS}/")
        try:
            with self._failures("read", path):
                if self.encrypted is not None:
                    data, is_right = self.encrypted.kept(path)
                else:
                    data = self._store.read(path)
                    is_right = not is_blob or used_path(path) == blob_path(digest(data))
            if is_blob:
                return "" if is_right else "its bytes do not have the digest of its name"
            self._json(path, data)
        except BlobMissingError:
            return ""  # since it was listed
        except ArchiveError as error:
            return message_of(error)
        return ""

    def put_aside(self, path: str) -> None:
        """Put a blob aside, from where a read gets it back; delete one that is aside.

        In this order, so that at no moment it is nowhere: who has just found a value here, and did
        not write it once more, reads it later. One that is damaged stays where it is.

        Raises:
            ArchiveError: The archive cannot be written.
        """
        with self._failures("written", path), suppress(FileNotFoundError):
            if not path.startswith(UNUSED):
                if self.problem_of(path):
                    return
                self._kept.write(aside_path(path), self._kept.read(path))
            self._kept.delete(path)

    def _put_back(self, path: str) -> None:
        """Copy back what is aside of a blob, of all scopes.

        It stays aside as well: another `gc` may have this blob on its list.
        """
        places = [path]
        if self.encrypted is not None:
            coded = self.encrypted.coded(path)
            copies = self._kept.find(aside_path(copy_path(coded, b"").rstrip("/")))
            places += [coded, *map(used_path, copies)]
        for each in places:
            with suppress(FileNotFoundError):
                self._kept.write(each, self._kept.read(aside_path(each)))

    def fingerprint(self, path: str) -> str:
        """Return the SHA-256 of a file as it is kept, encrypted or not; empty of a deleted one.

        A blob that was put aside is there still.

        Raises:
            ArchiveError: The archive cannot be read at all.
        """
        for place in (path, aside_path(path)):
            with self._failures("read", place), suppress(FileNotFoundError):
                return digest(self._kept.read(place))
        return ""

    def age(self, path: str) -> tuple[int, float]:
        """Return how many bytes a file has, and when it was written, seconds since the epoch.

        Raises:
            ArchiveError: The archive cannot be read.
        """
        with self._failures("read", path):
            return self._kept.size(path) or 0, self._kept.written(path)

    def lock(self, paths: Sequence[str], *, on: bool) -> bool:
        """Set or end the legal hold of files in a bucket of S3 with Object Lock.

        Returns:
            Whether it is in such a bucket; else nothing was done.

        Raises:
            ArchiveError: The bucket does not let it.
        """
        with self._failures("locked" if on else "unlocked", ""):
            return isinstance(self._kept, S3Store) and self._kept.lock(paths, on=on)

    def archive_id(self) -> str:
        """Return the archive's id, made at the first call by whichever process comes first.

        A worker compares it with the id recorded for its namespace, so that it never reads
        another archive than its tasks were stored in.

        Raises:
            ArchiveError: The archive cannot be read or written.
            KeyMissingError: It is encrypted, and the keys of this process do not decrypt it.
        """
        if self._id is None:
            end = BEGUN_ENCRYPTED if self.encrypted is not None else ""
            self._id = self._first(ID_FILE, secrets.token_hex(8) + end)
        return self._id

    def _check_keys(self) -> None:
        """Check that an encrypted archive is used with its keys.

        Raises:
            KeyMissingError: This process has no keys, or not the right ones.
        """
        if self.encrypted is not None:
            self.encrypted.data_keys.own()
        elif any(self._store.size(each) is not None for each in _SAY_ENCRYPTED):
            raise KeyMissingError(
                f"The archive {self.url!r} is encrypted, and this process has no keys. Nothing was"
                " changed.",
                remedy=f"Set {KEYS_VARIABLE} as in the processes that use it.",
            )
        self._has_keys = True

    def owner(self, namespace: str) -> str:
        """Return the namespace whose tasks are stored here: the first that has asked.

        Args:
            namespace: The one that asks, by an id that no other has.

        Raises:
            ArchiveError: The archive cannot be read or written.
        """
        return self._first(OWNER_FILE, namespace)

    def _first(self, file: str, id: str) -> str:
        """Return the id in a file, which is this one if there was no file yet."""
        with self._failures("written", file):
            if self._store.size(file) is None:
                self._store.create(file, in_order({"id": id}))
        match self._read_json(file):
            case {"id": str(found)}:
                return found
            case _:
                raise ArchiveError(
                    f"{self._where(file)!r} is not the id file of an archive.",
                    remedy="Name another place, or restore the file from a backup.",
                )

    def mac(self, text: str) -> str:
        """Return a keyed code (HMAC) of a text: 32 hexadecimal digits.

        A blob's digest is not enough to make its code, so a reference that holds the code was made
        by a program with access to the archive. The first call of any process makes the key;
        without it, as in an archive that was copied in part, older codes are wrong.

        Raises:
            ArchiveError: The archive cannot be read or written.
        """
        if not self._key:
            with self._failures("written", KEY_FILE):
                if self._store.size(KEY_FILE) is None:
                    self._store.create(KEY_FILE, secrets.token_hex(32).encode())
            with self._failures("read", KEY_FILE):
                key = self._store.read(KEY_FILE)
            if len(key) != _KEY_BYTES:
                raise ArchiveError(
                    f"{self._where(KEY_FILE)!r} is not the key of an archive.",
                    remedy="Restore it from a backup; without it, references to images that were"
                    " given out are refused.",
                )
            self._key = key
        data = text.encode("utf-8", "surrogatepass")
        return hmac.new(self._key, data, hashlib.sha256).hexdigest()[:_MAC_DIGITS]

    def _read_json(self, path: str) -> Json:
        """Return the JSON content of a path."""
        with self._failures("read", path):
            data = self._store.read(path)
        return self._json(path, data)

    def _json(self, path: str, data: bytes) -> Json:
        """Return what the bytes of a path say as JSON."""
        try:
            return json.loads(data)
        except ValueError as error:
            raise ArchiveError(
                f"{self._where(path)!r} is not JSON: {error}.", remedy="Restore it from a backup."
            ) from error

    @contextmanager
    def _failures(self, verb: str, path: str) -> Generator[None]:
        """Turn a file system's errors into ours; each kind of store has its own classes.

        The first use of the archive checks that this process has its keys. Each write checks that a
        directory is still the archive: one that was lost, as when its disk is not mounted, would be
        made again.
        """
        try:
            if not self._has_keys:
                self._check_keys()
            if verb == "written" and self._is_directory and self._is_gone():
                raise FileNotFoundError(self._where(ID_FILE))
            yield
        except ArchiveError:
            raise
        except Exception as error:  # noqa: BLE001  turned into one of ours
            where = self._where(path)  # not before: to leave secrets out takes as long as to read
            # A write that finds no place, and an archive that is gone altogether (a lost mount, a
            # missing bucket), may heal: only a value that is not there is missing.
            missing = isinstance(error, FileNotFoundError) and verb == "read"
            if missing and not self._is_gone():
                raise BlobMissingError(
                    f"The archive {self.url!r} has no {path!r} (looked at {where!r}).",
                    remedy="Check that this is the archive the task was stored in, and that nothing"
                    " was deleted there.",
                ) from _telling(error)
            raise ArchiveError(
                f"{where!r} cannot be {verb}: {type(error).__name__}: {redact(str(error))}.",
                remedy=_LOCK if verb.endswith("locked") else _CHECK,
            ) from _telling(error)

    def _is_gone(self) -> bool:
        """Whether the archive that this process has used before is not there any more."""
        if self._id is None:
            return False
        try:
            return self._store.size(ID_FILE) is None
        except Exception:  # noqa: BLE001  each kind of store has its own classes
            return True

    def _where(self, path: str) -> str:
        """Return the full name of a path, for messages: without credentials."""
        return redact(without_credentials(self._store.where(path)))

    aput = _in_thread(put)
    aget = _in_thread(get)
    aput_record = _in_thread(put_record)
    acreate_record = _in_thread(create_record)
    aget_record = _in_thread(get_record)
    afind_record = _in_thread(find_record)
    ahas_record = _in_thread(has_record)
    adelete_record = _in_thread(delete_record)
    aerase_scopes = _in_thread(erase_scopes)
    alist_records = _in_thread(list_records)
    afiles = _in_thread(files)
    aproblem_of = _in_thread(problem_of)
    afingerprint = _in_thread(fingerprint)
    aput_aside = _in_thread(put_aside)
    aage = _in_thread(age)
    alock = _in_thread(lock)
    aarchive_id = _in_thread(archive_id)
    aowner = _in_thread(owner)

    async def amac(self, text: str) -> str:
        """Run `mac` in a thread, unless the key is known already."""
        return self.mac(text) if self._key else await asyncio.to_thread(self.mac, text)


def places_of(archive: Archive, sha256: str) -> set[str]:
    """Return the paths that a blob may have, in an encrypted archive without the scope."""
    path = blob_path(sha256)
    return {path} if archive.encrypted is None else {path, archive.encrypted.coded(path)}


def time_store(archive: Archive, timed: Callable[[str, Callable[..., Any]], Any]) -> None:
    """Have each operation of an archive's store timed.

    Args:
        archive: The archive.
        timed: Gets name and function of an operation; returns the function that times it.
    """
    store = archive._store  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  its module
    for name in ("read", "size", "write", "create", "delete", "find"):
        setattr(store, name, timed(name, getattr(store, name)))


def _telling(error: Exception) -> Exception | None:
    """Return an error as a cause, or None if its text would show credentials in a traceback."""
    return error if redact(str(error)) == str(error) else None
