"""Data keys: one for each scope, kept in the archive, encrypted by a master key.

What is encrypted names its data key, never a master key. So the master key can change without
touching what is encrypted, and what one data key encrypts is lost with it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, NamedTuple

from holdfast.archive.bytestore import ByteStore
from holdfast.archive.encryption.keys import Keys, Wrapped, cipher, new_key, opened, sealed
from holdfast.archive.names import KEY_ID_BYTES, KEYS_FOLDER, key_id, key_path
from holdfast.errors import ArchiveError, KeyMissingError
from holdfast.values.base import in_order

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_MOST_CACHED = 10_000


class DataKey(NamedTuple):
    """A data key.

    Attributes:
        id: Its 16 bytes of id, in front of what it encrypts.
        key: The key itself, 32 bytes.
        cipher: What encrypts with it.
    """

    id: bytes
    key: bytes
    cipher: AESGCM

    def seal(self, data: bytes, bound_to: bytes) -> bytes:
        """Encrypt data: the id, the nonce, the ciphertext."""
        return self.id + sealed(self.cipher, data, self.id + bound_to)

    def open(self, data: bytes, bound_to: bytes) -> bytes:
        """Decrypt what `seal` has returned.

        Raises:
            InvalidTag: It was changed, or is bound to something else.
        """
        return opened(self.cipher, data[KEY_ID_BYTES:], self.id + bound_to)


class DataKeys:
    """The data keys of an archive; each is read once by a process, and made by the first user."""

    def __init__(self, store: ByteStore, keys: Keys) -> None:
        """Keep data keys in this store, encrypted by these master keys."""
        self._store = store
        self._keys = keys
        self._known: dict[bytes, DataKey] = {}

    def known(self, id: bytes) -> DataKey | None:
        """Return a data key if this process has it already: the only answer without reading."""
        return self._known.get(id)

    def of_scope(self, scope: str) -> DataKey:
        """Return the data key of a scope; the first user makes it.

        Raises:
            KeyMissingError: Its master key is not here.
            ArchiveError: The archive cannot be used.
        """
        id = key_id(scope)
        if id in self._known:
            return self._known[id]
        if self._store.size(key_path(id)) is None:
            wrapped = self._keys.wrap(new_key(), scope)
            # Of two processes one decides. A store where both would is refused: what the other
            # had encrypted until then would be lost.
            self._store.create(key_path(id), _written(scope, wrapped), exclusively=True)
        return self.by_id(id)

    def by_id(self, id: bytes) -> DataKey:
        """Return the data key that something encrypted names.

        Raises:
            KeyMissingError: It is not in the archive, or its master key is not here.
            ArchiveError: The archive cannot be used.
        """
        if id in self._known:
            return self._known[id]
        try:
            data = self._store.read(key_path(id))
        except FileNotFoundError:
            raise KeyMissingError(
                f"The data key {id.hex()!r} is not in the archive: it was deleted, and what it"
                " encrypts with it, or this is another archive.",
                remedy="Check which archive it was encrypted for.",
            ) from None
        scope, wrapped = _read(data, id)
        key = self._keys.unwrap(wrapped, scope)
        if len(self._known) >= _MOST_CACHED:
            self._known.pop(next(iter(self._known)), None)
        found = self._known[id] = DataKey(id, key, cipher(key))
        return found

    def masters(self) -> Iterator[str]:
        """Yield for each data key the name of the master key that encrypts it.

        Raises:
            ArchiveError: The archive cannot be read.
        """
        for path in self._store.find(KEYS_FOLDER):
            yield _read(self._store.read(path), _id_in(path))[1].by

    def rotate(self) -> Generator[bool]:
        """Encrypt each data key by the first master key; yield for each whether it was changed.

        It can be stopped and begun again at any time.

        Raises:
            KeyMissingError: A master key is not here. What was changed until then stays changed.
            ArchiveError: The archive cannot be used.
        """
        for path in sorted(self._store.find(KEYS_FOLDER)):
            data = self._store.read(path)
            scope, wrapped = _read(
                data, bytes.fromhex(path.rpartition("/")[2].removesuffix(".json"))
            )
            is_old = wrapped.by != self._keys.first
            if is_old:
                again = self._keys.wrap(self._keys.unwrap(wrapped, scope), scope)
                self._store.write(path, _written(scope, again))
            yield is_old


def _id_in(path: str) -> bytes:
    return bytes.fromhex(path.rpartition("/")[2].removesuffix(".json"))


def _written(scope: str, wrapped: Wrapped) -> bytes:
    data = base64.b64encode(wrapped.data).decode()
    return in_order({"scope": scope, "by": wrapped.by, "wrapped": data})


def _read(data: bytes, id: bytes) -> tuple[str, Wrapped]:
    """Read a data key's file.

    Raises:
        ArchiveError: It is something else, or that of another scope.
    """
    try:
        found = json.loads(data)
        scope, by, wrapped = found["scope"], found["by"], base64.b64decode(found["wrapped"])
    except (ValueError, TypeError, LookupError):
        scope = by = ""
        wrapped = b""
    if key_id(scope) != id:
        raise ArchiveError(
            f"{key_path(id)!r} is not the data key of that name.",
            remedy="Restore it from a backup.",
        )
    return scope, Wrapped(by, wrapped)
