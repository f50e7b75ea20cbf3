"""Master keys: they encrypt the data keys that encrypt everything else."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import secrets
import shlex
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast, runtime_checkable

from holdfast.archive.bytestore import KEYS_VARIABLE
from holdfast.errors import ArchiveError, InvalidArgumentError, KeyMissingError
from holdfast.values.checks.gate import check_arguments
from holdfast.values.code.extras import needing
from holdfast.values.text.shown import shown

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
NONCE_BYTES = 12
_COMMAND = "command:"
_COMMAND_SECONDS = 30
_LEAST_NAMES_KEY = 16
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HOW = (
    "Each line is a name, a blank, and 32 bytes in Base64; `holdfast keys new k1` prints one. The"
    " first key encrypts, all decrypt."
)


@runtime_checkable
class KeyService(Protocol):
    """Encrypts data keys, such as a KMS does, whose master key never leaves it.

    Both methods may block: they run in a thread. What they raise ends what needed the key, and is
    tried again with it.
    """

    def wrap(self, data_key: bytes, scope: bytes) -> bytes:
        """Encrypt a data key of 32 bytes, bound to its scope (additional authenticated data)."""
        ...

    def unwrap(self, wrapped: bytes, scope: bytes) -> bytes:
        """Return the data key that `wrap` encrypted for this scope."""
        ...


class Wrapped(NamedTuple):
    """A data key as it is kept.

    Attributes:
        by: Name of the master key.
        data: The data key, encrypted by it.
        is_all: Whether all of its archive is encrypted. This is bound to the ciphertext.
    """

    by: str
    data: bytes
    is_all: bool = False


class Keys:
    """Named master keys: the first encrypts, all decrypt.

    A new first key encrypts what is written from then on. `holdfast keys rotate` then encrypts the
    data keys by it, and `holdfast keys list` says which of the older keys may go.
    """

    def __init__(self, keys: Mapping[str, bytes | KeyService]) -> None:
        """Use these keys.

        Args:
            keys: By name, 32 bytes for AES-256-GCM, or a `KeyService`. A name has up to 64 letters,
                digits, dots, hyphens and underscores, and is not secret.

        Raises:
            InvalidArgumentError: There are no keys, or one has another form.
            ArchiveError: The extra `keys` is not installed.
        """
        given = cast("object", keys)
        if not isinstance(given, Mapping) or not given:
            msg = "Keys are named: Keys({'k1': ...}). The first encrypts, all decrypt."
            raise InvalidArgumentError(msg)
        self._services: dict[str, KeyService] = {}
        for name, key in cast("Mapping[object, object]", given).items():
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise InvalidArgumentError(
                    f"{shown(name)} cannot name a key: use up to 64 letters, digits, dots, hyphens"
                    " and underscores."
                )
            self._services[name] = _service(name, key)
        self.first = next(iter(self._services))

    def __repr__(self) -> str:
        """Name the keys; what they are is in no log."""
        return f"Keys({', '.join(self._services)})"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the keys; the first one encrypts."""
        return tuple(self._services)

    def wrap(self, data_key: bytes, scope: str, *, is_all: bool = False) -> Wrapped:
        """Encrypt a data key by the first master key.

        Raises:
            ArchiveError: The key's service has failed.
        """
        with _failures(self.first, "encrypt"):
            data = self._services[self.first].wrap(data_key, _bound(scope, is_all=is_all))
        return Wrapped(self.first, data, is_all)

    def unwrap(self, wrapped: Wrapped, scope: str) -> bytes:
        """Decrypt a data key.

        Raises:
            KeyMissingError: Its master key is not here, or is another one of that name.
            ArchiveError: The key's service has failed.
        """
        service = self._services.get(wrapped.by)
        if service is None:
            raise KeyMissingError(
                f"It is encrypted with the key {wrapped.by!r}, which is not here (only"
                f" {', '.join(self._services)}).",
                remedy=f"Add that key to {KEYS_VARIABLE}. Nothing was changed; what waits goes on.",
            )
        with _failures(wrapped.by, "decrypt"):
            return service.unwrap(wrapped.data, _bound(scope, is_all=wrapped.is_all))

    @classmethod
    def read(cls, place: str) -> Keys:
        """Read keys from a file, or from what a command prints.

        Args:
            place: Path of a file, or `command:` and a command with its arguments, which runs
                without a shell.

        Raises:
            InvalidArgumentError: There is no such file or command, or it says something else.
        """
        return cls(_parsed(place, _text(place)))

    @classmethod
    def given(cls, keys: Keys | None) -> Keys:
        """Return the keys that a program gives, or else the keys that `HOLDFAST_KEYS` names.

        Raises:
            InvalidArgumentError: They are something else, or as for `read`.
        """
        if keys is None:
            return _of_environment(os.environ[KEYS_VARIABLE])
        if not isinstance(cast("object", keys), Keys):
            msg = f"keys is made by Keys(...) or Keys.read(...); it was {type(keys).__name__}."
            raise InvalidArgumentError(msg)
        return keys


def _bound(scope: str, *, is_all: bool) -> bytes:
    return f"{scope}; all is encrypted".encode() if is_all else scope.encode()


@cache
def _of_environment(place: str) -> Keys:
    """Read the keys once: a command may ask a person, or take seconds."""
    return Keys.read(place)


def _text(place: str) -> str:
    try:
        if not place.startswith(_COMMAND):
            return Path(place).expanduser().read_text("utf-8")
        done = subprocess.run(  # the person who sets the keys names it
            shlex.split(place.removeprefix(_COMMAND)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,  # its errors go where ours go
            timeout=_COMMAND_SECONDS,
            check=True,
        )
        return done.stdout.decode("utf-8")
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        # No text of the error: a file that is not UTF-8 is quoted in it, and may be a key.
        why = error.strerror if isinstance(error, OSError) else type(error).__name__
        msg = f"The keys of {KEYS_VARIABLE} cannot be read from {place!r}: {why}. {_HOW}"
        raise InvalidArgumentError(msg) from None


def _parsed(place: str, text: str) -> dict[str, bytes | KeyService]:
    found: dict[str, bytes | KeyService] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, _, key = line.strip().partition(" ")
        if not name or name.startswith("#"):
            continue
        try:
            data = base64.b64decode(key.strip(), validate=True)
        except (binascii.Error, ValueError):
            data = b""
        if len(data) != KEY_BYTES or name in found:
            why = "repeats a name" if name in found else "is not a key"
            raise InvalidArgumentError(f"Line {number} of the keys in {place!r} {why}. {_HOW}")
        found[name] = data
    if not found:
        raise InvalidArgumentError(f"There is no key in {place!r}. {_HOW}")
    return found


def _service(name: str, key: object) -> KeyService:
    if isinstance(key, bytes) and len(key) == KEY_BYTES:
        return _LocalKey(key)
    if isinstance(key, KeyService):
        return key
    msg = f"The key {name!r} is neither {KEY_BYTES} bytes nor a KeyService (`wrap`, `unwrap`)."
    raise InvalidArgumentError(msg)


class _LocalKey:
    """A master key that this process has."""

    def __init__(self, key: bytes) -> None:
        self._cipher = cipher(key)

    def wrap(self, data_key: bytes, scope: bytes) -> bytes:
        """Encrypt a data key; the nonce is in front."""
        return sealed(self._cipher, data_key, scope)

    def unwrap(self, wrapped: bytes, scope: bytes) -> bytes:
        """Decrypt a data key."""
        return opened(self._cipher, wrapped, scope)


def new_key() -> bytes:
    """Return 32 random bytes."""
    return secrets.token_bytes(KEY_BYTES)


def cipher(key: bytes) -> AESGCM:
    """Return AES-256-GCM with a key.

    Raises:
        ArchiveError: The extra `keys` is not installed.
    """
    with needing("keys", f"Encryption ({KEYS_VARIABLE})", error=ArchiveError):
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def sealed(key: AESGCM, data: bytes, bound_to: bytes) -> bytes:
    """Encrypt data; the random nonce of 96 bits is in front.

    One data key encrypts the texts of one scope, so two equal nonces are out of reach: NIST SP
    800-38D allows 2^32 random nonces a key.
    """
    nonce = secrets.token_bytes(NONCE_BYTES)
    return nonce + key.encrypt(nonce, data, bound_to)


def opened(key: AESGCM, data: bytes, bound_to: bytes) -> bytes:
    """Decrypt data.

    Raises:
        InvalidTag: It was changed, or encrypted with another key, or bound to something else.
    """
    nonce = data[:NONCE_BYTES].ljust(NONCE_BYTES, b"\0")  # of what was cut, too
    return key.decrypt(nonce, data[NONCE_BYTES:], bound_to)


@contextmanager
def _failures(name: str, verb: str) -> Generator[None]:
    """Turn what a key service raises into our error, without its text, which may hold a secret."""
    try:
        yield
    except Exception as error:
        if is_wrong_key(error):
            raise KeyMissingError(
                f"It is encrypted with another key of the name {name!r} than that of"
                f" {KEYS_VARIABLE}.",
                remedy="Set the right one. Nothing was changed, and what waits goes on.",
            ) from None
        raise ArchiveError(
            f"The service of the key {name!r} could not {verb} a data key: {type(error).__name__}.",
            remedy="Check the service and its credentials. What waits goes on.",
        ) from error


def is_wrong_key(error: Exception) -> bool:
    """Whether decryption has failed: `cryptography` is not imported where there are no keys."""
    return type(error).__name__ == "InvalidTag"


def hashed(name: str) -> str:
    """Return a name that tells nothing of the given one, for a session or a task.

    Temporal and the archive keep the ids of tasks and sessions, and the names of agents and tools
    in plain text, because lists look for them. `HOLDFAST_NAMES_KEY` is a secret of your own, which
    all processes of an app share and which never changes. Without it, anybody could test guesses.

    Args:
        name: Such as the mail address of a person.

    Returns:
        32 hexadecimal digits, the same for the same name and secret.

    Raises:
        InvalidArgumentError: `HOLDFAST_NAMES_KEY` has less than 16 characters.
    """
    check_arguments(hashed, name=name)
    key = os.environ.get("HOLDFAST_NAMES_KEY", "").encode()
    if len(key) < _LEAST_NAMES_KEY:
        raise InvalidArgumentError(
            f"hashed() needs HOLDFAST_NAMES_KEY, a secret of at least {_LEAST_NAMES_KEY} characters"
            " that all processes share: without it, anybody could test guesses of the name."
        )
    return hmac.new(key, name.encode(), hashlib.sha256).hexdigest()[:32]
