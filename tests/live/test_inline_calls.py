"""Calls of reading tools run in the activity that made the model call, where nothing forbids it."""

import asyncio
from typing import Any

import pytest

from holdfast import tool
from holdfast.archive.archive import record_name
from holdfast.testing import call
from tests.support.rig import Rig, activities_of, run_a_task, until, until_status

APART = ["describe", "step", "tool", "step"]
INLINE = ["describe", "step", "step"]


def always(_ctx: object, _agent: object) -> bool:
    """Offer a tool to the model by a predicate, which depends on the task."""
    return True


@pytest.mark.parametrize(
    ("options", "activities"),
    [
        ({"effect": "read"}, INLINE),
        ({"effect": "irreversible", "idempotent": True}, APART),
        ({"effect": "read", "is_enabled": always}, APART),
    ],
)
async def test_only_a_call_of_a_reading_tool_takes_no_activity_of_its_own(
    rig: Rig, options: dict[str, Any], activities: list[str]
) -> None:
    @tool(**options)
    def look(what: str) -> str:
        """Look."""
        return f"saw {what}"

    runner = await rig.make(look)
    rig.model.add(call("look", {"what": "x"}), "done")
    task = await run_a_task(runner)
    assert await activities_of(runner.client, task.task_id) == activities
    assert rig.model.requests[1].holds("saw x")


async def test_an_answer_is_kept_in_the_archive_until_its_task_ends(rig: Rig) -> None:
    kept: list[Any] = []

    @tool(effect="read")
    async def look() -> str:
        """Look."""
        kept.append(await runner.archive.aget_record(record_name("answers", "mine.0")))
        return "seen"

    runner = await rig.make(look)
    rig.model.add(*[call("look")] * 2, "done")
    task = await run_a_task(runner, task_id="mine")
    first, second = (each["paid"]["answer"]["message"]["calls"][0]["id"] for each in kept)
    assert first != second
    assert kept[0]["activity"] != kept[1]["activity"]
    await runner.finalize_response(task)
    assert not await runner.archive.ahas_record(record_name("answers", "mine.0"))


async def test_a_call_that_takes_longer_goes_on_in_its_own_activity_and_is_run_once(
    rig: Rig,
) -> None:
    starts: list[int] = []
    goes = asyncio.Event()

    @tool(effect="read", inline_seconds=0.05)
    async def slow(what: str) -> str:
        """Look for long."""
        starts.append(1)
        await goes.wait()
        return f"slowly saw {what}"

    @tool(effect="read")
    def look(what: str) -> str:
        """Look."""
        return f"saw {what}"

    runner = await rig.make(slow, look)
    rig.model.calls([("slow", {"what": "a"}), ("look", {"what": "b"})])
    rig.model.reply("done")
    task = await runner.create_task("q")
    running = asyncio.create_task(runner.run_task(task))

    await until(lambda: activities_of(runner.client, task.task_id), lambda found: "tool" in found)
    assert (await runner.get_task(task)).status == "running"
    goes.set()
    assert str(await running) == "done"
    assert starts == [1]
    assert rig.model.requests[1].holds("slowly saw a")
    assert rig.model.requests[1].holds("saw b")
    done = [e for e in await runner.audit(task) if e.kind == "tool_call" and e.status == "done"]
    assert [e.attempts for e in done] == [1, 1]
    assert (await activities_of(runner.client, task.task_id)).count("tool") == 1


async def test_abandoning_a_task_records_calls_that_run_in_the_activity_of_its_step(
    rig: Rig,
) -> None:
    began, was_cancelled = asyncio.Event(), asyncio.Event()

    @tool(effect="read", inline_seconds=30.0)
    async def look(what: str) -> str:
        """Look for ever."""
        if what == "y":
            return "seen"
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled.set()
            raise
        return ""

    runner = await rig.make(look)
    rig.model.calls([("look", {"what": "x"}), ("look", {"what": "y"})])
    task = await runner.create_task("q")
    running = asyncio.create_task(runner.run_task(task))
    await began.wait()
    await runner.abandon(task, reason="enough", by="ann")
    await until_status(runner, task, "abandoned")
    assert was_cancelled.is_set()
    calls = {e.call_id: e.status for e in await runner.audit(task) if e.kind == "tool_call"}
    assert calls == {"call_1": "unknown", "call_2": "done"}
    assert (await runner.get_task(task)).usage.requests == 1
    await asyncio.gather(running, return_exceptions=True)
