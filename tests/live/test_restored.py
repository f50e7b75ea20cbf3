"""A history that has gone back in time, as after a restore: no effect is repeated blindly."""

import asyncio
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from holdfast import Agent, AgentRunner, Effect, Task, ToolCall, ToolContext, tool
from holdfast.activities.tools.lookup import begin_effect, name_after, read_mark
from holdfast.archive.archive import Archive
from holdfast.archive.bytestore import FsspecStore, LocalStore
from holdfast.cli.commands.start.restore import forgotten
from holdfast.errors import TaskNotFoundError
from holdfast.models.base import ModelRequest
from holdfast.testing import ScriptedModel
from tests.support.cli import engine_of
from tests.support.people import ask
from tests.support.rig import Engine as Live
from tests.support.rig import Rig, World, forget, reset, until


async def go_back(runner: AgentRunner, task: Task, activity: str) -> None:
    """Reset a task's run to the moment before it scheduled the last activity of this type."""
    handle = runner.client.get_workflow_handle(task.task_id)
    sent = [
        each.activity_task_scheduled_event_attributes
        async for each in handle.fetch_history_events()
        if each.activity_task_scheduled_event_attributes.activity_type.name == activity
    ]
    await reset(runner.client, task.task_id, sent[-1].workflow_task_completed_event_id)


def paying(world: World, **options: Any) -> Any:
    @tool(**options)
    def pay(account: str) -> str:
        """Pay."""
        world.done.append(f"pay {account}")
        return "paid"

    return pay


def script(request: ModelRequest) -> ToolCall | str:
    if any(each.role == "tool" for each in request.messages):
        return "done"
    return ToolCall(id="c1", name="pay", arguments='{"account": "bo"}')


async def served(rig: Rig, tool: Any) -> AgentRunner:
    return await rig.serving(Agent(name="agent", model=ScriptedModel(script), tools=[tool]))


async def paid(runner: AgentRunner) -> Task:
    task = await runner.create_task("q")
    assert str(await runner.run_task(task)) == "done"
    await until(partial(are_ended, runner, task))
    return task


async def are_ended(runner: AgentRunner, task: Task) -> bool:
    """Whether the ends of all calls of a task are marked, which nothing waits for."""
    names = await runner.archive.alist_records(f"effects/{task.task_id}")
    marks = [(name, await read_mark(runner.archive, name)) for name in names]
    return all(
        each is not None and (each.ended or name_after(name, each) in names) for name, each in marks
    )


async def test_a_payment_that_the_history_has_forgotten_is_asked_about_and_not_repeated(
    rig: Rig,
) -> None:
    runner = await served(rig, paying(rig.world))
    task = await paid(runner)
    await go_back(runner, task, "tool")
    asked = await ask(runner, task)
    assert asked.kind == "unknown"
    assert '{"account": "bo"}\' was begun at 20' in asked.text
    assert "and ended (done), and the history of the task does not have it" in asked.text
    assert rig.world.done == ["pay bo"]
    await runner.approve(asked, by="ann")
    assert str(await runner.run_task(task)) == "done"
    assert rig.world.done == ["pay bo"] * 2
    await runner.delete_task(task)
    assert await runner.archive.alist_records(f"effects/{task.task_id}") == []


async def test_the_first_mark_of_a_call_takes_one_request(
    engine: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    archive = Archive(f"memory://{id(asked)}")
    assert not archive.has_record("tasks/none.json")  # whether it is encrypted is looked at once
    for name in ("read", "size", "write", "create"):
        real = getattr(FsspecStore, name)

        def counted(*given: Any, name: str = name, real: Any = real, **options: Any) -> Any:
            asked.append(name)
            return real(*given, **options)

        monkeypatch.setattr(FsspecStore, name, counted)
    await ActivityEnvironment(engine.client).run(begin_effect, archive, "0.1.0.0", "pay bo")
    assert asked == ["create"]


async def test_nothing_waits_for_the_mark_of_an_end(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, wrote = threading.Event(), LocalStore.write

    def write(own: LocalStore, path: str, data: bytes, *, forced: bool = True) -> None:
        if path.startswith("effects/"):
            assert forced  # a whole mark stays whole
            hangs.wait()
        wrote(own, path, data, forced=forced)

    monkeypatch.setattr(LocalStore, "write", write)
    runner = await served(rig, paying(rig.world))
    task = await runner.create_task("q")
    try:
        async with asyncio.timeout(100):
            assert str(await runner.run_task(task)) == "done"
        assert not await are_ended(runner, task)
    finally:
        hangs.set()
    await until(partial(are_ended, runner, task))


async def test_a_forgotten_payment_is_clarified_by_its_probe(rig: Rig) -> None:
    def find(ctx: ToolContext, effect: Effect) -> str | None:
        return "paid before" if rig.world.done else None

    runner = await served(rig, paying(rig.world, probe=find))
    task = await paid(runner)
    await go_back(runner, task, "tool")
    await runner.run_task(task)
    assert rig.world.done == ["pay bo"]
    assert await runner.pending_approvals(task) == []


async def test_a_forgotten_undo_is_not_repeated(rig: Rig) -> None:
    def pay_back(ctx: ToolContext, effect: Effect) -> None:
        rig.world.done.append("pay back")

    runner = await served(rig, paying(rig.world, undo=pay_back))
    task = await paid(runner)
    for _ in range(2):
        await runner.undo_step(task)
    assert rig.world.done == ["pay bo", "pay back"]
    await until(partial(are_ended, runner, task))
    await go_back(runner, task, "undo")
    assert "'the undo of pay" in (await ask(runner, task)).text
    assert rig.world.done == ["pay bo", "pay back"]


async def test_what_may_be_repeated_leaves_no_mark_and_is_repeated(rig: Rig) -> None:
    runner = await served(rig, paying(rig.world, idempotent=True))
    task = await paid(runner)
    assert await runner.archive.alist_records(f"effects/{task.task_id}") == []
    await go_back(runner, task, "tool")

    await until(lambda: rig.world.done == ["pay bo"] * 2)


async def told(runner: AgentRunner, task: Task, since: float = 0.0) -> list[tuple[str, str]]:
    found = await forgotten(engine_of(runner), since)
    return [(each.kind, each.text) for each in found if each.task == task.task_id]


EFFECT = ("effect", '\'pay {"account": "bo"}\': done')


async def test_what_the_database_has_forgotten_is_listed(rig: Rig) -> None:
    runner = await served(rig, paying(rig.world))
    task = await paid(runner)
    backup = time.time()
    await runner.finalize_response(task)
    assert await told(runner, task) == []
    await rig.stop()
    await go_back(runner, task, "tool")
    closed = ("closed task", "closed (finished) or about to be, open again")
    assert await told(runner, task) == [EFFECT, closed]
    assert await told(runner, task, backup) == [closed]
    assert await told(runner, task, time.time() + 1) == [closed]
    runner = await served(rig, paying(rig.world))
    await runner.reject(await ask(runner, task), by="ann", reason="no more")
    assert str(await runner.run_task(task)) == "done"
    await runner.finalize_response(task)
    assert await told(runner, task) == [
        ("other end", "finished or about to be before another end took its place")
    ]
    await runner.delete_task(task)
    assert await told(runner, task) == []


async def test_what_only_the_retention_has_removed_is_not_listed(rig: Rig) -> None:
    runner = await served(rig, paying(rig.world))
    task = await paid(runner)
    backup = time.time()
    await runner.finalize_response(task)
    await forget(runner, task)
    closed = ("closed task", "closed (finished) or about to be, not known to the database")
    assert await told(runner, task) == [EFFECT, closed]
    assert await told(runner, task, backup) == [closed]
    assert await told(runner, task, time.time() + 1) == []


@pytest.mark.parametrize("text", ["{", "{}"])
async def test_what_is_damaged_is_listed_with_the_rest(rig: Rig, text: str) -> None:
    runner = await served(rig, paying(rig.world))
    task, other = await paid(runner), await paid(runner)
    for each in (task, other):
        await runner.finalize_response(each)
        await forget(runner, each)
    [mark] = await runner.archive.alist_records(f"effects/{task.task_id}")
    names = [mark, f"tasks/{task.task_id}.json"]
    for name in names:
        Path(runner.archive.url, name).write_text(text, "utf-8")
    found = await told(runner, task)
    assert [kind for kind, _ in found] == ["damaged", "damaged"]
    for name, (_, why) in zip(names, found, strict=True):
        assert name in why
    assert len(await told(runner, other)) == 2
    await runner.delete_task(task)
    assert await told(runner, task) == []
    for verb in (runner.get_task, runner.delete_task):
        with pytest.raises(TaskNotFoundError):
            await verb(task)
