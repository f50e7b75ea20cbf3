"""What activities must not lose or do twice, on a real server."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from holdfast import Agent, AgentRunner, ToolCall, tool
from holdfast.activities.data import large_values
from holdfast.archive.archive import Archive
from holdfast.errors import ArchiveError, StepFailedError
from holdfast.models.base import ModelRequest
from holdfast.testing import ScriptedModel
from holdfast.values.messages import assistant, user
from holdfast.workers import AgentWorker
from tests.support.rig import Rig, until

LARGE = "y" * 30_000


@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


LOOK = ToolCall(id="", name="look")


async def serve(
    rig: Rig, model: ScriptedModel, *tools: Any, worker: AgentWorker | None = None
) -> AgentRunner:
    """Serve an agent, and return its runner."""
    extra: dict[str, Any] = {} if worker is None else {"worker": worker}
    return await rig.serving(Agent(name="a", model=model, tools=tools, **extra))


class Outage:
    """An archive that cannot be written while `left` is above zero; each try counts it down."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        put = Archive.put

        def failing(archive: Archive, data: bytes) -> str:
            if self.left and len(data) > 20_000:
                self.left -= 1
                raise ArchiveError("down")
            return put(archive, data)

        monkeypatch.setattr(Archive, "put", failing)
        monkeypatch.setattr(large_values, "PATIENCE_SECONDS", ())


async def test_a_large_answer_is_paid_once_though_the_archive_was_down(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    outage = Outage(monkeypatch)
    model = ScriptedModel([LARGE])
    runner = await serve(rig, model)
    task = await runner.create_task("q")
    outage.left = 2
    assert (await runner.run_step(task)).output == LARGE
    assert outage.left == 0
    assert model.calls == 1


async def test_a_task_id_that_is_used_again_sees_nothing_of_the_deleted_task(rig: Rig) -> None:
    model = ScriptedModel(lambda _: "ok")
    runner = await serve(rig, model)
    name = f"{rig.app}-t"
    await runner.session("s1").append([user("secret of s1"), assistant("noted")])
    await runner.run_step(await runner.create_task("one", task_id=name, session="s1"))
    await runner.delete_task(name)

    async def created() -> Any:
        try:
            return await runner.create_task("two", task_id=name, session="s2")
        except Exception:  # noqa: BLE001  the server deletes in its own time
            return None

    await until(created)
    await runner.run_step(name)
    assert [m.text for m in model.requests[0].messages] == ["secret of s1", "noted", "one"]
    assert [m.text for m in model.requests[1].messages] == ["two"]


async def test_a_running_task_waits_for_the_model_it_began_with(rig: Rig) -> None:
    old, new = ScriptedModel([LOOK, "from old"], name="old"), ScriptedModel(["x"], name="new")
    await rig.serve(Agent(name="agent", model=old, tools=[look]))
    runner = rig.runner()
    task = await runner.create_task("q")
    await runner.run_step(task)
    await rig.serve(Agent(name="agent", model=new, tools=[look]))
    with pytest.raises(StepFailedError, match=r"'old'.*'new'"):
        await runner.run_step(task)
    await rig.serve(Agent(name="agent", model=old, tools=[look]))
    assert (await runner.run_step(task)).output == "from old"
    assert new.calls == 0


async def test_blocking_tools_do_not_hold_other_tasks_up(rig: Rig) -> None:
    release, blocked = threading.Event(), threading.Semaphore(0)

    @tool(effect="read")
    def block() -> str:
        """Block."""
        blocked.release()
        release.wait(60)
        return "ok"

    calls = tuple(ToolCall(id=f"c{k}", name="block") for k in range(40))

    def answer(request: ModelRequest) -> Any:
        return calls if request.messages[-1].text == "go" else LARGE

    runner = await serve(rig, ScriptedModel(answer), block)
    task = await runner.create_task("go", step_mode="automatic")
    try:
        async with asyncio.timeout(100):
            while not blocked.acquire(blocking=False):
                await asyncio.sleep(0.01)
            assert str(await runner.chat("hello")) == LARGE
    finally:
        release.set()
    await runner.run_task(task)
