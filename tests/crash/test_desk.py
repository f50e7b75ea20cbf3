"""People at the desk while workers, the server and the desk itself are killed."""

import re
from contextlib import suppress

from playwright.async_api import Browser, Locator, Page, expect

from holdfast.desk import Tokens
from holdfast.engine.dev_server.process import free_port
from tests.crash import expenses
from tests.crash.lab import Lab
from tests.support.desk import PATIENCE_MS, People, Served, person, serve_desk
from tests.support.people import ask
from tests.support.rig import until_status

expect.set_options(timeout=PATIENCE_MS)
MISSING = re.compile("continues on its own")


class Hand:
    """A person who uses a page with the keyboard alone."""

    def __init__(self, page: Page) -> None:
        self._page = page

    async def press(self, target: Locator, key: str = "") -> None:
        """Press a button or a link, or the key that does the same."""
        await expect(target).to_be_visible()
        if key:
            await self._page.keyboard.press(key)
        else:
            await self._go_to(target)
            await self._page.keyboard.press("Enter")

    async def ask(self, target: Locator, key: str = "") -> None:
        """Press what opens a dialog; press again when nothing opens, as a person does.

        What is pressed while the page connects anew does not arrive.
        """
        dialog = self._page.get_by_role("dialog")
        for _ in range(3):
            await self.press(target, key)
            with suppress(AssertionError):
                await expect(dialog).to_be_visible(timeout=PATIENCE_MS / 4)
                return
        await expect(dialog).to_be_visible()

    async def fill(self, target: Locator, content: str) -> None:
        """Type in the place of what is in a field."""
        await expect(target).to_be_visible()
        await self._go_to(target)
        await self._page.keyboard.press("Control+a")
        await self._page.keyboard.type(content)

    async def turn_to(self, tab: str) -> None:
        """Choose a tab; arrows go from one to the next."""
        await self._go_to(self._page.get_by_role("tab", selected=True))
        await self._page.keyboard.press("Home")
        await self._go_to(self._page.get_by_role("tab", name=tab), "ArrowRight")
        await self._page.keyboard.press("Enter")

    async def _go_to(self, target: Locator, by: str = "Tab") -> None:
        for _ in range(200):
            if await _has_focus(target):
                return
            await self._page.keyboard.press(by)
        msg = f"the keyboard does not come to {target}"
        raise AssertionError(msg)


async def _has_focus(target: Locator) -> bool:
    return bool(
        await target.evaluate(
            "it => it === document.activeElement || it.contains(document.activeElement)"
        )
    )


async def test_an_expense_from_the_wish_to_the_comparison_by_the_keyboard_alone(
    own_lab: Lab, browser: Browser
) -> None:
    lab = own_lab  # with a list of tasks and an inbox of its own
    lab.hold("pay")
    worker = await lab.serve(make=expenses.make_agent)
    async with serve_desk(lab.runner) as desk, person(browser, desk) as page:
        hand, dialog = Hand(page), page.get_by_role("dialog")
        card = page.get_by_role("article")

        await page.goto(f"{desk.url}/tasks")  # asks
        await hand.ask(page.get_by_role("button", name="New task"))
        await hand.fill(dialog.get_by_label("Request"), lab.say("file:taxi pay:930"))
        await hand.press(dialog.get_by_role("button", name="Create"))
        await hand.press(page.get_by_role("link", name="Decide in the inbox"))

        await expect(card).to_contain_text("How much.")  # edits
        await hand.ask(card.get_by_role("button", name="Edit arguments"), "e")
        await hand.fill(dialog.get_by_label("thing * (string)"), "93")
        await hand.press(dialog.get_by_role("button", name="Review the change"))
        await hand.press(dialog.get_by_role("button", name="Yes: Edit arguments"))
        await lab.until_event("start", tool="pay")
        await lab.kill(worker)
        lab.let_go("pay")
        await lab.serve(make=expenses.make_agent)

        await expect(card).to_contain_text("may have happened")  # decides what nobody knows
        await hand.ask(card.get_by_role("button", name="It happened"), "v")
        await hand.fill(dialog.get_by_label("Result for the agent"), "paid 93")
        await hand.press(dialog.get_by_role("button", name="It happened"))

        await hand.press(page.get_by_role("link", name="Tasks", exact=True))  # undoes
        task = page.get_by_role("list", name="Tasks").get_by_role("link")
        await expect(task).to_have_count(1)
        await hand.press(task)
        await expect(page.get_by_text("final file(taxi) paid 93")).to_be_visible()
        [made] = await lab.runner.list_tasks()
        await hand.ask(page.get_by_role("button", name="Undo last step"))
        await hand.fill(dialog.get_by_label("Reason"), "the taxi was a bus")
        await hand.press(dialog.get_by_role("button", name="Undo the last step"))
        await hand.turn_to("Branches")
        await expect(page.get_by_text("the taxi was a bus")).to_be_visible()

        await hand.turn_to("Steps")  # forks
        await hand.press(page.get_by_role("button", name="Step 1 ").first)
        await hand.ask(page.get_by_role("button", name="Fork from here"))
        await hand.fill(dialog.get_by_label("Another input"), lab.say("file:bus"))
        await hand.press(dialog.get_by_role("button", name="Fork after step 1"))
        await expect(page.get_by_role("link", name="Forked after step 1")).to_be_visible()
        await hand.press(page.get_by_role("button", name="Run on"))
        await expect(page.get_by_text("final file(bus)")).to_be_visible()

        await hand.press(page.get_by_role("link", name="Compare with it"))  # compares
        await expect(page.get_by_text("The first difference is in step 2.")).to_be_visible()

    await until_status(lab.runner, made.task_id, "running")
    assert [each["thing"] for each in lab.events("start")] == ["taxi", "93", "bus"]
    verbs = [each for each in await lab.runner.audit(made) if each.verb]
    assert [each.verb for each in verbs] == ["approve", "respond", "undo"]
    assert {each.actor for each in verbs} == {"ann"}


async def test_an_open_page_outlives_the_worker_the_server_and_the_desk(
    own_lab: Lab, browser: Browser
) -> None:
    lab, port = own_lab, free_port()
    lab.hold("file")
    desk = lab.start(expenses.desk, input=str(port))
    task = await lab.create("file:taxi", step_mode="automatic")
    await lab.until_event("desk")
    url = f"http://127.0.0.1:{port}"
    served = Served(url, People(Tokens(lab.home / expenses.TOKENS)))
    async with person(browser, served) as page:
        missing = page.get_by_text(MISSING)
        lost = page.get_by_text("Connection lost", exact=False)
        await page.goto(f"{url}/tasks/{task.task_id}")
        await expect(missing).to_be_visible()  # no worker is up
        worker = await lab.serve(make=expenses.make_agent)
        await expect(missing).to_be_hidden()
        await expect(page.get_by_role("list", name="Timeline")).to_contain_text("file")

        await lab.until_event("start", tool="file")
        await lab.kill(worker)
        lab.let_go("file")
        await lab.serve(make=expenses.make_agent)

        await lab.kill_server()
        await expect(missing).to_be_visible()
        await lab.restart_server()
        await expect(missing).to_be_hidden()

        await lab.kill(desk)
        await expect(lost).to_be_visible()
        approval = await ask(lab.runner, task)
        await lab.runner.respond(approval, "bo", "filed by hand")
        lab.start(expenses.desk, input=str(port))
        await expect(page.get_by_text("final filed by hand")).to_be_visible()
        await expect(lost).to_be_hidden()
