"""The archive that clients and worker processes must share."""

from __future__ import annotations

from collections.abc import Mapping

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError

from holdfast.archive.archive import Archive
from holdfast.archive.bytestore import OWNER_FILE
from holdfast.errors import ArchiveMismatchError, ConnectError
from holdfast.values.base import Json
from holdfast.values.checks.ids import ARCHIVE_WORKFLOW


async def check_archive(client: Client, archive: Archive) -> None:
    """Check that this archive is the one that the namespace's tasks are stored in.

    The first archive used with a namespace is recorded as the memo of a workflow that never runs:
    it is the one record that every client of a namespace can read and none can write twice.

    The archive has a record of the namespace in turn: tasks of two have the same ids.

    Raises:
        ArchiveMismatchError: Another archive is recorded, or another namespace in the archive.
    """
    mine = await archive.aarchive_id()
    try:
        handle = await client.start_workflow(
            "HoldfastArchive",
            id=ARCHIVE_WORKFLOW,
            task_queue="hf-archive",
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            memo={"archive": mine, "url": archive.url},
        )
        found = await handle.describe()
        memo = await found.memo()
    except RPCError as error:
        msg = f"The namespace's archive could not be looked up: {error.message}"
        raise ConnectError(msg) from error
    if memo.get("archive") != mine:
        raise ArchiveMismatchError(_mismatch(archive.url, mine, memo))
    asks = f"{client.namespace} {found.run_id}"
    owner = await archive.aowner(asks)
    if owner != asks:
        raise ArchiveMismatchError(
            f"The archive {archive.url!r} has the tasks of another namespace, {owner!r}; this"
            f" one is {asks!r}, and tasks of both may have one id. Nothing was changed.",
            remedy="Name another archive. If that namespace is gone for good, delete the file"
            f" {OWNER_FILE!r} of the archive: the next namespace to use it takes it over.",
        )


def _mismatch(url: str, mine: str, memo: Mapping[str, Json]) -> str:
    recorded, where = memo.get("archive"), memo.get("url")
    if where == url:
        return (
            f"The archive {url!r} was deleted or replaced: it has the id {mine} now, and the tasks"
            f" of this namespace are stored in the one with the id {recorded}. Nothing was changed."
            " Put the old content back. Or, to begin again without these tasks, name another"
            " namespace, or stop the embedded server (`holdfast stop`) and delete its whole data"
            " directory."
        )
    return (
        f"The archive {url!r} has the id {mine}, but the tasks of this namespace are stored in"
        f" {where!r} with the id {recorded}. Nothing was changed. Name that archive with"
        " archive=... or HOLDFAST_ARCHIVE."
    )
