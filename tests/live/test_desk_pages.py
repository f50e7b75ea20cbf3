"""The desk's pages in a real browser, over a real server and the fake model API."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import pytest
from playwright.async_api import Browser, Page, expect

from holdfast import AgentRunner, ApprovalRule, tool
from holdfast.testing import FakeOpenAI, FakeRequest, Reply, calls, reply
from tests.support.desk import PATIENCE_MS, SETTLED, Served, person, serve_desk
from tests.support.rig import MakeAgent, Rig, until, until_status

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)> [x](javascript:alert(3)) {{7*7}}"
AXE = Path(str(files("axe_playwright_python"))) / "axe.min.js"
LOOKS: tuple[tuple[Literal["light", "dark"], int], ...] = tuple(
    (scheme, width) for width in (1280, 400) for scheme in ("light", "dark")
)
expect.set_options(timeout=PATIENCE_MS)


@tool(needs_approval=True)
async def pay(to: str, euros: int, method: Literal["wire", "card"] = "wire") -> str:
    """Pay an expense.

    Args:
        to: Who gets the money.
        euros: How much.
        method: How.
    """
    return f"{euros} euros were paid to {to}"


@tool(needs_approval=ApprovalRule(quorum=2))
async def share(to: str, euros: int) -> str:
    """Pay what two must approve."""
    return f"{euros} euros were paid to {to}"


@tool(effect="read")
async def look(thing: str) -> str:
    """Look at a thing."""
    return f"{thing}: {EVIL}"


def answer(request: FakeRequest) -> Reply:
    """Pay what is asked for, `pay NAME EUROS`; look first when the task says so."""
    said = request.last_user.split()
    results = [message for message in request.messages if message.role == "tool"]
    if said[0] == "look" and not results:
        return calls([("look", {"thing": EVIL})], text=EVIL)
    if said[0] in ("pay", "share") and not results:
        to, euros = said[1], int(said[2])
        return calls([(said[0], {"to": to, "euros": euros})], text=f"I pay {to} now.")
    return reply(f"Done. {EVIL}")


@pytest.fixture
def model() -> Iterator[FakeOpenAI]:
    with FakeOpenAI(answer) as fake:
        yield fake


@pytest.fixture
async def runner(rig: Rig, make_agent: MakeAgent) -> AgentRunner:
    await rig.serve(make_agent(pay, share, look))
    return rig.runner()


@pytest.fixture
async def desk(runner: AgentRunner) -> AsyncGenerator[Served]:
    async with serve_desk(runner) as served:
        yield served


async def ask(runner: AgentRunner, *wishes: str) -> list[str]:
    """Create tasks that want to pay, and wait until they are listed as asking."""
    ids: list[str] = []
    for wish in wishes:
        task = await runner.create_task(wish)
        await runner.run_task(task)
        ids.append(task.task_id)

    await until_listed(runner, *ids)
    return ids


async def until_listed(runner: AgentRunner, *ids: str) -> None:
    """Wait until tasks are listed as waiting."""

    async def listed() -> bool:
        found = {each.id.rpartition(":")[0] for each in await runner.pending_approvals()}
        return found >= set(ids)

    await until(listed)


async def serious(page: Page) -> list[Any]:
    """Return what axe-core finds that is serious or worse, once all colours have settled."""
    await page.evaluate(SETTLED)
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE.read_text(encoding="utf-8"))
    # All rules are tried. To describe each element that keeps them would take most of the time.
    found: list[Any] = await page.evaluate(
        "axe.run({resultTypes: ['violations']}).then(found => found.violations)"
    )
    return [
        (each["id"], [node["html"][:300] for node in each["nodes"]])
        for each in found
        if each["impact"] in ("serious", "critical")
    ]


async def test_a_card_shows_the_call_and_approving_it_asks_twice(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    [task] = await ask(runner, "pay Kim 930")
    async with person(browser, desk) as page:
        await page.goto(f"{desk.url}/?q={task}")
        card = page.get_by_role("article")
        await expect(card).to_contain_text("Cannot be undone")
        await expect(card).to_contain_text("Who gets the money.")
        await expect(card).to_contain_text("I pay Kim now.")
        await page.get_by_role("button", name="Run pay", exact=False).first.click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("pay cannot be undone.")
        await dialog.get_by_role("button", name="Yes: Run pay").click()
        await expect(page.get_by_text(f"Approved: {task}:1")).to_be_visible()
        await expect(card).to_have_count(0)
    await until_status(runner, task, "answered")
    [event] = [each for each in await runner.audit(task) if each.verb == "approve"]
    assert event.actor == "ann"


async def test_an_edit_is_typed_reviewed_and_run(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    [task] = await ask(runner, "pay Kim 930")
    async with person(browser, desk) as page:
        await page.goto(f"{desk.url}/?q={task}")
        await expect(page.get_by_role("article")).to_contain_text("How much.")
        await page.keyboard.press("e")
        euros = page.get_by_label("euros * (integer)")
        await euros.fill("many")
        await page.get_by_role("button", name="Review the change").click()
        await expect(page.get_by_text("euros must be a whole number")).to_be_visible()
        await euros.fill("93")
        await page.get_by_role("button", name="Review the change").click()
        await expect(page.get_by_text("- 930")).to_be_visible()
        await page.get_by_role("button", name="Yes: run pay with these").click()
        await expect(page.get_by_text(f"Approved with edits: {task}:1")).to_be_visible()
    await until_status(runner, task, "answered")
    [call] = [each for each in await runner.audit(task) if each.kind == "tool_call"]
    assert json.loads(call.arguments) == {"to": "Kim", "euros": 93}


async def test_keys_walk_the_inbox_and_reject_with_a_reason(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    first, second = await ask(runner, "pay Kim 1", "pay Bo 2")
    async with person(browser, desk) as page:
        await page.goto(f"{desk.url}/?agent=agent")
        rows = page.get_by_role("list", name="What waits").get_by_role("listitem")
        waiting = await runner.pending_approvals()
        place = [each.id for each in waiting if each.agent == "agent"]
        steps = place.index(f"{second}:1")
        await expect(rows).to_have_count(len(place))
        for _ in range(steps):
            await page.keyboard.press("j")
        await expect(page.get_by_role("article")).to_contain_text(f"{second}:1")
        await page.keyboard.press("r")
        await expect(page.get_by_label("Reason")).to_be_focused()
        await page.keyboard.type("too much")
        await page.keyboard.press("Control+Enter")
        await expect(page.get_by_text(f"Rejected: {second}:1")).to_be_visible()
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog")).to_contain_text("next and previous")
    await until_status(runner, second, "answered")
    assert (await runner.get_task(first)).status == "waiting"


async def test_several_calls_of_one_tool_are_rejected_at_once(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    wanted = await ask(runner, "pay Kim 1", "pay Bo 2")
    async with person(browser, desk) as page:
        await page.goto(desk.url)
        for task in wanted:
            await page.get_by_role("checkbox", name=f"Mark {task}:1").click()
        await page.get_by_role("button", name="Do not run pay (2)").click()
        await page.get_by_label("Reason").fill("not today")
        await page.get_by_role("dialog").get_by_role("button", name="Do not run pay").click()
        await expect(page.get_by_text("Rejected: 2 calls")).to_be_visible()
    for task in wanted:
        await until_status(runner, task, "answered")


async def test_what_somebody_else_decided_is_shown_and_not_overwritten(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    [task] = await ask(runner, "pay Kim 930")
    async with (
        person(browser, desk, "ann") as anns,
        person(browser, desk, "bo") as bos,
    ):
        for page in (anns, bos):
            await page.goto(f"{desk.url}/?q={task}")
            await expect(page.get_by_role("article")).to_contain_text("pay")
        await anns.keyboard.press("a")
        await expect(anns.get_by_role("dialog")).to_be_visible()
        await bos.keyboard.press("r")
        await expect(bos.get_by_label("Reason")).to_be_focused()
        await bos.keyboard.type("no receipt")
        await bos.keyboard.press("Control+Enter")
        await expect(bos.get_by_text(f"Rejected: {task}:1")).to_be_visible()
        await expect(anns.get_by_text("Decided meanwhile", exact=False)).to_be_visible()
        await expect(anns.get_by_text("rejected by bo", exact=False)).to_be_visible()
        await anns.get_by_role("button", name="Yes: Run pay").click()
    await until_status(runner, task, "answered")
    tried = [(each.verb, each.actor, each.status) for each in await runner.audit(task) if each.verb]
    assert tried == [("reject", "bo", "applied"), ("approve", "ann", "refused")]


async def test_a_call_that_two_must_approve_says_who_has(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    [task] = await ask(runner, "share Kim 930")
    async with (
        person(browser, desk, "ann") as anns,
        person(browser, desk, "bo") as bos,
    ):
        for page in (anns, bos):
            await page.goto(f"{desk.url}/?q={task}")
            await expect(page.get_by_role("article")).to_contain_text("0 of 2")
        for page, name in ((anns, "ann"), (bos, "bo")):
            await page.keyboard.press("a")
            await page.get_by_role("button", name="Yes: Run share").click()
            await expect(page.get_by_text(f"Approved: {task}:1")).to_be_visible()
            if name == "ann":
                await expect(bos.get_by_role("article")).to_contain_text("1 of 2: ann")
    await until_status(runner, task, "answered")


async def test_later_calls_are_approved_within_bounds_and_revoked(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    [task] = await ask(runner, "pay Kim 930")
    async with person(browser, desk) as page:
        await page.goto(f"{desk.url}/?q={task}&mine=1")
        await expect(page.get_by_role("article")).to_contain_text("Who gets the money.")
        await page.keyboard.press("w")
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("pay cannot be undone.")
        await dialog.get_by_role("checkbox", name="Only where euros is 930").click()
        await dialog.get_by_role("button", name="Run pay, and later calls").click()
        await expect(page.get_by_text(f"Approved, with later calls: {task}:1")).to_be_visible()
        await until_status(runner, task, "answered")
        [rule] = await runner.standing_rules(task)
        assert (rule.by, rule.values, rule.until) == ("ann", {"to": "Kim"}, 0.0)
        await page.goto(f"{desk.url}/tasks/{task}")
        said = page.get_by_text("ann has approved calls of pay with to = Kim.")
        await expect(said).to_be_visible()
        assert await serious(page) == []
        await page.get_by_role("button", name="Revoke").click()
        await page.get_by_role("button", name="Revoke the rule").click()
        await expect(said).to_have_count(0)
    assert await runner.standing_rules(task) == []


async def test_a_rule_for_a_session_is_given_listed_and_revoked(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    task = await runner.create_task("pay Kim 930", session="books")
    await runner.run_task(task)
    await until_listed(runner, task.task_id)
    async with person(browser, desk) as page:
        await page.goto(f"{desk.url}/?card={task.task_id}:1")
        await expect(page.get_by_role("article")).to_contain_text("Who gets the money.")
        await page.keyboard.press("w")
        dialog = page.get_by_role("dialog")
        await dialog.get_by_role("combobox", name="Where").click()
        await page.get_by_role("option", name="In all tasks of session books").click()
        await dialog.get_by_role("button", name="Run pay, and later calls").click()
        await until_status(runner, task, "answered")
        again = await runner.create_task("pay Kim 930", session="books")
        assert (await runner.run_task(again)).status != "waiting"
        await page.get_by_role("link", name="Standing rules").click()
        said = "ann has approved calls of pay with to = Kim, euros = 930 by agent in session books."
        await expect(page.get_by_text(said)).to_be_visible()
        for scheme, width in LOOKS:
            await page.emulate_media(color_scheme=scheme)
            await page.set_viewport_size({"width": width, "height": 900})
            assert await serious(page) == []
        await page.get_by_role("button", name=f"Revoke {task.task_id}:1").click()
        await expect(page.get_by_text("No decision holds for later calls")).to_be_visible()
    [rule] = await runner.session("books").standing_rules(ended=True)
    assert rule.revoked == "ann"


async def test_a_verb_that_is_forbidden_says_so_and_does_nothing(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    [task] = await ask(runner, "pay Kim 930")
    desk.people.forbidden.add("abandon")
    async with person(browser, desk) as page:
        await page.goto(f"{desk.url}/tasks/{task}")
        await page.get_by_role("button", name="Abandon").click()
        await page.get_by_label("Reason").fill("no")
        await page.get_by_role("button", name="Abandon the task").click()
        await expect(page.get_by_text(f"ann may not abandon {task}:", exact=False)).to_be_visible()
    assert (await runner.get_task(task)).status == "waiting"


async def test_markup_of_models_and_tools_is_shown_as_text(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    task = await runner.create_task(f"look {EVIL}", session=f"of {EVIL[:20]}")
    await runner.run_task(task)
    await runner.finalize_response(task)
    sure = await runner.create_task(f"pay {EVIL.replace(' ', '_')} 1")
    await runner.run_task(sure)
    await runner.give_feedback(sure, EVIL, by=EVIL)
    await until_listed(runner, sure.task_id)
    seen = f"/tasks/{task.task_id}"
    pages = {
        f"{seen}?tab=timeline": "Done. <script>",
        f"{seen}?step=1": "<img src=x",
        f"{seen}?tab=effects": "reads only",
        f"{seen}?tab=transcript": "{{7*7}}",
        f"/tasks/{sure.task_id}?tab=branches": "Decide in the inbox",
        f"/?q={sure.task_id}": "<img_src=x",
        "/tasks?q=script": "look <script>",
        f"/compare?left={task.task_id}&right={sure.task_id}": "<img src=x",
        f"/sessions?name={quote(f'of {EVIL[:20]}')}": "{{7*7}}",
        f"/sessions?name={quote(EVIL)}": "There is no such session",
        f"/tasks/{quote(EVIL, safe='')}": "There is no such task",
        f"/compare?left={quote(EVIL)}&right={quote(EVIL)}": "onerror=alert",
        "/compare?left=../../x&right=../../x": "No task '../../x'",
    }
    async with person(browser, desk) as page:  # which fails on any dialog
        for path, shown in pages.items():
            await page.goto(desk.url + path)
            await expect(page.locator("main")).to_contain_text(shown)
            assert await page.locator("img[src=x], main script").count() == 0, path


async def test_the_list_of_tasks_is_searched_by_its_url(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    [task] = await ask(runner, "pay Kim 931")
    async with person(browser, desk) as page:
        await page.goto(f"{desk.url}/tasks?status=waiting&q={task}")
        rows = page.get_by_role("list", name="Tasks").get_by_role("listitem")
        await expect(rows).to_have_count(1)
        await expect(rows).to_contain_text("approval of pay")
        await page.get_by_label("Search").fill("no such task at all")
        await expect(page.get_by_text("No task fits")).to_be_visible()
        await expect(page).to_have_url(f"{desk.url}/tasks?status=waiting&q=no+such+task+at+all")


async def test_a_page_says_that_no_worker_is_up_and_goes_on_when_one_is(
    runner: AgentRunner, desk: Served, browser: Browser, rig: Rig, make_agent: MakeAgent
) -> None:
    [task] = await ask(runner, "pay Kim 930")
    async with person(browser, desk) as page:
        await page.goto(f"{desk.url}/tasks/{task}")
        await expect(page.get_by_role("list", name="Timeline")).to_be_visible()
        await rig.stop()
        await expect(page.get_by_text("No worker process", exact=False)).to_be_visible()
        await expect(page.get_by_role("list", name="Timeline")).to_be_visible()
        await runner.reject(f"{task}:1", "ann", "no")
        await rig.serve(make_agent(pay, share, look))
        await expect(page.get_by_text("No worker process", exact=False)).to_be_hidden()
        await expect(page.get_by_text("Done. <script>", exact=False)).to_be_visible()


async def test_pages_have_no_serious_fault_of_accessibility_and_fit_a_telephone(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    [task] = await ask(runner, "pay Kim 930")
    session = await runner.create_task("hi", session="talk")
    await runner.run_task(session)
    await runner.finalize_response(session)
    pages = {
        f"/?q={task}": "I pay Kim now.",
        "/tasks": "approval of pay",
        f"/tasks/{task}": "waits for a person: pay",
        f"/tasks/{task}?step=1": "Calls",
        f"/tasks/{task}?tab=effects": "reads only",
        f"/tasks/{session.task_id}?tab=transcript": "Done.",
        f"/tasks/{task}?tab=branches": "there is one branch",
        f"/compare?left={task}&right={session.task_id}": "first difference",
        "/sessions?name=talk": "The task of this turn",
        "/workers": "served",
    }
    wrong: dict[str, Any] = {}
    async with person(browser, desk) as page:
        for path, shown in pages.items():
            await page.goto(desk.url + path)
            await expect(page.get_by_text(shown, exact=False).first).to_be_visible()
            for scheme, width in LOOKS:
                await page.emulate_media(color_scheme=scheme)
                await page.set_viewport_size({"width": width, "height": 900})
                await expect(page.locator(f"body.body--{scheme}")).to_have_count(1)
                over = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
                if (found := await serious(page)) or over > 0:
                    wrong[f"{path} {scheme} {width}"] = (found, over)
    assert wrong == {}


async def test_pages_work_from_within_another_application(
    runner: AgentRunner, browser: Browser
) -> None:
    [task] = await ask(runner, "pay Kim 930")
    async with (
        serve_desk(runner, prefix="/in/here") as desk,
        person(browser, desk) as page,  # which fails on any request outside of the prefix
    ):
        await page.goto(f"{desk.url}/?q={task}")
        await page.get_by_role("link", name="Open the step").click()
        await expect(page.get_by_text("Model", exact=True)).to_be_visible()
        await page.get_by_role("tab", name="Effects").click()
        await expect(page).to_have_url(f"{desk.url}/tasks/{task}?tab=effects")
        await page.get_by_role("link", name="Decide in the inbox").click()
        await expect(page.get_by_role("article")).to_contain_text("I pay Kim now.")
