"""Temporal payloads that are too large for a history go to the archive."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    ExternalStorage,
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
)

from holdfast.archive.archive import Archive

THRESHOLD_BYTES = 256 * 1024
"""A safety net only: activities store values above 16 KB themselves and pass references."""

_DIGEST = "sha256"


class ArchiveStorageDriver(StorageDriver):
    """Stores payloads under the SHA-256 of their bytes, so that equal payloads are stored once."""

    def __init__(self, archive: Archive) -> None:
        """Store into, and read from, this archive."""
        self._archive = archive

    def name(self) -> str:
        """Return the name recorded in histories: it can never change."""
        return "holdfast.archive.archive"

    def type(self) -> str:
        """Return the driver's type, which is also its name."""
        return "holdfast.archive.archive"

    async def store(
        self, context: StorageDriverStoreContext, payloads: Sequence[Payload]
    ) -> list[StorageDriverClaim]:
        """Store payloads; return one claim each, in their order.

        Raises:
            ArchiveError: The archive cannot be written.
        """
        del context  # The bytes alone name the blob.
        digests = await asyncio.gather(
            *(self._archive.aput(each.SerializeToString(deterministic=True)) for each in payloads)
        )
        return [StorageDriverClaim(claim_data={_DIGEST: each}) for each in digests]

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        """Return the payloads of claims, in their order.

        Raises:
            BlobMissingError: The archive lacks one, so it is not the archive it was stored in.
            DigestMismatchError: A stored payload was changed.
        """
        del context
        blobs = await asyncio.gather(
            *(self._archive.aget(each.claim_data[_DIGEST]) for each in claims)
        )
        return [Payload.FromString(each) for each in blobs]


def archive_storage(archive: Archive) -> ExternalStorage:
    """Return the setting for `DataConverter.external_storage`."""
    return ExternalStorage(
        drivers=[ArchiveStorageDriver(archive)], payload_size_threshold=THRESHOLD_BYTES
    )
