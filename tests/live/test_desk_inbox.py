"""The desk's inbox in a real browser: decisions by hand and by keys, by one person and by two."""

import pytest
from playwright.async_api import Browser, expect

from holdfast import AgentRunner
from tests.support.desk import PATIENCE_MS, Served, person
from tests.support.desk_agent import HUGE, desk, rig_of_desk, runner, waiting
from tests.support.rig import until_status

__all__ = ["desk", "rig_of_desk", "runner"]

expect.set_options(timeout=PATIENCE_MS)


async def test_a_card_shows_the_call_and_approving_it_asks_twice(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    task, huge = await waiting(runner, "pay Kim 930"), await waiting(runner, "pay huge 930")
    async with person(browser, desk) as page:
        await page.goto(f"{desk.url}/?q={task}")
        card = page.get_by_role("article")
        await expect(card).to_contain_text("Cannot be undone")
        await expect(card).to_contain_text("Who gets the money.")
        await expect(card).to_contain_text("I pay Kim now.")
        dialog = page.get_by_role("dialog")
        await page.keyboard.press("e")
        await dialog.get_by_role("spinbutton", name="euros * (integer)").fill("93")
        await dialog.get_by_role("button", name="Review the change").click()
        await expect(dialog).to_contain_text("+ 93")
        await page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)
        await page.get_by_role("button", name="Run pay", exact=False).first.click()
        await expect(dialog).to_contain_text("pay cannot be undone.")
        await dialog.get_by_role("button", name="Yes: Run pay").click()
        await expect(page.get_by_text(f"Approved: {task}:1")).to_be_visible()
        await expect(card).to_have_count(0)
        await page.goto(f"{desk.url}/?q={huge}")
        await expect(card).to_contain_text("I pay huge now.")
        assert HUGE in await card.inner_text()
        await page.keyboard.press("a")
        await page.get_by_role("button", name="Yes: Run pay").click()
        await until_status(runner, huge, "answered")
    [event] = [each for each in await runner.audit(task) if each.verb == "approve"]
    assert event.actor == "ann"
    [step] = [each for each in await runner.get_completed_steps(huge) if each.sources]
    assert step.sources[0].content == f"930 euros were paid to {len(HUGE)} characters"


async def test_keys_walk_the_inbox_and_several_calls_of_one_tool_are_rejected_at_once(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    tasks = [await waiting(runner, f"pay {name} 1") for name in ("Kim", "Bo", "Al")]
    *others, last = tasks
    async with person(browser, desk) as page:
        await page.goto(f"{desk.url}/?agent=agent")
        rows = page.get_by_role("list", name="What waits").get_by_role("listitem")
        found = await runner.pending_approvals()
        place = [each.id for each in found if each.agent == "agent"]
        await expect(rows).to_have_count(len(place))
        for _ in range(place.index(f"{last}:1")):
            await page.keyboard.press("j")
        await expect(page.get_by_role("article")).to_contain_text(f"{last}:1")
        await page.keyboard.press("r")
        await expect(page.get_by_label("Reason")).to_be_focused()
        await page.keyboard.type("too much")
        await page.keyboard.press("Control+Enter")
        await expect(page.get_by_text(f"Rejected: {last}:1")).to_be_visible()
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog")).to_contain_text("next and previous")
        await page.keyboard.press("Escape")
        await until_status(runner, last, "answered")
        for task in others:
            assert (await runner.get_task(task)).status == "waiting"
            await page.get_by_role("checkbox", name=f"Mark {task}:1").click()
        await page.get_by_role("button", name="Do not run pay (2)").click()
        asked = page.get_by_role("dialog")
        for shown in (f"{others[0]}:1", f"{others[1]}:1", 'method: "wire" (default)'):
            await expect(asked).to_contain_text(shown)
        await page.get_by_label("Reason").fill("not today")
        await page.get_by_role("dialog").get_by_role("button", name="Do not run pay").click()
        await expect(page.get_by_text("Rejected: 2 calls")).to_be_visible()
    for task in others:
        await until_status(runner, task, "answered")


async def test_two_people_see_each_other_s_decisions_and_overwrite_none(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    both, task = await waiting(runner, "share Kim 930"), await waiting(runner, "pay Kim 930")
    async with person(browser, desk, "ann") as anns, person(browser, desk, "bo") as bos:
        for page in (anns, bos):  # a call that two must approve
            await page.goto(f"{desk.url}/?q={both}")
            await expect(page.get_by_role("article")).to_contain_text("0 of 2")
        for page, name in ((anns, "ann"), (bos, "bo")):
            await page.keyboard.press("a")
            await page.get_by_role("button", name="Yes: Run share").click()
            await expect(page.get_by_text(f"Approved: {both}:1")).to_be_visible()
            if name == "ann":
                await expect(anns.get_by_role("article")).to_contain_text("ann has approved")
                await expect(anns.locator("[data-verb=approve]")).to_be_disabled()
                await expect(bos.get_by_role("article")).to_contain_text("1 of 2: ann")
        await until_status(runner, both, "answered")

        for page in (anns, bos):  # a call that one decides
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


async def test_later_calls_are_approved_within_bounds_and_revoked(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    in_session = await waiting(runner, "pay Kim 930", session="books")
    async with person(browser, desk) as page:
        dialog = page.get_by_role("dialog")
        await page.goto(f"{desk.url}/?card={in_session}:1")
        await expect(page.get_by_role("article")).to_contain_text("Who gets the money.")
        await page.keyboard.press("w")
        await expect(dialog).to_contain_text("pay cannot be undone.")
        await dialog.get_by_role("checkbox", name="Only where euros is 930").click()
        await dialog.get_by_role("combobox", name="Where").click()
        await page.get_by_role("option", name="In all tasks of session books").click()
        await dialog.get_by_role("button", name="Run pay, and later calls").click()
        await until_status(runner, in_session, "answered")
        again = await runner.create_task("pay Kim 7", session="books")
        assert (await runner.run_task(again)).status != "waiting"
        await page.get_by_role("link", name="Standing rules").click()
        await expect(page.get_by_text("with to = Kim by agent in session books.")).to_be_visible()
        await page.get_by_role("button", name=f"Revoke {in_session}:1").click()
        await expect(page.get_by_text("No decision holds for later calls")).to_be_visible()
    [rule] = await runner.session("books").standing_rules(ended=True)
    assert rule.revoked == "ann"


async def test_hasty_hands_decide_one_call(
    runner: AgentRunner, desk: Served, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A card that is drawn again once all of it is read takes a click with it.
    monkeypatch.setattr("holdfast.desk.pages.inbox.page.BARE_SECONDS", 60.0)
    first, second = await waiting(runner, "peek ann 1"), await waiting(runner, "peek bob 2")
    async with person(browser, desk) as page:
        card = page.get_by_role("article")
        await page.goto(f"{desk.url}/?tool=peek")  # a double click
        await expect(card).to_contain_text(first)
        await page.get_by_role("button", name="Run peek", exact=False).first.dblclick()
        await until_status(runner, first, "answered")
        await expect(card).to_contain_text(second)
        decided = [e for e in await runner.audit(first) if e.kind == "command" and e.approval]
        assert [each.approver for each in decided] == ["ann"]
        assert len(await runner.pending_approvals(second)) == 1
