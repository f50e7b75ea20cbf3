"""Artifacts: files that a tool keeps with its call. Their bytes go to the archive at once.

The outcome of the call names them. A call that is lost before it has one has named none: the tool
runs again and keeps them again, under the same digests.
"""

from __future__ import annotations

import asyncio
import mimetypes
import os
import re
import threading
import time
import unicodedata
from typing import Literal, Protocol, cast

from holdfast.archive.archive import Archive
from holdfast.archive.bytestore import writing_for
from holdfast.errors import ArchiveError, InvalidArgumentError, UserError
from holdfast.values.base import digest, pauses
from holdfast.values.checks.ids import check_name
from holdfast.values.messages import Artifact, Blob
from holdfast.values.text.shown import shown

MOST_VARIABLE = "HOLDFAST_ARTIFACT_BYTES"
MOST_BYTES = 50_000_000
MOST_OF_CALL = 100
"""Most artifacts of a call: the history names each."""
LONGEST_NAME = 200
PATIENCE_SECONDS = 60.0
"""How long an archive that refuses is asked again: what the bytes say may have been paid for."""
_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/[a-z0-9][a-z0-9!#$&^_.+-]{0,63}")


_BINARY = "application/octet-stream"
_LOCK = threading.Lock()
"""Held for a moment: tools keep artifacts from threads of their own."""


class Keeper(Protocol):
    """Where the artifacts of a call that is being run go to, and come from."""

    archive: Archive

    async def artifact(self, reference: str) -> tuple[Artifact, bytes]:
        """Return an artifact that the call's task may read, with its bytes."""
        ...


class Keeping(Protocol):
    """The context of a call."""

    task_id: str
    kept: tuple[Artifact, ...]
    keeper: Keeper | Literal["nowhere"] | None


class Artifacts:
    """Files that a tool keeps with its call; `ToolContext.artifacts` of the call has this."""

    def __init__(self, call: Keeping) -> None:
        """Keep for this call."""
        self._call = call

    def put(self, name: str, data: bytes | str, type: str = "") -> str:
        """Keep a file with the call, durably once this returns; use `aput` in async tools.

        It is safe from any thread. A file of a name that the task has is a new version. If the
        tool raises afterwards, the file stays with the failed call. In a context made by hand it
        is only checked.

        Args:
            name: As "report.csv", without a folder, at most 200 bytes; kept in Unicode's form NFC.
            data: The content; a text is kept as UTF-8. At most 50 MB, or what
                `HOLDFAST_ARTIFACT_BYTES` says.
            type: Media type, as "text/csv"; by default what the name says.

        Returns:
            The reference, which the model may be told: with it, `read_artifact` of this task, of
            its child tasks and of the one above finds this very version.

        Raises:
            InvalidArgumentError: One of these cannot be used, or the call has 100 artifacts.
            UserError: The tool is not running, or its call has ended.
            ArchiveError: The archive could not be written for a minute.
        """
        made, content = artifact_of(name, data, type)
        call, keeper = self._call, self._call.keeper
        if keeper is None:
            raise _over(made.name)
        _with(call.kept, made)  # refused before it is written
        if keeper != "nowhere":
            _write(keeper.archive, content, scope=call.task_id)
        with _LOCK:
            call.kept = _with(call.kept, made)
        if call.keeper is None:  # looked at last: before this, the outcome has it
            raise _over(made.name)
        return made.reference

    async def aput(self, name: str, data: bytes | str, type: str = "") -> str:
        """Run `put` in a thread."""
        return await asyncio.to_thread(self.put, name, data, type)

    async def read(self, reference: str) -> bytes:
        """Return the bytes of what an earlier call of the task, a task above or a child task kept.

        Args:
            reference: As `put` has returned it; or a name: then it is the task's newest version.

        Raises:
            NotFoundError: There is no such artifact.
            UserError: The tool is not running.
            ArchiveError: The archive cannot be read.
        """
        return (await self.find(reference))[1]

    async def find(self, reference: str) -> tuple[Artifact, bytes]:
        """Do the same, and return what is known of it as well."""
        keeper = self._call.keeper
        if keeper is None or keeper == "nowhere":
            raise _over(reference)
        return await keeper.artifact(reference)


def _with(kept: tuple[Artifact, ...], made: Artifact) -> tuple[Artifact, ...]:
    """Add an artifact to those of a call; an equal one is there once.

    Raises:
        InvalidArgumentError: These are too many.
    """
    others = tuple(each for each in kept if each != made)
    if len(others) >= MOST_OF_CALL:
        msg = f"A call may keep {MOST_OF_CALL} artifacts. Put several files into one archive."
        raise InvalidArgumentError(msg)
    return (*others, made)


def artifact_of(name: str, data: bytes | str, type: str = "") -> tuple[Artifact, bytes]:
    """Check a file; return it as an artifact, and its bytes.

    Raises:
        InvalidArgumentError: Name, content or type cannot be used.
    """
    name = unicodedata.normalize("NFC", check_name("The name of an artifact", name))
    odd = next((each for each in name if each in "/\\:"), "")
    if odd or name in (".", "..") or name != name.strip():
        why = f"it has {odd!a}" if odd else "no file can be named so"
        msg = f"The name of an artifact is that of a file, without a folder; {shown(name)}: {why}."
        raise InvalidArgumentError(msg)
    if len(name.encode()) > LONGEST_NAME:
        msg = f"The name of an artifact may have {LONGEST_NAME} bytes in UTF-8: {shown(name)}"
        raise InvalidArgumentError(msg)
    content = _bytes_of(name, data)
    if (most := _most_bytes()) < len(content):
        raise InvalidArgumentError(
            f"The artifact {shown(name)} has {len(content):,} bytes; there may be {most:,}. Make it"
            f" smaller, or set {MOST_VARIABLE} where the workers run."
        )
    guessed, packed = mimetypes.guess_type(name)
    usual = _BINARY if packed or not isinstance(data, str) else "text/plain"
    media_type = cast("object", type) or (not packed and guessed) or usual
    if not isinstance(media_type, str) or not _TYPE.fullmatch(media_type := media_type.lower()):
        msg = f"The type of an artifact is as 'text/csv', without parameters; it was {shown(type)}."
        raise InvalidArgumentError(msg)
    stored = Blob(sha256=digest(content), size=len(content))
    return Artifact(name=name, media_type=media_type, stored=stored), content


def _bytes_of(name: str, data: object) -> bytes:
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(cast("bytes", data))
    if not isinstance(data, str):
        msg = f"The artifact {shown(name)} is bytes or a text; it was {shown(data)}."
        raise InvalidArgumentError(msg)
    try:
        return data.encode()
    except UnicodeEncodeError as error:
        msg = f"The artifact {shown(name)} cannot be written as UTF-8: {error}. Give its bytes."
        raise InvalidArgumentError(msg) from None


def _most_bytes() -> int:
    """Return how many bytes an artifact may have.

    Raises:
        InvalidArgumentError: The environment says something else than a number.
    """
    given = os.environ.get(MOST_VARIABLE, "").strip()
    if given and not (given.isascii() and given.isdecimal()):
        msg = f"{MOST_VARIABLE} is a number of bytes, as 50000000; it was {shown(given)}."
        raise InvalidArgumentError(msg)
    return int(given) if given else MOST_BYTES


def _write(archive: Archive, content: bytes, *, scope: str) -> None:
    """Write bytes for a task, again and again while the archive refuses.

    Raises:
        ArchiveError: It did so for about a minute.
    """
    with writing_for(scope):
        for pause in pauses(0.1, 15.0, total=PATIENCE_SECONDS):
            try:
                archive.put(content)
            except ArchiveError:
                time.sleep(pause)
            else:
                return
        archive.put(content)


def _over(name: str) -> UserError:
    msg = (
        f"The artifact {shown(name)} cannot be kept or read now: a tool does that while its call"
        " runs. The call has ended, or this is a hook, a predicate, a probe, an undo or a context"
        " made by hand."
    )
    return UserError(msg, remedy="Wait in the tool for what it has begun in the background.")
