"""A store whose contents are encrypted: all of the archive but its id and the data keys."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Sequence

from temporalio import activity

from holdfast.archive.bytestore import (
    BLOBS,
    CONTENTS_SCOPE,
    KEY_FILE,
    KEY_ID_BYTES,
    KEYS_FOLDER,
    PLAIN_FILES,
    SCOPE,
    ByteStore,
    blob_path,
    copy_path,
    key_id,
    used_path,
)
from holdfast.archive.encryption.data_keys import DataKeys
from holdfast.archive.encryption.hidden_logs import hide_texts
from holdfast.archive.encryption.keys import NONCE_BYTES, Keys, is_wrong_key
from holdfast.errors import DigestMismatchError, ErasedError, KeyMissingError
from holdfast.values.base import digest

MAGIC = b"\x00HFE1"
"""In front of what is encrypted; no record begins with it, as all are JSON."""

_OVERHEAD = len(MAGIC) + KEY_ID_BYTES + NONCE_BYTES + 16  # the tag of AES-GCM


def _scope_now() -> str:
    scope = SCOPE.get()
    if not scope and activity.in_activity():
        scope = activity.info().workflow_id or ""
    return scope or CONTENTS_SCOPE


class EncryptedStore:
    """Encrypts before another store writes, by the data key of the scope that writes.

    Blobs are named by a keyed code (HMAC) of their digest: the bare digest would confirm guesses of
    a text. Equal values are stored once in a scope, and once more in another one, so that each
    scope can be erased. What was written before there were keys is read as it is, until all is
    encrypted.
    """

    def __init__(self, inner: ByteStore, keys: Keys) -> None:
        """Encrypt for this store; the logs of this process have no texts from now on."""
        hide_texts()
        self._inner = inner
        self.data_keys = DataKeys(inner, keys)

    def where(self, path: str) -> str:
        """Return the full name of a path."""
        return self._inner.where(path)

    def read(self, path: str) -> bytes:
        """Return the bytes of a path.

        Raises:
            KeyMissingError: It is encrypted with a key that is not here.
            DigestMismatchError: It was changed.
        """
        lost: Exception = FileNotFoundError(path)
        for place in self._places(path):
            try:
                return self._opened(place, self._inner.read(place))
            except FileNotFoundError:
                continue
            except (KeyMissingError, ErasedError) as error:  # another scope may have it, too
                lost = error
        raise lost

    def size(self, path: str) -> int | None:
        """Return the number of bytes of a path before encryption; None when the scope lacks it."""
        size = self._inner.size(self._named(path))
        return None if size is None else max(size - _OVERHEAD, 0)

    def written(self, path: str) -> float:
        """Return when a path was written last."""
        return self._inner.written(path)

    def write(self, path: str, data: bytes, *, forced: bool = True) -> None:
        """Replace the bytes of a path in one step."""
        self.data_keys.own(made=True)
        named = self._named(path)
        self._inner.write(named, self._sealed(named, data), forced=forced)

    def add(self, path: str, data: bytes) -> None:
        """Write a path unless the scope has it."""
        self.data_keys.own(made=True)
        named = self._named(path)
        self._inner.add(named, self._sealed(named, data))

    def create(self, path: str, data: bytes, *, exclusively: bool = False) -> bool:
        """Write a path unless it is there."""
        self.data_keys.own(made=True)
        named = self._named(path)
        return self._inner.create(named, self._sealed(named, data), exclusively=exclusively)

    def delete(self, path: str) -> None:
        """Delete a path."""
        self._inner.delete(path)

    def find(self, folder: str) -> list[str]:
        """Return the paths of all files below a folder."""
        return self._inner.find(folder)

    def erase(self, scopes: Sequence[str], why: str) -> int:
        """Erase the data keys of scopes, and delete their values; return how many there were."""
        for each in scopes:
            self.data_keys.erase(each, why)
        ends = tuple(copy_path("", key_id(each)) for each in scopes)
        found = [path for path in self._inner.find(BLOBS) if path.endswith(ends)]
        for path in found:
            self._inner.delete(path)
        return len(found)

    def kept(self, path: str) -> tuple[bytes, bool]:
        """Read a file by the path under which it is kept, to check it.

        Returns:
            Its bytes, decrypted, and whether a blob's path is the one that such bytes have.

        Raises:
            KeyMissingError: It is encrypted with a key that is not here.
            DigestMismatchError: It was changed.
            ArchiveError: It is a data key that cannot be used.
        """
        raw, path = self._inner.read(path), used_path(path)
        data = self._opened(path, raw)
        if path.startswith(f"{KEYS_FOLDER}/"):
            self.data_keys.read(path)
        plain = blob_path(digest(data))
        own = self.coded(plain)
        return data, path in {plain, own, copy_path(own, raw[len(MAGIC) :][:KEY_ID_BYTES])}

    def encrypt_plain(self) -> Iterator[bool]:
        """Encrypt what was written before there were keys; yield for each file whether it was.

        It can be stopped and begun again. No worker may run meanwhile: a record that changes
        between its reading and its writing would be lost.

        Raises:
            ArchiveError: The archive cannot be used.
        """
        for path in sorted(self._inner.find("")):
            if _is_open(path):
                continue
            data = self._inner.read(path)
            is_plain = not data.startswith(MAGIC)
            if is_plain:
                self.write(used_path(path), data)
                if self._named(path) != path:
                    self._inner.delete(path)
            yield is_plain

    def coded(self, path: str) -> str:
        """Return the path that tells nothing of a blob; any other path stays as it is."""
        if not path.startswith(f"{BLOBS}/") or (own := self.data_keys.own()) is None:
            return path
        return blob_path(hmac.new(own.key, path.encode(), hashlib.sha256).hexdigest())

    def _named(self, path: str) -> str:
        """Return the path under which the present scope keeps something."""
        coded, scope = self.coded(path), _scope_now()
        return (
            coded if coded == path or scope == CONTENTS_SCOPE else copy_path(coded, key_id(scope))
        )

    def _places(self, path: str) -> Iterator[str]:
        """Yield where something may be: first where the present scope keeps it, then other scopes.

        Values pass from task to task by their digests, as the turns of a session do.
        """
        coded = self.coded(path)
        yield from dict.fromkeys((self._named(path), coded))
        if coded != path:
            yield from self._inner.find(copy_path(coded, b"").rstrip("/"))
            yield path  # a blob of the time without keys, checked by its digest

    def _sealed(self, path: str, data: bytes) -> bytes:
        if _is_open(path):
            return data
        scope = CONTENTS_SCOPE if path == KEY_FILE else _scope_now()
        return MAGIC + self.data_keys.of_scope(scope).seal(data, path.encode())

    def _opened(self, path: str, data: bytes) -> bytes:
        if not data.startswith(MAGIC):
            if _is_open(path) or (own := self.data_keys.own()) is None or not own.is_all:
                return data
            raise DigestMismatchError(
                f"{self.where(path)!r} is in plain text, and all of this archive was encrypted:"
                " something else has written it.",
                remedy="Restore it from a backup. If that is of the time before there were keys,"
                " `holdfast keys rotate --plain` encrypts it.",
            )
        sealed = data[len(MAGIC) :]
        key = self.data_keys.by_id(sealed[:KEY_ID_BYTES])
        try:
            return key.open(sealed, path.encode())
        except Exception as error:
            if not is_wrong_key(error):
                raise
            raise DigestMismatchError(
                f"{self.where(path)!r} was changed: it cannot be decrypted with the key it names.",
                remedy="Restore it from a backup.",
            ) from None


def _is_open(path: str) -> bool:
    """Whether a file stays as it is: ids, by which processes see that they share it, and keys."""
    return path in PLAIN_FILES or path.startswith(f"{KEYS_FOLDER}/")
