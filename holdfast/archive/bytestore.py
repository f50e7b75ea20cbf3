"""Bytes under a path, in a local directory or behind fsspec: all that the archive needs."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from errno import ENOSYS
from pathlib import Path
from typing import Any, Protocol, cast
from urllib.parse import quote, unquote, urlsplit

from holdfast.errors import ArchiveError, InvalidArgumentError
from holdfast.values.base import Json, digest
from holdfast.values.code.extras import install_command
from holdfast.values.text.redact import redact, without_credentials
from holdfast.values.text.shown import shown

# How things are named inside an archive.

ID_FILE = "archive.json"
OWNER_FILE = "namespace.json"
KEY_FILE = "archive.key"
BLOBS = "blobs"
KEYS_FOLDER = "keys"
"""Data keys, which only `encryption` reads and writes."""
NAMES_SCOPE = "names of blobs"
"""What the first data key of an archive is for. An archive that has it is encrypted."""
ENCRYPTED_FILE = "encrypted.json"
"""Says outside of `KEYS_FOLDER` that an archive is encrypted: data keys that are lost then show."""
BEGUN_ENCRYPTED = "-encrypted"
"""End of the id of an archive that has never had anything in plain text; its namespace knows it."""
CONTENTS_SCOPE = "archive"
PLAIN_FILES = frozenset({ID_FILE, OWNER_FILE, ENCRYPTED_FILE})
"""What is never encrypted: processes see by it that they share an archive."""
KEYS_VARIABLE = "HOLDFAST_KEYS"
KEY_ID_BYTES = 16
ENCRYPTED = b"binary/holdfast-encrypted"
"""Encoding of encrypted payloads, known also in processes without keys."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_KEY_LENGTH = 180
"""Longer quoted keys are cut: file systems stop at 255 bytes, Temporal's ids at 1,000."""


def record_name(kind: str, key: str) -> str:
    """Return the record name of any key, such as a task id: `tasks/<quoted key>.json`.

    Different keys give different names, whatever characters they hold.

    Raises:
        InvalidArgumentError: One of these is not text.
    """
    if not (isinstance(cast("object", kind), str) and isinstance(cast("object", key), str)):
        msg = f"A record is named by its kind and key; got {shown(kind)} and {shown(key)}."
        raise InvalidArgumentError(msg)
    data = key.encode("utf-8", "surrogatepass")
    quoted = quote(data, safe="")
    if len(quoted) > _KEY_LENGTH:
        # `quote` leaves no equals sign, so a cut name equals no whole one.
        quoted = f"{quoted[: _KEY_LENGTH - 65]}={digest(data)}"
    return f"{kind}/{quoted}.json"


def key_in(name: str) -> str:
    """Return the key that `record_name` made a name of; of a long key its beginning."""
    quoted, cut, _ = name.rpartition("/")[2].removesuffix(".json").partition("=")
    if cut:
        quoted = re.sub("%.?$", "", quoted)
    return unquote(quoted, errors="ignore" if cut else "surrogatepass")


EFFECTS = "effects"
"""Marks of a task's calls that must not be repeated (`activities/tools/lookup.py`)."""
ERASURES = "erasures"
"""Certificates of tasks that were erased; none is ever changed."""
FORKS = "forks"
"""Which tasks were forked from a task, in a folder of it."""
HOLDS = "holds"
"""What must not be erased or deleted, and who has ended that; none is ever changed."""
LOCKS = "locks"
"""Which files a hold has locked, in a folder of it."""
SUPERSEDED = "superseded"
"""Records of a task's ends that others have replaced."""
OF_TASKS = (EFFECTS, FORKS, SUPERSEDED)
"""Kinds with a folder for each task, which goes with its record."""


def folder_of(kind: str, task_id: str) -> str:
    """Return the folder of a task, as in `EFFECTS`, kept as long as it; or of a hold in `LOCKS`."""
    return record_name(kind, task_id).removesuffix(".json")


def blob_path(sha256: str) -> str:
    """Return the path of a blob; two digits of it make the folder."""
    if not _SHA256.fullmatch(sha256):
        raise InvalidArgumentError(f"{sha256!r} is not a SHA-256 of 64 lower-case hex digits.")
    return f"{BLOBS}/{sha256[:2]}/{sha256}"


UNUSED = f"{BLOBS}/unused/"
"""Where `gc` puts a blob aside before a later one deletes it."""


def aside_path(path: str) -> str:
    """Return where a blob is put aside."""
    return path.replace(f"{BLOBS}/", UNUSED, 1)


def used_path(path: str) -> str:
    """Return where a blob was before it was put aside; any other path as it is."""
    return path.replace(UNUSED, f"{BLOBS}/", 1)


def key_id(scope: str) -> bytes:
    """Return the id of a scope's data key, 16 bytes. It is public, as the scope is."""
    return bytes.fromhex(digest(scope.encode("utf-8", "surrogatepass")))[:KEY_ID_BYTES]


SCOPE = ContextVar[str]("holdfast_scope", default="")
"""For which task or session this code writes into an encrypted archive; empty for the default."""


@contextmanager
def writing_for(scope: str) -> Generator[None]:
    """Encrypt what is written here by the data key of a scope: of a task, or a session.

    An activity writes for its workflow, and all else for the archive as a whole.
    """
    token = SCOPE.set(scope)
    try:
        yield
    finally:
        SCOPE.reset(token)


def copy_path(path: str, id: bytes) -> str:
    """Return the path of the copy of an encrypted blob that a scope has for itself."""
    return f"{path}~/{id.hex()}"


def key_path(id: bytes) -> str:
    """Return the path of a data key."""
    return f"{KEYS_FOLDER}/{id.hex()}.json"


def record_path(name: str) -> str:
    """Return the path of a record, which is its name."""
    parts = name.split("/")
    is_outside = "\\" in name or not {"", ".", ".."}.isdisjoint(parts)
    if is_outside or parts[0] in {BLOBS, KEYS_FOLDER, *PLAIN_FILES, KEY_FILE}:
        raise InvalidArgumentError(
            f"{name!r} cannot name a record. Use a relative path such as tasks/a.json, and"
            " record_name(...) for ids with special characters."
        )
    return name


# Files and directories that only their owner may read, because they hold whole conversations.

UMASK = 0o077
"""Umask for child processes that create files."""


def make_directory(path: Path) -> None:
    """Create a directory and its missing parents; existing ones keep their permissions."""
    if path.is_dir():
        return
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
    if not path.is_dir():
        raise FileExistsError(17, "File exists", str(path))


def owner_only(path: str, flags: int) -> int:
    """Open a file, and make a new one readable by its owner alone. An `opener` for `open`."""
    return os.open(path, flags, 0o600)


def write_private(path: Path, data: bytes) -> None:
    """Replace a file that only its owner may read; a reader sees the old or the new content."""
    make_directory(path.parent)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with open(temporary, "wb", opener=owner_only) as file:
        file.write(data)
    temporary.replace(path)


_NO_MODE = (TypeError, ValueError, NotImplementedError)
"""What a file system raises that does not know `mode="create"`."""
_CREATORS = 8
_NEXT = ("NextKeyMarker", "NextVersionIdMarker")
_PROTOCOL = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*(::|://)")


class ByteStore(Protocol):
    """Bytes under relative paths with slashes. A missing path raises FileNotFoundError."""

    def where(self, path: str) -> str:
        """Return the full name of a path, for messages."""
        ...

    def read(self, path: str) -> bytes:
        """Return the bytes of a path."""
        ...

    def size(self, path: str) -> int | None:
        """Return the number of bytes of a path, or None when it is missing."""
        ...

    def written(self, path: str) -> float:
        """Return when a path was written last, seconds since the epoch."""
        ...

    def write(self, path: str, data: bytes, *, forced: bool = True) -> None:
        """Replace the bytes of a path in one step.

        Args:
            path: The path.
            data: The bytes.
            forced: Whether they must outlast a power cut, and not only this process.
        """
        ...

    def add(self, path: str, data: bytes) -> None:
        """Write a path whose name is made of its bytes, unless it is there in whole length."""
        ...

    def create(self, path: str, data: bytes, *, exclusively: bool = False) -> bool:
        """Write a path unless it is there; of two creators, one decides.

        Args:
            path: The path.
            data: The bytes.
            exclusively: Refuse where the store cannot tell which of two came first.

        Returns:
            Whether the store says that this one did. Else only reading tells what is there.
        """
        ...

    def delete(self, path: str) -> None:
        """Delete a path."""
        ...

    def find(self, folder: str) -> list[str]:
        """Return the paths of all files below a folder, in any order."""
        ...


def open_store(url: str, options: Mapping[str, Json]) -> ByteStore:
    """Open the store that a URL or a directory path names.

    Raises:
        ArchiveError: Unknown protocol, missing package for it, wrong options, or a place that
            cannot be reached.
    """
    if urlsplit(url).scheme in {"file", "local"}:
        return LocalStore(Path(unquote(urlsplit(url).path)))
    if not _PROTOCOL.match(url):
        return LocalStore(Path(url))
    # Imported here: a directory needs no fsspec, and its import costs time.
    import fsspec.core

    shown = without_credentials(url)
    if url.startswith(("s3://", "s3a://")):  # with more, s3fs asks for the size before each read
        options = {"max_concurrency": 1, **options}
    core: Any = fsspec.core  # fsspec ships no types
    try:
        filesystem, root = core.url_to_fs(url, **options)
    except ImportError as error:
        protocol = url.partition(":")[0]
        is_s3 = protocol in {"s3", "s3a"}
        command = install_command("s3") if is_s3 else f"pip install 'fsspec[{protocol}]'"
        raise ArchiveError(
            f"The archive {shown!r} needs a package that is not installed: {error}.",
            remedy=f"Install it with `{command}`.",
        ) from error
    except Exception as error:  # noqa: BLE001  each kind of store has its own classes
        raise ArchiveError(
            f"The archive {shown!r} cannot be opened: {type(error).__name__}:"
            f" {redact(str(error))}.",
            remedy="Give a directory, or a URL that fsspec knows, such as s3://bucket/prefix.",
        ) from None
    kind = S3Store if hasattr(filesystem, "call_s3") else FsspecStore
    return kind(filesystem, root)


class LocalStore:
    """A directory. Writes survive a power cut once they returned."""

    def __init__(self, root: Path) -> None:
        """Use this directory, which is created by the first write.

        Raises:
            ArchiveError: It names the home of a user that there is not.
        """
        try:
            self._root = root.expanduser().absolute()
        except RuntimeError as error:
            raise ArchiveError(
                f"The archive {str(root)!r} cannot be opened: {error}",
                remedy="Write the whole path.",
            ) from None

    def where(self, path: str) -> str:
        """Return the full path."""
        return str(self._root / path)

    def read(self, path: str) -> bytes:
        """Return the bytes of a file."""
        return (self._root / path).read_bytes()

    def size(self, path: str) -> int | None:
        """Return the size of a file, or None when it is missing."""
        try:
            return (self._root / path).stat().st_size
        except FileNotFoundError:
            return None

    def written(self, path: str) -> float:
        """Return when a file was written last."""
        return (self._root / path).stat().st_mtime

    def write(self, path: str, data: bytes, *, forced: bool = True) -> None:
        """Replace a file: written next to it, then renamed, so that no reader sees half of it."""
        target, temporary = self._temporary(path, data, forced=forced)
        try:
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        if forced:
            _sync_directory(target.parent)

    def add(self, path: str, data: bytes) -> None:
        """Write a file unless it is there: of that size, for another was cut short."""
        if self.size(path) != len(data):
            self.write(path, data)

    def create(self, path: str, data: bytes, *, exclusively: bool = False) -> bool:
        """Create a file with its content in one step; an existing one is left as it is."""
        del exclusively  # always
        target, temporary = self._temporary(path, data)
        try:
            os.link(temporary, target)
        except FileExistsError:
            return False
        finally:
            temporary.unlink(missing_ok=True)
            _sync_directory(target.parent)
        return True

    def delete(self, path: str) -> None:
        """Delete a file."""
        (self._root / path).unlink()

    def find(self, folder: str) -> list[str]:
        """Return the files below a folder; none when it is missing."""
        return [
            each.relative_to(self._root).as_posix()
            for each in (self._root / folder).rglob("*")
            if each.is_file() and not each.name.endswith(".tmp")
        ]

    def _temporary(self, path: str, data: bytes, *, forced: bool = True) -> tuple[Path, Path]:
        """Write the data next to its target and force it to the disk.

        Without that, a power cut after the rename can leave the new name with an empty file: the
        file system may write the name before the bytes.
        """
        target = self._root / path
        make_directory(target.parent)
        temporary = target.with_name(f"{secrets.token_hex(8)}.tmp")
        try:
            with open(temporary, "xb", opener=owner_only) as file:
                file.write(data)
                if forced:
                    file.flush()
                    os.fsync(file.fileno())
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return target, temporary


def _sync_directory(directory: Path) -> None:
    """Force a rename to the disk, where the system lets a directory be opened."""
    with suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class FsspecStore:
    """A bucket or another file system of fsspec. Object stores write whole objects or nothing."""

    def __init__(self, filesystem: Any, root: str) -> None:
        """Use the part of this file system below `root`."""
        self._fs = filesystem
        self._root = root.rstrip("/")
        self._is_exclusive: bool | None = None

    def where(self, path: str) -> str:
        """Return the full URL."""
        return str(self._fs.unstrip_protocol(f"{self._root}/{path}"))

    def read(self, path: str) -> bytes:
        """Return the bytes of an object."""
        self._fs.invalidate_cache()  # as for its size: it may be newer than a listing
        return bytes(self._fs.cat_file(f"{self._root}/{path}"))

    def size(self, path: str) -> int | None:
        """Return the size of an object, or None when it is missing."""
        # Some file systems answer from a listing they read earlier.
        self._fs.invalidate_cache()
        try:
            return int(self._fs.info(f"{self._root}/{path}")["size"])
        except FileNotFoundError:
            return None

    def written(self, path: str) -> float:
        """Return when an object was written last."""
        return float(self._fs.modified(f"{self._root}/{path}").timestamp())

    def write(self, path: str, data: bytes, *, forced: bool = True) -> None:
        """Replace an object; a bucket has it for good."""
        del forced
        self._fs.pipe_file(f"{self._root}/{path}", data)

    def add(self, path: str, data: bytes) -> None:
        """Write an object in one request, if it is not there: to ask first costs two more."""
        with suppress(OSError, *_NO_MODE):
            self._fs.pipe_file(f"{self._root}/{path}", data, mode="create")
            return
        if self.size(path) != len(data):  # what failed otherwise fails again
            self.write(path, data)

    def create(self, path: str, data: bytes, *, exclusively: bool = False) -> bool:
        """Write an object unless it is there, exclusively where the file system can.

        Raises:
            ArchiveError: It cannot, and must.
        """
        if self._is_exclusive is None:
            self._is_exclusive = self._try_exclusive()
        if exclusively and not self._is_exclusive:
            raise ArchiveError(
                "This archive cannot be encrypted: its store does not refuse to write what another"
                " process has just written. Two processes would make two keys of one task, and what"
                " one encrypts would be lost. Nothing was written.",
                remedy="Use a directory, S3 (s3fs 2024.12, botocore 1.35.21 or newer) or another"
                ' store whose `pipe_file` keeps mode="create" in one step.',
            )
        try:
            self._fs.pipe_file(f"{self._root}/{path}", data, mode="create")
        except FileExistsError:
            return False
        except _NO_MODE:
            # No exclusive creation here: the last of two simultaneous creators decides.
            if self.size(path) is None:
                self.write(path, data)
        return self._is_exclusive

    def _try_exclusive(self) -> bool:
        """Try whether of creators at the same time one is let through, as not each store does."""
        import fsspec

        default: Any = fsspec.AbstractFileSystem
        inner = self._fs
        while isinstance(getattr(inner, "fs", None), default):  # a part of it, or a cache
            inner = inner.fs
        # fsspec's own method looks, and then writes: two processes pass it at once.
        if getattr(inner.pipe_file, "__func__", None) is default.pipe_file:
            return False
        path = f"{self._root}/{secrets.token_hex(8)}.tmp"

        def made(_: int) -> bool:
            try:
                self._fs.pipe_file(path, b"{}", mode="create")
            except (FileExistsError, *_NO_MODE):
                return False
            return True

        with ThreadPoolExecutor(_CREATORS) as pool:
            count = sum(pool.map(made, range(_CREATORS)))
        with suppress(FileNotFoundError):
            self._fs.rm_file(path)
        return count == 1

    def delete(self, path: str) -> None:
        """Delete an object."""
        if self.size(path) is None:  # Buckets delete what is not there without a word.
            raise FileNotFoundError(path)
        self._fs.rm_file(f"{self._root}/{path}")

    def find(self, folder: str) -> list[str]:
        """Return the objects below a folder; none when it is missing."""
        self._fs.invalidate_cache()
        try:
            found: list[str] = list(self._fs.find(f"{self._root}/{folder}"))
        except FileNotFoundError:
            return []
        return [each[len(self._root) :].lstrip("/") for each in found]


class S3Store(FsspecStore):
    """A bucket of S3. What is missing costs one request, and the key needs no permission to list.

    Without that leave S3 says 403 of what is missing, as of what one may not read.
    """

    def __init__(self, filesystem: Any, root: str) -> None:
        """Use the part of this bucket below `root`."""
        super().__init__(filesystem, root)
        self._known = ""

    def read(self, path: str) -> bytes:
        """Return the bytes of an object."""
        try:
            data = super().read(path)
        except PermissionError:
            if not self._known:
                raise
            self._head(self._known)  # refused as well, if reading is
            raise FileNotFoundError(path) from None
        self._known = path
        return data

    def size(self, path: str) -> int | None:
        """Return the size of an object, or None when it is missing."""
        try:
            found = self._head(path)
        except FileNotFoundError:
            return None
        except PermissionError:
            if self._known:  # else the first write or read says what is allowed
                self._head(self._known)
            return None
        self._known = path
        return int(found["ContentLength"])

    def write(self, path: str, data: bytes, *, forced: bool = True) -> None:
        """Replace an object."""
        super().write(path, data, forced=forced)
        self._known = path

    def add(self, path: str, data: bytes) -> None:
        """Write an object in one request, if it is not there."""
        super().add(path, data)
        self._known = path

    def written(self, path: str) -> float:
        """Return when an object was written last."""
        return float(self._head(path)["LastModified"].timestamp())

    def lock(self, paths: Sequence[str], *, on: bool) -> bool:
        """Set or end the legal hold of each version of objects.

        Returns:
            Whether the bucket has Object Lock; else nothing was done.
        """
        try:
            said = self._call("get_object_lock_configuration", "")
        except OSError as error:  # or it only speaks the protocol
            if error.errno == ENOSYS or "ObjectLockConfigurationNotFound" in str(error):
                return False
            raise

        def set_one(path: str) -> None:
            given = {"LegalHold": {"Status": "ON" if on else "OFF"}}
            page: dict[str, Any] = {"IsTruncated": True}
            while page.get("IsTruncated"):
                after = {each[4:]: page[each] for each in _NEXT if each in page}
                page = self._call("list_object_versions", path, **after)
                for each in page.get("Versions", ()):
                    if each["Key"].endswith(path):  # longer names begin alike
                        given["VersionId"] = each["VersionId"]
                        self._call("put_object_legal_hold", path, **given)

        with ThreadPoolExecutor(_CREATORS) as pool:
            list(pool.map(set_one, paths))
        return "Enabled" in said.get("ObjectLockConfiguration", {}).values()

    def _head(self, path: str) -> Any:
        return self._call("head_object", path)

    def _call(self, method: str, path: str, **given: Any) -> Any:
        """Ask S3 about an object; s3fs leaves out what the method does not take."""
        bucket, key, _ = self._fs.split_path(f"{self._root}/{path}")
        given |= {"Bucket": bucket, "Key": key, "Prefix": key}
        return self._fs.call_s3(method, self._fs.kwargs, **given)
