"""Tasks of others in the lists of a process that has no key for them."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import PayloadCodec

from holdfast.reading.listing import UNREAD, plain_memo
from tests.support.rig import MakeRunner


class Sealed(PayloadCodec):
    """A codec of another process, which has the key."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [Payload(metadata={"encoding": b"sealed"}, data=b"\xff") for _ in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)


async def test_a_task_whose_memo_cannot_be_read_is_a_row_that_says_so_and_the_list_goes_on(
    make_runner: MakeRunner,
) -> None:
    runner = await make_runner()
    task = await runner.create_task("q")
    own = runner.client
    sealed = dataclasses.replace(own.data_converter, payload_codec=Sealed())
    other = Client(own.service_client, namespace=own.namespace, data_converter=sealed)
    place: dict[str, Any] = {"id": f"sealed-{task.task_id}", "task_queue": "of-nobody"}
    handle = await other.start_workflow("AgentTask", "x", memo={"input": "secret"}, **place)

    async def rows() -> dict[str, str]:
        return {each.task_id: each.input for each in await runner.list_tasks()}

    async with asyncio.timeout(60):
        while not {handle.id, task.task_id} <= (found := await rows()).keys():
            await asyncio.sleep(0.05)
    assert (found[task.task_id], found[handle.id]) == ("q", UNREAD)
    described = await own.get_workflow_handle(handle.id).describe()
    assert plain_memo(described.raw_info) == {"input": UNREAD}
    await handle.terminate()
