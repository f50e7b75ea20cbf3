"""`gc`: values of the archive that nothing refers to any more."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError
from pydantic import TypeAdapter
from pydantic_core import from_json
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import DefaultPayloadConverter

from holdfast.archive.archive import Archive, places_of
from holdfast.archive.bytestore import (
    BLOBS,
    ERASURES,
    KEYS_FOLDER,
    LOCKS,
    PLAIN_FILES,
    UNUSED,
    aside_path,
    record_name,
    used_path,
)
from holdfast.archive.holds import read_holds
from holdfast.archive.kept_answers import drop_answers
from holdfast.cli import output
from holdfast.cli.connection import Engine, engine_of
from holdfast.cli.exits import ExitCode
from holdfast.cli.options import Common
from holdfast.engine.converter import DRIVER
from holdfast.errors import BlobMissingError, CommandRefusedError
from holdfast.reading.queries import server_errors
from holdfast.task.data.state import CommitRef
from holdfast.values.checks.gate import as_array, as_object, as_text
from holdfast.values.code.some_at_once import some_at_once

READABLE = {
    b"json/external-storage-reference",
    *(
        each.encoding.encode()
        for each in DefaultPayloadConverter.default_encoding_payload_converters
    ),
}
"""Encodings of payloads in which the digests of values can be seen."""

WHOLE_VALUES = 4
"""Values that are in memory at the same time; one may have 50 MB."""

SHA256 = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


class Unused(NamedTuple):
    """A value that nothing refers to.

    Attributes:
        path: Its file in the archive.
        size: Its bytes, as they are kept.
        at: When it was written or put aside, seconds since the epoch.
        does: What `gc` does with it.
    """

    path: str
    size: int
    at: float
    does: str


async def gc_command(common: Common, *, days: float, dry_run: bool) -> ExitCode:
    """Put aside, then delete the values that nothing refers to, and that are older than some days.

    Raises:
        CommandRefusedError: Something is held.
        ArchiveError: A record cannot be read: what it refers to is not known then.
    """
    until = time.time() - days * 86_400
    async with engine_of(common) as engine:
        found = await (unused if dry_run else collect)(engine, until)
    data = [each._asdict() for each in found]
    rows = [(*each[:1], str(each.size), output.clock(each.at), each.does) for each in found]
    columns = ("value", "bytes", "since (UTC)", "what gc does")
    return output.listed(data, "All is used.", columns, rows, as_json=common.json)


async def collect(engine: Engine, until: float) -> list[Unused]:
    """Put aside what `unused` finds, and delete what was put aside before that time.

    So two looks at everything, days apart, must find no reference to a value before it goes, and no
    read may come between. A task that writes now may find an old value in place of writing it, and
    its reference is nowhere yet. This can be stopped at any moment, and begun again.

    Raises:
        CommandRefusedError: Something is held: a value does not say whose it was. Or a payload of
            Temporal cannot be read here.
        EngineError: As for `unused`.
    """
    found = await unused(engine, until)
    if held := await read_holds(engine.archive):
        msg = f"The {held[0].kind} {held[0].name!r} is held for the case {held[0].case!r}."
        raise CommandRefusedError(f"{msg} Until no hold is left, no value is deleted.")
    await some_at_once(engine.archive.aput_aside, [each.path for each in found])
    await _drop_late(engine.archive)
    return found


async def _drop_late(archive: Archive) -> None:
    """Delete answers that came after the erasure of their tasks: so nothing refers to their values.

    With keys, these cannot be written any more. Marks of effects have no texts, and stay.
    """
    names = await archive.alist_records(ERASURES)
    certificates = map(as_object, await some_at_once(archive.afind_record, names))
    tasks = [as_text(task) for each in certificates for task in as_array(each.get("tasks"))]
    await drop_answers(archive, tasks)


async def unused(engine: Engine, until: float) -> list[Unused]:
    """Return the values that were written before a time, and that nothing refers to.

    Whatever looks like a digest counts as a reference, in records, in what Temporal has of any
    workflow and schedule, and in values that are referred to themselves; but for the turn of an
    erased task that its session has replaced. So a value may be kept too long, and none is listed
    that a task, a session, a fork or a hand-over needs.

    Raises:
        EngineError: Something cannot be read: what it refers to is not known then.
    """
    archive, used = engine.archive, set[str]()
    files = await archive.afiles()
    blobs = [each for each in files if each.startswith(f"{BLOBS}/")]
    away = (f"{BLOBS}/", f"{KEYS_FOLDER}/", f"{LOCKS}/", *PLAIN_FILES, "archive.key")
    records = [each for each in files if not each.startswith(away)]
    found = dict(zip(records, await some_at_once(archive.afind_record, records), strict=True))
    names = Names(each for each, data in found.items() if "erased" in as_object(data))
    for name, data in found.items():
        used |= names.within(json.dumps(data).encode(), name)
    with server_errors():
        async for owner, message in _messages(engine.client):
            for payload in await decoded(engine.client, [*_payloads(message)]):
                used |= names.within(payload.data, owner)
    bare = {each: used_path(each).partition("~")[0] for each in blobs}
    there = {*bare.values()}
    new = set(used)
    # Few at a time: each is a whole value. What is no value, or was written meanwhile, is not read:
    # what the latter refers to is put aside at most, and the next look finds it.
    while new or (new := names.of_turns() - used):  # last: by then it is known what is replaced
        used |= new
        todo = [each for each in new if not there.isdisjoint(places_of(archive, each))]
        read = await some_at_once(lambda each: within(engine, each, names), todo, WHOLE_VALUES)
        new = set[str]().union(*read) - used
    places = set[str]().union(*(places_of(archive, each) for each in used))
    # A read has copied back what is both here and aside: it begins anew.
    aside = {each for each in blobs if each.startswith(UNUSED)}
    left = {each for each in blobs if bare[each] not in places}
    left -= {aside_path(each) for each in blobs if each not in aside}
    seen = zip(left, await some_at_once(lambda each: _seen(archive, each), [*left]), strict=True)
    made = [
        Unused(path, *known, "delete" if path in aside else "put aside")
        for path, known in seen
        if known is not None
    ]
    return sorted((each for each in made if each.at < until), key=lambda each: each.at)


class _Turn(CommitRef, extra="forbid"):
    """A turn, and nothing that looks like one."""


_TURNS = TypeAdapter(list[_Turn])


class Names:
    """Finds what data refer to, and what turns of erased tasks do apart."""

    def __init__(self, marks: Iterable[str]) -> None:
        """Know the marks of erased tasks, by the names of their records."""
        self._marks = {*marks}
        self._owners = dict[str, str]()
        self._turns = list[tuple[str, _Turn]]()
        self._replaced = set[tuple[str, str]]()

    def within(self, data: bytes, owner: str = "") -> set[str]:
        """Return all digests in data; without those of turns of erased tasks in data of a session.

        Args:
            data: Of a session, what is in whole its memory, a list of its turns, or a turn.
            owner: Name of its record; or the digest of the data, which one may have referred to.
        """
        found = Counter(each.decode() for each in SHA256.findall(data))
        owner = self._owners.get(owner, owner)
        if found and self._marks and owner.startswith("sessions/"):
            with suppress(ValueError):  # it is something else
                whole = from_json(data)
                turns = as_array(whole) or as_object(whole).get("commits", [whole])
                for each in _TURNS.validate_python(turns):
                    self._replaced.add((owner, each.erases))
                    if record_name("tasks", each.task) in self._marks:
                        self._turns.append((owner, each))
                        found.subtract([each.sha256])
        names = {each for each, count in found.items() if count > 0}
        for each in names:  # what two refer to is no session's own
            self._owners[each] = owner if self._owners.get(each, owner) == owner else ""
        return names

    def of_turns(self) -> set[str]:
        """Return the digests of the turns of erased tasks that their sessions have not replaced."""
        return {turn.sha256 for at, turn in self._turns if (at, turn.task) not in self._replaced}


async def within(engine: Engine, sha256: str, names: Names) -> set[str]:
    """Return what a value refers to; a digest of something else refers to nothing."""
    try:
        data = await engine.archive.aget(sha256)
    except BlobMissingError:
        return set()
    with suppress(DecodeError):
        # A payload that is too large for history: with keys, it is encrypted within its blob.
        payload = Payload.FromString(data)
        if "encoding" in payload.metadata:
            [inner] = await decoded(engine.client, [payload])
            payload.ClearField("data")
            return names.within(inner.data, sha256) | names.within(payload.SerializeToString())
    return names.within(data, sha256)


async def _seen(archive: Archive, path: str) -> tuple[int, float] | None:
    """Return a value's size and age, or None if an erasure has just deleted it."""
    with suppress(BlobMissingError):
        return await archive.aage(path)
    return None


async def _messages(client: Client) -> AsyncGenerator[tuple[str, Any]]:
    """Yield all events of all runs, of sessions with the names of their records, and schedules."""
    async for run in client.list_workflows():
        owner = record_name("sessions", run.id) if run.workflow_type == "Session" else ""
        handle = client.get_workflow_handle(run.id, run_id=run.run_id)
        async for event in handle.fetch_history_events():
            yield owner, event
    async for each in await client.list_schedules():
        yield "", (await client.get_schedule_handle(each.id).describe()).raw_description


def _payloads(message: Any) -> Iterator[Payload]:
    """Yield the payloads within a message of Temporal's API."""
    if isinstance(message, Payload):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            parts = [each for each in value.values() if hasattr(each, "ListFields")]
        else:
            parts = [value] if hasattr(value, "ListFields") else value
        for each in parts:
            yield from _payloads(each)


async def decoded(client: Client, payloads: list[Payload]) -> list[Payload]:
    """Decode payloads; none may stay unread: what it refers to would not be known.

    Raises:
        CommandRefusedError: One is encoded by a codec that is not here, or kept elsewhere.
    """
    codec = client.data_converter.payload_codec
    found = await codec.decode(payloads) if codec is not None and payloads else payloads
    for each in found:
        coding, kind = (each.metadata.get(name, b"") for name in ("encoding", "messageType"))
        is_kept = b"external-storage-reference" in coding or kind.endswith(
            b".ExternalStorageReference"
        )
        is_elsewhere = is_kept and DRIVER.encode() not in each.data
        if is_elsewhere or (each.data and coding not in READABLE):
            shown = (
                "kept by a storage driver" if is_elsewhere else f"encoded as {coding.decode()!r}"
            )
            raise CommandRefusedError(
                f"Temporal has a value that is {shown}, which this command cannot read: what it"
                " refers to is not known, so nothing is put aside or deleted."
            )
    return found
