"""Data keys: one for each scope, kept in the archive, encrypted by a master key.

What is encrypted names its data key, never a master key. So the master key can change without
touching what is encrypted, and what one data key encrypts is lost with it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Generator, Iterator
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from holdfast.archive.bytestore import (
    BEGUN_ENCRYPTED,
    CONTENTS_SCOPE,
    ENCRYPTED_FILE,
    ID_FILE,
    KEY_ID_BYTES,
    KEYS_FOLDER,
    NAMES_SCOPE,
    ByteStore,
    key_id,
    key_path,
)
from holdfast.archive.encryption.keys import Keys, Wrapped, cipher, new_key, opened, sealed
from holdfast.errors import ArchiveError, DigestMismatchError, ErasedError, KeyMissingError
from holdfast.values.base import in_order

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_MOST_CACHED = 10_000
_NAMES_ID = key_id(NAMES_SCOPE)
_OWN = (NAMES_SCOPE, CONTENTS_SCOPE)
_OWN_IDS = {key_id(each) for each in _OWN}
"""The archive's own keys, which each read and write needs: they stay cached."""


class DataKey(NamedTuple):
    """A data key.

    Attributes:
        id: Its 16 bytes of id, in front of what it encrypts.
        key: The key itself, 32 bytes.
        cipher: What encrypts with it.
        is_all: Whether all of its archive is encrypted.
    """

    id: bytes
    key: bytes
    cipher: AESGCM
    is_all: bool

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
        self._lock = Lock()
        self._is_marked = False

    def known(self, id: bytes) -> DataKey | None:
        """Return a data key if this process has it already: the only answer without reading."""
        return self._known.get(id)

    def own(self, *, made: bool = False) -> DataKey | None:
        """Return the key of the names of blobs, the first of an archive; None of one in plain text.

        Args:
            made: Make the archive's own keys if it has none: it is encrypted from then on.

        Raises:
            KeyMissingError: They are lost, or their master key is not here.
            ArchiveError: The archive cannot be used.
        """
        known = self.known(_NAMES_ID)
        if known is not None and (self._is_marked or not made):
            return known
        lost = self.lost()
        if made and not self._is_marked:
            for scope in _OWN:
                # An empty archive has nothing in plain text.
                self._make(scope, is_all=scope == NAMES_SCOPE and self._store.size(ID_FILE) is None)
            self._store.create(ENCRYPTED_FILE, b"{}")
            self._is_marked = True
        elif NAMES_SCOPE in lost:
            return None
        return self.by_id(_NAMES_ID)

    def lost(self) -> list[str]:
        """Return which of the archive's own keys it has not, as of one in plain text.

        Raises:
            KeyMissingError: It had them: to make others would be the end of all that they encrypt.
            ArchiveError: The archive cannot be read.
        """
        with suppress(FileNotFoundError):  # of a new archive
            has_file = self._store.size(ENCRYPTED_FILE) is not None
            self._is_marked = has_file or BEGUN_ENCRYPTED.encode() in self._store.read(ID_FILE)
        lost = [each for each in _OWN if self._store.size(key_path(key_id(each))) is None]
        if lost and self._is_marked:
            raise KeyMissingError(
                f"The archive is encrypted, and {self._store.where(KEYS_FOLDER)!r} has lost the"
                f" data key of {lost[0]!r}. Nothing was changed.",
                remedy=f"Restore {KEYS_FOLDER}/ from a backup.",
            )
        return lost

    def of_scope(self, scope: str) -> DataKey:
        """Return the data key of a scope; the first user makes it.

        Raises:
            KeyMissingError: Its master key is not here, or the archive's keys are lost.
            ArchiveError: The archive cannot be used.
        """
        id = key_id(scope)
        if (known := self.known(id)) is not None:
            return known
        self.own(made=True)
        self._make(scope)
        return self.by_id(id)

    def _make(self, scope: str, *, is_all: bool = False) -> None:
        path = key_path(key_id(scope))
        if self._store.size(path) is None:
            wrapped = self._keys.wrap(new_key(), scope, is_all=is_all)
            # Of two processes one decides. A store where both would is refused: what the other
            # had encrypted until then would be lost.
            self._store.create(path, _written(scope, wrapped), exclusively=True)

    def by_id(self, id: bytes) -> DataKey:
        """Return the data key that something encrypted names.

        Raises:
            KeyMissingError: It is not in the archive, or its master key is not here.
            DigestMismatchError: What names it was cut.
            ArchiveError: The archive cannot be used.
        """
        if (known := self.known(id)) is not None:
            return known
        if len(id) < KEY_ID_BYTES:
            msg = "Something encrypted was cut: not even the id of its data key is whole."
            raise DigestMismatchError(msg, remedy="Restore it from a backup.")
        try:
            key, is_all = self.read(key_path(id))
        except FileNotFoundError:
            raise KeyMissingError(
                f"The data key {id.hex()!r} is not in the archive: it was deleted, and what it"
                " encrypts with it, or this is another archive.",
                remedy="Check which archive it was encrypted for.",
            ) from None
        with self._lock:
            if id not in self._known and len(self._known) >= _MOST_CACHED:
                del self._known[next(each for each in self._known if each not in _OWN_IDS)]
            found = self._known[id] = DataKey(id, key, cipher(key), is_all)
        return found

    def erase(self, scope: str, why: str) -> None:
        """Delete the data key of a scope for good: it is never made again.

        What it encrypted is lost everywhere, also in copies and backups of the archive, as far as
        they have no copy of the key.

        Args:
            scope: The scope.
            why: What the error says when it is needed.

        Raises:
            ArchiveError: The archive cannot be used.
        """
        id = key_id(scope)
        self._store.write(key_path(id), in_order({"erased": why}))
        with self._lock:
            self._known.pop(id, None)

    def read(self, path: str) -> tuple[bytes, bool]:
        """Read the file of a data key.

        Returns:
            The key, and whether all of its archive is encrypted.

        Raises:
            FileNotFoundError: It is not there.
            KeyMissingError: It was erased, or its master key is not here.
            ArchiveError: It cannot be used.
        """
        scope, wrapped = _read(self._store.read(path), path)
        if not wrapped.by:
            raise ErasedError(wrapped.data.decode())
        return self._keys.unwrap(wrapped, scope), wrapped.is_all

    def masters(self) -> Iterator[str]:
        """Yield for each data key the name of the master key that encrypts it.

        Raises:
            ArchiveError: The archive cannot be read.
        """
        return (wrapped.by for _, _, wrapped in self._all())

    def rotate(self, *, is_all: bool = False) -> Generator[bool]:
        """Encrypt each data key by the first master key; yield for each whether it was changed.

        It can be stopped and begun again at any time.

        Args:
            is_all: Whether all of the archive is encrypted now: what is plain is refused then.

        Raises:
            KeyMissingError: A master key is not here. What was changed until then stays changed.
            ArchiveError: The archive cannot be used.
        """
        for path, scope, wrapped in self._all():
            says = wrapped.is_all or (is_all and scope == NAMES_SCOPE)
            is_old = (wrapped.by, wrapped.is_all) != (self._keys.first, says)
            if is_old:
                again = self._keys.wrap(self._keys.unwrap(wrapped, scope), scope, is_all=says)
                self._store.write(path, _written(scope, again))
            yield is_old

    def _all(self) -> Iterator[tuple[str, str, Wrapped]]:
        """Yield path, scope and ciphertext of each data key that is not erased."""
        for path in self._store.find(KEYS_FOLDER):
            scope, wrapped = _read(self._store.read(path), path)
            if wrapped.by:
                yield path, scope, wrapped


def _written(scope: str, wrapped: Wrapped) -> bytes:
    data = base64.b64encode(wrapped.data).decode()
    found = {"scope": scope, "by": wrapped.by, "wrapped": data}
    return in_order(found | ({"all": True} if wrapped.is_all else {}))


def _read(data: bytes, path: str) -> tuple[str, Wrapped]:
    """Read a data key's file.

    Raises:
        ArchiveError: It is something else, or that of another scope.
    """
    try:
        found = json.loads(data)
        if "erased" in found:  # which tells no name
            return "", Wrapped("", str(found["erased"]).encode())
        scope = str(found["scope"])
        data = base64.b64decode(found["wrapped"])
        wrapped = Wrapped(str(found["by"]), data, found.get("all") is True)
    except (ValueError, TypeError, LookupError, AttributeError):
        scope, wrapped = "", Wrapped("", b"")
    if key_path(key_id(scope)) != path:
        raise ArchiveError(
            f"{path!r} is not the data key of that name.", remedy="Restore it from a backup."
        )
    return scope, wrapped
