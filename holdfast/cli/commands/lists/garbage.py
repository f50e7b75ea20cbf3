"""`gc`: values of the archive that nothing refers to any more."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncGenerator, Iterator
from typing import Any, NamedTuple

from temporalio.api.common.v1 import Payload
from temporalio.client import Client

from holdfast.archive.archive import Archive, places_of
from holdfast.archive.bytestore import BLOBS, KEYS_FOLDER, PLAIN_FILES
from holdfast.cli import output
from holdfast.cli.connection import Engine, engine_of
from holdfast.cli.exits import ExitCode
from holdfast.cli.options import Common
from holdfast.errors import BlobMissingError, InvalidArgumentError
from holdfast.reading.queries import server_errors
from holdfast.values.code.some_at_once import some_at_once

SHA256 = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


class Unused(NamedTuple):
    """A value that nothing refers to.

    Attributes:
        path: Its file in the archive.
        size: Its bytes, as they are kept.
        at: When it was written, seconds since the epoch.
    """

    path: str
    size: int
    at: float


async def gc_command(common: Common, *, days: float, dry_run: bool) -> ExitCode:
    """List the values that nothing refers to, and that are older than some days.

    Raises:
        InvalidArgumentError: They are not only to be listed.
        ArchiveError: A record cannot be read: what it refers to is not known then.
    """
    if not dry_run:
        msg = "Values are listed, and not deleted: another process may be about to use an old one."
        raise InvalidArgumentError(msg, remedy="Say --dry-run.")
    async with engine_of(common) as engine:
        found = await unused(engine, time.time() - days * 86_400)
    if output.is_told([each._asdict() for each in found], "All is used.", as_json=common.json):
        return ExitCode.OK
    rows = [(each.path, str(each.size), output.clock(each.at)) for each in found]
    output.rows(("value", "bytes", "since (UTC)"), rows)
    return ExitCode.OK


async def unused(engine: Engine, until: float) -> list[Unused]:
    """Return the values that were written before a time, and that nothing refers to.

    Whatever looks like a digest counts as a reference, in records, in what Temporal has of any
    workflow and schedule, and in values that are referred to themselves. So a value may be kept too
    long, and none is listed that a task, a session, a fork or a hand-over needs.

    Raises:
        EngineError: Something cannot be read: what it refers to is not known then.
    """
    archive, used = engine.archive, set[str]()
    files = await archive.afiles()
    blobs = [each for each in files if each.startswith(f"{BLOBS}/")]
    away = (f"{BLOBS}/", f"{KEYS_FOLDER}/", *PLAIN_FILES, "archive.key")
    records = [each for each in files if not each.startswith(away)]
    for each in await some_at_once(archive.afind_record, records):
        used |= _digests(json.dumps(each).encode())
    with server_errors():
        async for message in _messages(engine.client):
            for payload in await _decoded(engine.client, [*_payloads(message)]):
                used |= _digests(payload.data)
    todo = [*used]
    while todo:
        found = set[str]().union(*await some_at_once(lambda each: _within(archive, each), todo))
        todo = [*(found - used)]
        used |= found
    places = set[str]().union(*(places_of(archive, each) for each in used))
    left = [each for each in blobs if each.partition("~")[0] not in places]
    made = [Unused(each, *await archive.aage(each)) for each in left]
    return sorted((each for each in made if each.at < until), key=lambda each: each.at)


async def _within(archive: Archive, sha256: str) -> set[str]:
    """Return what a value refers to; a digest of something else refers to nothing."""
    try:
        return _digests(await archive.aget(sha256))
    except BlobMissingError:
        return set()


def _digests(data: bytes) -> set[str]:
    return {each.decode() for each in SHA256.findall(data)}


async def _messages(client: Client) -> AsyncGenerator[Any]:
    """Yield all events of all runs, and all schedules, as the server has them."""
    async for run in client.list_workflows():
        handle = client.get_workflow_handle(run.id, run_id=run.run_id)
        async for event in handle.fetch_history_events():
            yield event
    async for each in await client.list_schedules():
        yield (await client.get_schedule_handle(each.id).describe()).raw_description


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


async def _decoded(client: Client, payloads: list[Payload]) -> list[Payload]:
    codec = client.data_converter.payload_codec
    return await codec.decode(payloads) if codec is not None and payloads else payloads
