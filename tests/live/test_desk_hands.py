"""The desk's pages in hasty hands: two tabs, double clicks, the back button, odd and huge texts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator

import pytest
from playwright.async_api import Browser, expect

from holdfast import AgentRunner, tool
from holdfast.testing import FakeOpenAI, FakeRequest, Reply, calls, reply
from tests.support.desk import PATIENCE_MS, Served, person, serve_desk
from tests.support.rig import MakeAgent, Rig, until, until_status

HUGE = "x" * 100_000
expect.set_options(timeout=PATIENCE_MS)


@tool(needs_approval=True)
async def pay(to: str) -> str:
    """Pay an expense."""
    return f"paid {len(to)} characters"


@tool(needs_approval=True, effect="read")
async def look(to: str) -> str:
    """Look somebody up."""
    return f"found {to}"


def answer(request: FakeRequest) -> Reply:
    """Call what is asked for, `pay NAME` or `look NAME`; the name `huge` is a long one."""
    name, _, to = request.last_user.partition(" ")
    if name in ("pay", "look") and not any(each.role == "tool" for each in request.messages):
        return calls([(name, {"to": HUGE if to == "huge" else to})], text=f"I {name} now.")
    return reply("Done.")


@pytest.fixture
def model() -> Iterator[FakeOpenAI]:
    with FakeOpenAI(answer) as fake:
        yield fake


@pytest.fixture
async def runner(rig: Rig, make_agent: MakeAgent) -> AgentRunner:
    await rig.serve(make_agent(pay, look))
    return rig.runner()


@pytest.fixture
async def desk(runner: AgentRunner) -> AsyncGenerator[Served]:
    async with serve_desk(runner) as served:
        yield served


async def waiting(runner: AgentRunner, wish: str) -> str:
    """Create a task that waits for a decision, and wait until that is listed."""
    task = await runner.create_task(wish)
    await runner.run_task(task)

    async def listed() -> bool:
        return any(each.id == f"{task.task_id}:1" for each in await runner.pending_approvals())

    await until(listed)
    return task.task_id


async def test_signing_out_ends_the_pages_of_other_tabs(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    task = await waiting(runner, "pay kim")
    async with person(browser, desk) as page:
        other = await page.context.new_page()
        await other.goto(f"{desk.url}/?q={task}")
        await expect(other.get_by_role("article")).to_contain_text("I pay now.")
        await page.goto(f"{desk.url}/workers")
        await page.get_by_role("button", name="Sign out").click()
        await expect(other.get_by_label("Token")).to_be_visible()
        await expect(other.get_by_role("article")).to_have_count(0)


async def test_a_double_click_decides_one_call(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    first, second = await waiting(runner, "look ann"), await waiting(runner, "look bob")
    async with person(browser, desk) as page:
        await page.goto(f"{desk.url}/?tool=look")
        await expect(page.get_by_role("article")).to_contain_text(first)
        await page.get_by_role("button", name="Run look", exact=False).first.dblclick()
        await until_status(runner, first, "answered")
        await expect(page.get_by_role("article")).to_contain_text(second)
    decided = [e for e in await runner.audit(first) if e.kind == "command" and e.approval]
    assert [each.approver for each in decided] == ["ann"]
    assert len(await runner.pending_approvals(second)) == 1


async def test_marks_that_cannot_be_seen_are_written_out(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    task = await waiting(runner, "pay kim\u202e\u200b\u2066\ufeff\x1bmik")
    async with person(browser, desk) as page:
        for path in (f"/?q={task}", f"/tasks/{task}?tab=transcript"):
            await page.goto(desk.url + path)
            shown = page.get_by_text("kim\\u202e\\u200b\\u2066\\ufeff", exact=False)
            await expect(shown.first).to_be_visible()
            said = await page.locator("main").inner_text()
            assert not {*"\u202e\u200b\u2066\ufeff\x1b"} & {*said}


async def test_the_back_button_returns_to_the_card(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    await waiting(runner, "pay ann")
    task = await waiting(runner, "pay bob")
    async with person(browser, desk) as page:
        await page.goto(f"{desk.url}/?tool=pay&card={task}:1")
        await expect(page.get_by_role("article")).to_contain_text(f"{task}:1")
        await page.get_by_role("link", name="Open the step").click()
        await expect(page.get_by_role("tab", name="Timeline")).to_be_visible()
        await page.go_back()
        await expect(page.get_by_role("article")).to_contain_text(f"{task}:1")


async def test_huge_arguments_are_shown_and_run_whole(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    task = await waiting(runner, "pay huge")
    async with person(browser, desk) as page:
        await page.goto(f"{desk.url}/?q={task}")
        card = page.get_by_role("article")
        await expect(card).to_contain_text("I pay now.")
        assert HUGE in await card.inner_text()
        await page.keyboard.press("a")
        await page.get_by_role("button", name="Yes: Run pay").click()
        await until_status(runner, task, "answered")
    [step] = [s for s in await runner.get_completed_steps(task) if s.sources]
    assert step.sources[0].content == f"paid {len(HUGE)} characters"


async def test_a_fork_keeps_its_reason(runner: AgentRunner, desk: Served, browser: Browser) -> None:
    task = await runner.create_task("hello")
    await runner.run_task(task)
    async with person(browser, desk) as page:
        await page.goto(f"{desk.url}/tasks/{task.task_id}?step=1")
        await page.get_by_role("button", name="Fork from here").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Another input (or leave it empty)").fill("and now?")
        await dialog.get_by_label("Reason (or leave it empty)").fill("to compare")
        await dialog.get_by_role("button", name="Fork after step 1").click()
        await expect(page.get_by_role("link", name="Compare with it")).to_be_visible()
        made = page.url.rpartition("/")[2]
    [forked] = [each for each in await runner.audit(made) if each.kind == "forked"]
    assert (forked.actor, forked.reason) == ("ann", "to compare")


async def test_what_is_typed_stays_when_the_task_changes(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    task = await waiting(runner, "pay kim")
    async with person(browser, desk) as page:
        await page.goto(f"{desk.url}/tasks/{task}")
        await page.get_by_role("button", name="Feedback").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Message").fill("not before noon")
        await runner.pause(task, "lunch", "bob")
        await expect(page.get_by_text("Paused by bob")).to_be_attached()
        await expect(dialog.get_by_label("Message")).to_have_value("not before noon")
        await dialog.get_by_role("button", name="Give feedback").click()
        await expect(page.get_by_text("Sent.")).to_be_visible()
    [said] = [each for each in await runner.audit(task) if each.verb == "feedback"]
    assert said.actor == "ann"
    assert "not before noon" in str(said.wire())


async def test_a_section_that_is_slow_to_read_does_not_take_the_place_of_another(
    runner: AgentRunner, desk: Served, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await runner.create_task("hello")
    await runner.run_task(task)
    has_begun, may_end, has_ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(*_: object) -> list[object]:
        has_begun.set()
        await may_end.wait()
        has_ended.set()
        return []

    monkeypatch.setattr("holdfast.desk.pages.task.page.read_forks", slow)
    async with person(browser, desk) as page:
        await page.goto(f"{desk.url}/tasks/{task.task_id}?tab=branches")
        await has_begun.wait()
        await page.get_by_role("tab", name="Steps").click()
        step = page.get_by_role("button", name="Step 1 ")
        await expect(step).to_be_visible()
        may_end.set()
        await has_ended.wait()
        await step.click()
        await expect(page.get_by_role("button", name="Fork from here")).to_be_visible()
        await expect(page.get_by_role("list", name="Branches")).to_have_count(0)


async def test_the_list_of_tasks_is_turned_by_pages(
    runner: AgentRunner, desk: Served, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.desk.pages.tasks.PAGE_ROWS", 2)
    for k in range(3):
        await runner.create_task(f"page of tasks {k}")

    async def listed() -> bool:
        return len(await runner.list_tasks()) >= 3

    await until(listed)
    async with person(browser, desk) as page:
        rows = page.get_by_role("list", name="Tasks").get_by_role("link")
        await page.goto(f"{desk.url}/tasks?q=page+of+tasks")
        await expect(rows).to_have_text(["page of tasks 2", "page of tasks 1"])
        await page.get_by_role("button", name="Older").click()
        await expect(rows).to_have_text(["page of tasks 0"])
        await expect(page).to_have_url(f"{desk.url}/tasks?q=page+of+tasks&page=2")
        await page.get_by_role("button", name="Newer").click()
        await expect(rows).to_have_count(2)


async def test_a_browser_that_was_offline_goes_on_where_it_was(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    first, second = await waiting(runner, "look eve"), await waiting(runner, "look fay")
    async with person(browser, desk) as page:
        await page.goto(f"{desk.url}/?tool=look&card={first}:1")
        card = page.get_by_role("article")
        await expect(card).to_contain_text(first)
        await page.context.set_offline(True)
        [approval] = await runner.pending_approvals(first)
        await runner.approve(approval, by="bob")
        await until_status(runner, first, "answered")
        await page.context.set_offline(False)
        await expect(card).to_contain_text("bob")
        await page.goto(f"{desk.url}/?q={second}")
        await expect(card).to_contain_text(second)
