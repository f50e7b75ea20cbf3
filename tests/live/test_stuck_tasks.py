"""Tasks in which workflow code fails, and what waits for another attempt: each says why."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import Browser, expect
from temporalio.client import WorkflowQueryFailedError

from holdfast import AgentRunner, Task
from holdfast.cli.commands.task_view import read_task
from holdfast.engine.search_attributes import SPLIT
from holdfast.errors import CommandRefusedError, QueryFailedError, StuckTaskError, TaskClosedError
from holdfast.reading.queries import while_busy
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.ledger.recording import Log
from holdfast.workflows.core import Core
from tests.support.cli import engine_of
from tests.support.desk import person, serve_desk
from tests.support.rig import Rig, until, until_blocked, until_failing, until_task
from tests.support.runs import pay
from tests.support.workers import Counting


@pytest.fixture
def bugs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Bugs of workflow code: while there is one, no second step can begin, and no command ends."""
    found: list[str] = []
    begin: Callable[..., None] = Ledger.begin
    receipt: Callable[..., None] = Log.receipt

    def fails(ledger: Ledger, *given: Any, **more: Any) -> None:
        if ledger.s.steps and found:
            raise ZeroDivisionError(found[0])
        begin(ledger, *given, **more)

    def fails_too(log: Log, *given: Any) -> None:
        if found:
            raise ZeroDivisionError(found[0])
        receipt(log, *given)

    monkeypatch.setattr(Ledger, "begin", fails)
    monkeypatch.setattr(Log, "receipt", fails_too)
    return found


async def stuck(
    runner: AgentRunner, bugs: list[str], task: Task | None = None
) -> tuple[Task, asyncio.Future[Any]]:
    """Run a step of a task, and let workflow code fail in the next; return the request, too."""
    task = task or await runner.create_task("q")
    await runner.run_step(task)
    bugs.append("a deploy too early")
    asked = asyncio.ensure_future(runner.run_step(task))
    await until_failing(runner.client, task.task_id)
    return task, asked


async def test_a_task_whose_workflow_code_fails_says_so_and_goes_on_once_it_is_mended(
    rig: Rig, bugs: list[str]
) -> None:
    runner = await rig.make(worker=Counting(3))
    task, asked = await stuck(runner, bugs)
    found = await runner.get_task(task)
    assert (found.status, found.input) == ("running", "q")
    for said in ("attempt", "since", "ZeroDivisionError", "a deploy too early"):
        assert said in found.blocked_by
    for ask in (runner.get_completed_steps, runner.run_step):
        with pytest.raises(StuckTaskError, match="a deploy too early"):
            await ask(task)
    events = await runner.audit(task)
    assert "s1" in {each.step for each in events}
    assert (events[-1].kind, "a deploy too early" in events[-1].reason) == ("failed", True)

    async def is_listed() -> bool:
        listed = {each.task_id: each.blocked_by for each in await runner.list_tasks()}
        return bool(listed[task.task_id])

    await until(is_listed)
    shown = await read_task(engine_of(runner), task.task_id)
    assert "a deploy too early" in shown.task.blocked_by
    assert [each.output["count"] for each in shown.outputs] == [1]
    bugs.clear()
    with pytest.raises(StuckTaskError, match="a deploy too early"):
        await asked
    await until_task(runner, task, lambda found: not found.blocked_by)
    assert (await runner.run_step(task)).output["count"] == 2


async def test_a_task_whose_workflow_code_fails_is_ended_by_force_with_its_record(
    rig: Rig, bugs: list[str]
) -> None:
    runner = await rig.make(worker=Counting(3))
    calm = await runner.create_task("q")
    with pytest.raises(CommandRefusedError, match="without force"):
        await runner.abandon(calm, "why not", by="anna", force=True)
    task, asked = await stuck(runner, bugs)
    await runner.abandon(task, "no fix in sight", by="anna", force=True)
    asked.cancel()
    found = await runner.get_task(task)
    assert (found.status, found.steps) == ("abandoned", 1)
    assert "anna: no fix in sight" in found.error
    steps = await runner.get_completed_steps(task)
    assert [each.output["count"] for each in steps] == [1]
    closed = (await runner.audit(task))[-1]
    assert (closed.actor, closed.reason) == ("anna", "anna: no fix in sight")
    assert "shortened" not in closed.body
    with pytest.raises(TaskClosedError):
        await runner.abandon(task, "again", by="ben", force=True)
    bugs.clear()
    fork = await runner.fork(task, steps[0])
    assert (await runner.run_step(fork)).output["count"] == 2


async def test_a_person_at_the_desk_ends_it_by_force_also_on_a_page_that_was_open_before(
    rig: Rig, bugs: list[str], browser: Browser
) -> None:
    runner = await rig.make(worker=Counting(3))
    task = await runner.create_task("q")
    async with serve_desk(runner) as desk, person(browser, desk) as page:
        await page.goto(f"{desk.url}/tasks/{task.task_id}")
        await expect(page.get_by_role("button", name="Abandon")).to_be_visible()
        _, asked = await stuck(runner, bugs, task)
        async with person(browser, desk) as later:
            await later.goto(f"{desk.url}/tasks/{task.task_id}")
            await expect(later.get_by_role("button", name="End by force")).to_be_visible()
            await expect(later.locator("main")).to_contain_text("workflow task fails")
        await page.get_by_role("button", name="End by force").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Reason").fill("no fix in sight")
        await dialog.get_by_role("button", name="End the task by force").click()
        await expect(page.locator("main")).to_contain_text("ann: no fix in sight")
    asked.cancel()
    assert (await runner.get_task(task)).status == "abandoned"


async def test_a_task_that_never_began_cannot_be_read_by_a_replay(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = await rig.make()

    def fails(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Core, "__init__", fails)
    task_id = f"never-{runner.agent}"
    asked = asyncio.ensure_future(runner.create_task("q", task_id=task_id))
    await until_failing(runner.client, task_id)
    with pytest.raises(QueryFailedError, match="never began"):
        await runner.abandon(task_id, "no", by="anna", force=True)
    asked.cancel()


async def test_a_forced_end_withdraws_what_a_person_was_asked(rig: Rig, bugs: list[str]) -> None:
    runner = await rig.make(pay)
    rig.model.call("pay")
    task = await runner.create_task("q")
    assert (await runner.run_task(task)).status == "waiting"
    bugs.append("a deploy too early")
    assert (await runner.pause(task, by="anna")).status == "recorded"
    await runner.abandon(task, "enough", by="anna", force=True)
    *_, asked, closed = await runner.audit(task)
    assert (asked.kind, "shortened" in closed.body) == ("withdrawn", False)
    assert not await runner.pending_approvals(task)


async def test_a_forced_end_after_a_rollover_whose_history_is_not_replayed_to_its_end_says_so(
    rig: Rig, bugs: list[str]
) -> None:
    runner = await rig.make(worker=Counting(30), roll_events=50)
    task = await runner.create_task("q")
    handle = runner.client.get_workflow_handle(task.task_id)
    first = (await handle.describe()).run_id
    while (await handle.describe()).run_id == first:
        await runner.run_step(task)
    done = [(await runner.run_step(task)).output["count"] for _ in range(2)][-1]
    bugs.append("of another version")
    asked = asyncio.ensure_future(runner.run_step(task))
    with pytest.raises(StuckTaskError):
        await asked
    await runner.abandon(task, "enough", by="anna", force=True)
    assert 0 < len(await runner.get_completed_steps(task)) < done
    closed = (await runner.audit(task))[-1]
    assert "of another version" in closed.body["shortened"]
    assert "The record is shortened" in (await runner.get_task(task)).error


async def test_a_task_that_only_waits_says_everywhere_what_for_and_until_when(rig: Rig) -> None:
    runner = await rig.serving(rig.agent())
    rig.model.fail(429, message="slow down", retry_after=3000)
    parts = ("'step' begins at 20", "HTTP 429", "slow down", "repeated after 3000 s")
    task = await runner.create_task("q", step_mode="automatic")
    told = [await until_blocked(runner, task, "begins at")]
    told.append((await runner.audit(task))[-1].reason)
    assert (await runner.audit(task, secrets=["begins"]))[-1].kind == "blocked"
    assert "begins" not in (await runner.audit(task, secrets=["begins"]))[-1].reason
    told.append((await read_task(engine_of(runner), task.task_id)).task.blocked_by)
    for text in told:
        assert not [part for part in parts if part not in text], text
        assert re.search(r"^Attempt \d+ of activity", text)
    await runner.abandon(task, "enough")
    assert (await runner.audit(task))[-1].kind == "closed"


async def test_a_query_that_met_a_part_of_a_workflow_task_is_asked_again() -> None:
    split = WorkflowQueryFailedError(f"{SPLIT} before its begin.")
    wrong = WorkflowQueryFailedError("no such query")
    told: list[Exception | str] = [split, split, "an answer", wrong]

    async def ask() -> str:
        match told.pop(0):
            case str() as answer:
                return answer
            case error:
                raise error

    assert await while_busy(ask) == "an answer"
    with pytest.raises(WorkflowQueryFailedError, match="no such query"):
        await while_busy(ask)
