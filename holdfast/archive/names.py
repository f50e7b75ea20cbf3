"""How things are named inside an archive."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import cast
from urllib.parse import quote, unquote

from holdfast.errors import InvalidArgumentError
from holdfast.values.base import digest
from holdfast.values.text.shown import shown

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
"""Marks of a task's calls that must not be repeated (`activities/tools/begun_effects.py`)."""
ERASURES = "erasures"
"""Certificates of tasks that were erased; none is ever changed."""
FORKS = "forks"
"""Which tasks were forked from a task, in a folder of it."""
HOLDS = "holds"
"""What must not be erased or deleted, and who has ended that; none is ever changed."""
SUPERSEDED = "superseded"
"""Records of a task's ends that others have replaced."""


def folder_of(kind: str, task_id: str) -> str:
    """Return the folder of a task in `EFFECTS`, `FORKS` or `SUPERSEDED`, kept as long as it."""
    return record_name(kind, task_id).removesuffix(".json")


def blob_path(sha256: str) -> str:
    """Return the path of a blob; two digits of it make the folder."""
    if not _SHA256.fullmatch(sha256):
        raise InvalidArgumentError(f"{sha256!r} is not a SHA-256 of 64 lower-case hex digits.")
    return f"{BLOBS}/{sha256[:2]}/{sha256}"


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
    is_outside = "\\" in name or any(part in {"", ".", ".."} for part in parts)
    if is_outside or parts[0] in {BLOBS, KEYS_FOLDER, *PLAIN_FILES, KEY_FILE}:
        raise InvalidArgumentError(
            f"{name!r} cannot name a record. Use a relative path such as tasks/a.json, and"
            " record_name(...) for ids with special characters."
        )
    return name
