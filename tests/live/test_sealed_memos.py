"""Tasks of others in the lists of a process that has no key for them."""

import asyncio
import dataclasses
import io
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from rich.console import Console
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.converter import DefaultFailureConverterWithEncodedAttributes, PayloadCodec

from holdfast.cli.following.live import LiveView
from holdfast.engine.search_attributes import HF_STATUS
from holdfast.reading.listing import UNREAD, plain_memo
from holdfast.reading.queries import why_blocked
from holdfast.reading.reader import Reader
from holdfast.reading.streams.follower import Attempts
from holdfast.values.steps import ListedTask
from tests.support.rig import Rig, until, until_blocked


class Sealed(PayloadCodec):
    """A codec of another process, which has the key."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [Payload(metadata={"encoding": b"sealed"}, data=b"\xff") for _ in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)


async def test_a_task_whose_memo_cannot_be_read_is_a_row_that_says_so_and_the_list_goes_on(
    rig: Rig,
) -> None:
    runner = await rig.make()
    task = await runner.create_task("q")
    own = runner.client
    sealed = dataclasses.replace(own.data_converter, payload_codec=Sealed())
    other = Client(own.service_client, namespace=own.namespace, data_converter=sealed)
    place: dict[str, Any] = {"id": f"sealed-{task.task_id}", "task_queue": "of-nobody"}
    handle = await other.start_workflow("AgentTask", "x", memo={"input": "secret"}, **place)
    odd = {"input": 5, "created": 1e17}  # no clock shows this time
    place = {"id": f"odd-{task.task_id}", "task_queue": "of-nobody", "memo": odd}
    status = TypedSearchAttributes([SearchAttributePair(HF_STATUS, "of-tomorrow")])
    later = await own.start_workflow("AgentTask", "x", search_attributes=status, **place)

    async def rows() -> dict[str, ListedTask]:
        return {each.task_id: each for each in await runner.list_tasks()}

    found = await until(rows, lambda each: {handle.id, later.id, task.task_id} <= each.keys())
    read = found[task.task_id], found[handle.id], found[later.id]
    assert [each.input for each in read] == ["q", UNREAD, UNREAD]
    assert abs(found[later.id].created - found[handle.id].created) < 60
    described = await own.get_workflow_handle(handle.id).describe()
    assert plain_memo(described.raw_info) == {"input": UNREAD}
    described.raw_info.memo.fields["input"].data = b"[" * 100_000
    assert plain_memo(described.raw_info) == {"input": UNREAD}
    await handle.terminate()
    await later.terminate()


class Turned(PayloadCodec):
    """A codec of this process: it turns the bytes round."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        turned = [each.SerializeToString()[::-1] for each in payloads]
        return [Payload(metadata={"encoding": b"turned"}, data=data) for data in turned]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [
            Payload.FromString(each.data[::-1])
            if each.metadata.get("encoding") == b"turned"
            else each
            for each in payloads
        ]


class Lost(Turned):
    """A codec whose key is away."""

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        raise RuntimeError("no key")


async def test_why_something_is_tried_again_is_decoded_for_every_reader(rig: Rig) -> None:
    own = rig.engine.client
    converter = dataclasses.replace(
        own.data_converter,
        payload_codec=Turned(),
        failure_converter_class=DefaultFailureConverterWithEncodedAttributes,
    )
    client = Client(own.service_client, namespace=own.namespace, data_converter=converter)
    rig.engine = dataclasses.replace(rig.engine, client=client)
    runner = await rig.make()
    rig.model.fail(429, message="slow down", retry_after=3000)
    task = await runner.create_task("q", step_mode="automatic")
    await until_blocked(runner, task, "slow down")
    found = await Attempts(runner.reader, task.task_id).new([], number=0)
    assert ["slow down" in each.why for each in found] == [True]
    printed = io.StringIO()
    view = LiveView(runner, task.task_id, Console(file=printed, width=200))
    following = asyncio.ensure_future(view.follow())

    await until(lambda: "slow down" in printed.getvalue())
    lost = dataclasses.replace(converter, payload_codec=Lost())
    blind = Client(own.service_client, namespace=own.namespace, data_converter=lost)
    of_task = await blind.get_workflow_handle(task.task_id).describe()
    assert "cannot be read here: RuntimeError: no key" in await why_blocked(blind, of_task)
    reader = Reader(blind, runner.archive)
    [attempt] = await Attempts(reader, task.task_id).new([], number=0)
    assert (attempt.name, attempt.step_id, "no key" in attempt.why) == ("step", "", True)
    unread = io.StringIO()
    stranger: Any = SimpleNamespace(reader=reader, response=runner.response)
    view = LiveView(stranger, task.task_id, Console(file=unread, width=200))
    looking = asyncio.ensure_future(view.follow())
    await until(
        lambda: "RuntimeError: no key" in unread.getvalue()
    )  # an abandon before its first look would leave nothing to say
    await runner.abandon(task, "enough")
    await asyncio.gather(following, looking)
    assert "\n> abandon: enough\n> Task abandoned: " in printed.getvalue()
