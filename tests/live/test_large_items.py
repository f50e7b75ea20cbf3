"""Provider items (reasoning, for example) that are too large for history."""

from __future__ import annotations

from holdfast import tool
from holdfast.testing import FakeOpenAI
from tests.support.rig import MakeRunner, histories

THOUGHT = "because " * 10_000


@tool
def look(k: int) -> int:
    """Look."""
    return k


async def test_large_provider_items_go_to_the_archive_and_back_to_the_model_and_the_session(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.call("look", {"k": 1}, reasoning=THOUGHT)
    model.reply("done", reasoning=THOUGHT)
    model.reply("two")
    session = runner.session("s")
    response = await runner.chat("q", session="s")
    await runner.chat("r", session="s")
    for request, count in zip(model.requests[1:], (1, 2), strict=True):
        items = [item for item in request.body["input"] if item.get("type") == "reasoning"]
        assert [item["summary"][0]["text"] for item in items] == [THOUGHT] * count
    for messages in (await runner.transcript(response.task_id), await session.chat_history()):
        assert sum(THOUGHT in str(message.items) for message in messages) == 2
    [run] = await histories(runner.client, response.task_id)
    assert max(event.ByteSize() for event in run.events) < len(THOUGHT) // 4
