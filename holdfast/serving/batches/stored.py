"""Bodies and answers of calls in the archive, each written for its task.

So what encrypts and erases the task's texts also encrypts and erases these.
"""

from __future__ import annotations

from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import (
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
    StorageDriverWorkflowInfo,
)

from holdfast.archive.bytestore import writing_for
from holdfast.engine.converter import DIGEST, ArchiveStorageDriver
from holdfast.errors import UserError
from holdfast.models.base import ModelAnswer
from holdfast.models.openai.http.failures import status_error
from holdfast.values.checks.gate import as_object


class Stored:
    """The archive behind a client."""

    def __init__(self, client: Client) -> None:
        """Use the archive of this client.

        Raises:
            UserError: It has none.
        """
        storage = client.data_converter.external_storage
        found = () if storage is None else tuple(storage.drivers)
        ours = [each for each in found if isinstance(each, ArchiveStorageDriver)]
        if not ours:
            msg = "BatchModel keeps calls in the archive, and the client of this worker has none."
            raise UserError(msg, remedy="Connect it with HoldfastPlugin.")
        self._driver = ours[0]
        self._namespace = client.namespace

    async def write(self, task: str, data: bytes) -> str:
        """Store bytes for a task; return their digest.

        Raises:
            ArchiveError: The archive cannot be written, or the task was erased.
        """
        target = StorageDriverWorkflowInfo(id=task, namespace=self._namespace)
        context = StorageDriverStoreContext(target=target)
        [claim] = await self._driver.store(context, [Payload(data=data)])
        return claim.claim_data[DIGEST]

    async def read(self, task: str, sha256: str) -> bytes:
        """Return stored bytes.

        Raises:
            ArchiveError: They cannot be read, or the task was erased.
        """
        claim = StorageDriverClaim(claim_data={DIGEST: sha256})
        with writing_for(task):
            [found] = await self._driver.retrieve(StorageDriverRetrieveContext(), [claim])
        return found.data


async def answer_of(model: Any, response: dict[str, Any]) -> ModelAnswer:
    """Read the answer of a line.

    Raises:
        ModelUnavailableError: It cannot be used.
        ModelRequestError: The provider has refused the request.
    """
    status, body = int(response["status_code"]), response["body"]
    if status >= 300:  # noqa: PLR2004
        error = as_object(as_object(body).get("error")) or as_object(body)
        raise status_error(status, error, model=model.name, secret=model.secret)
    found = model.read(body, str(response.get("request_id") or "") or None)
    return found if isinstance(found, ModelAnswer) else await found
