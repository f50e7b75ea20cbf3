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


async def test_large_provider_items_go_to_the_archive_and_back_to_the_model(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.call("look", {"k": 1}, reasoning=THOUGHT)
    model.reply("done", reasoning=THOUGHT)
    task = await runner.create_task("q")
    assert (await runner.run_task(task)).output == "done"
    [sent] = [item for item in model.requests[1].body["input"] if item.get("type") == "reasoning"]
    assert sent["summary"] == [{"type": "summary_text", "text": THOUGHT}]
    thoughts = [str(message.items) for message in await runner.transcript(task)]
    assert sum(THOUGHT in thought for thought in thoughts) == 2
    [run] = await histories(runner.client, task.task_id)
    assert max(event.ByteSize() for event in run.events) < len(THOUGHT) // 4


async def test_large_provider_items_reach_the_next_task_of_a_session(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.call("look", {"k": 1}, reasoning=THOUGHT)
    model.reply("one")
    model.reply("two")
    session = runner.session("s")
    await runner.chat("q", session="s")
    await runner.chat("r", session="s")
    [sent] = [item for item in model.requests[2].body["input"] if item.get("type") == "reasoning"]
    assert sent["summary"][0]["text"] == THOUGHT
    assert any(THOUGHT in str(message.items) for message in await session.chat_history())
