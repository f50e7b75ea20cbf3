"""Batches of the fake API, asked by the real client."""

import json
from typing import Any

import openai
import pytest

from holdfast.testing import FakeOpenAI


def lines(*texts: str) -> bytes:
    """Write the file of a batch."""
    head = {"method": "POST", "url": "/v1/responses"}
    each = [
        {"custom_id": text, **head, "body": {"model": "gpt-5-mini", "input": text}}
        for text in texts
    ]
    return b"\n".join(json.dumps(line).encode() for line in each)


async def begun(client: openai.AsyncOpenAI, file: str) -> Any:
    return await client.batches.create(
        input_file_id=file, endpoint="/v1/responses", completion_window="24h"
    )


async def test_the_lines_of_a_batch_are_answered_by_the_script() -> None:
    async with FakeOpenAI() as api, api.client() as client:
        api.reply("One.", match="first")
        api.fail(429, message="slow down", match="second")
        file = await client.files.create(
            file=("b.jsonl", lines("first", "second")), purpose="batch"
        )
        made = await begun(client, file.id)
        assert made.status == "in_progress"
        done = await client.batches.retrieve(made.id)
        assert done.status == "completed"
        assert done.output_file_id is not None
        assert done.error_file_id is not None
        good = json.loads((await client.files.content(done.output_file_id)).content)
        bad = json.loads((await client.files.content(done.error_file_id)).content)
        assert (good["custom_id"], bad["custom_id"]) == ("first", "second")
        assert "One." in str(good["response"]["body"]["output"])
        assert bad["response"]["status_code"] == 429
        assert {each.path for each in api.requests} == {"/v1/batches"}
        assert [each.id async for each in client.batches.list()] == [made.id]
        await client.files.delete(file.id)
        assert file.id not in [each.id async for each in client.files.list()]


async def test_what_is_not_there_is_said_and_a_batch_can_be_cancelled() -> None:
    async with FakeOpenAI() as api, api.client() as client:
        file = await client.files.create(file=("b.jsonl", lines("x")), purpose="batch")
        made = await begun(client, file.id)
        assert (await client.batches.cancel(made.id)).status == "cancelled"
        assert (await client.batches.retrieve(made.id)).status == "cancelled"
        for missing in (
            client.files.delete("none"),
            client.files.content("none"),
            client.batches.retrieve("none"),
            client.batches.cancel("none"),
            begun(client, "none"),
        ):
            with pytest.raises(openai.NotFoundError, match="does not exist"):
                await missing
