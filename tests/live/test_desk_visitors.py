"""Who uses the desk's pages: what each role sees, signing in and out, tokens that end."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from playwright.async_api import Browser, BrowserContext, Page, expect
from starlette.responses import HTMLResponse

from holdfast import AgentRunner, tool
from holdfast.testing import FakeOpenAI, FakeRequest, Reply, calls, reply
from tests.support.desk import PATIENCE_MS, Served, person, serve_app, serve_desk
from tests.support.rig import MakeAgent, Rig, until, until_status

SECRET = "sk-proj-0123456789abcdefghijklmnop"
expect.set_options(timeout=PATIENCE_MS)


@tool(needs_approval=True)
async def pay(to: str) -> str:
    """Pay an expense."""
    return f"paid {to}"


def answer(request: FakeRequest) -> Reply:
    """Pay what is asked for, `pay NAME`; else answer."""
    said = request.last_user.split()
    if said[0] == "pay" and not any(message.role == "tool" for message in request.messages):
        return calls([("pay", {"to": said[1]})], text="I pay now.")
    return reply(f"Done: {request.last_user}")


@pytest.fixture
def model() -> Iterator[FakeOpenAI]:
    with FakeOpenAI(answer) as fake:
        yield fake


@pytest.fixture
async def runner(rig: Rig, make_agent: MakeAgent) -> AgentRunner:
    await rig.serve(make_agent(pay))
    return rig.runner()


@pytest.fixture
async def desk(runner: AgentRunner) -> AsyncGenerator[Served]:
    async with serve_desk(runner) as served:
        yield served


async def stranger(browser: Browser) -> tuple[BrowserContext, Page]:
    """Open a browser of somebody who has not signed in."""
    context = await browser.new_context()
    page = await context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    return context, page


async def buttons(page: Page) -> set[str]:
    """Return the labels of the buttons of the page's main part."""
    return {each.strip() for each in await page.locator("main button").all_inner_texts()}


async def test_a_task_is_run_verified_and_downloaded_without_its_secrets(
    runner: AgentRunner, desk: Served, browser: Browser, tmp_path: Path
) -> None:
    task = await runner.create_task(f"hello, my key is {SECRET}")
    desk.people.token("ole", ["operator"])
    async with person(browser, desk, "ole") as page:
        await page.goto(f"{desk.url}/tasks/{task.task_id}")
        await page.get_by_role("button", name="One step").click()
        await expect(page.get_by_role("button", name="Finalize")).to_be_visible()
        await page.get_by_role("button", name="Verify").click()
        await expect(page.get_by_text("The record is intact")).to_be_visible()
        await page.get_by_role("button", name="Close").click()
        async with page.expect_download() as begun:
            await page.get_by_role("button", name="Audit").click()
        await (await begun.value).save_as(tmp_path / "audit.jsonl")
        await page.get_by_role("button", name="Finalize").click()
        await until_status(runner, task.task_id, "finished")
        await expect(page.get_by_text("It is closed with its answer.")).to_be_visible()
    text = (tmp_path / "audit.jsonl").read_text(encoding="utf-8")
    kinds = [json.loads(line)["kind"] for line in text.splitlines()]
    assert "model_call" in kinds
    assert SECRET not in text


async def test_each_role_has_the_buttons_of_its_verbs(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    task = await runner.create_task("pay kim")
    await runner.run_task(task)

    async def listed() -> bool:
        return any(each.id == f"{task.task_id}:1" for each in await runner.pending_approvals())

    await until(listed)
    reading = {"Verify", "Audit"}
    operating = {"Pause", "Feedback", "Undo last step", "Abandon"}
    for role, wanted in (("viewer", reading), ("operator", reading | operating)):
        desk.people.token(role, [role])
        async with person(browser, desk, role) as page:
            await page.goto(f"{desk.url}/tasks/{task.task_id}")
            await expect(page.get_by_role("button", name="Audit")).to_be_visible()
            found = await buttons(page)
            assert {each.split("\n")[-1] for each in found} >= wanted
            assert not (reading | operating) - wanted & {each.split("\n")[-1] for each in found}
            await page.goto(f"{desk.url}/?q={task.task_id}")
            card = page.get_by_role("article")
            await expect(card).to_contain_text("To decide needs the role approver.")
            await expect(card.get_by_role("button")).to_have_count(0)
            await page.keyboard.press("r")
            await page.keyboard.press("x")
            await expect(page.get_by_role("dialog")).to_have_count(0)
            await page.goto(f"{desk.url}/tasks")
            await expect(page.get_by_role("list", name="Tasks")).to_be_visible()
            new = page.get_by_role("button", name="New task")
            await expect(new).to_have_count(1 if role == "operator" else 0)


async def test_an_open_page_ends_when_its_token_is_revoked(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    task = await runner.create_task("pay kim")
    await runner.run_task(task)
    async with person(browser, desk) as page, person(browser, desk, "bo") as bos:
        for each in (page, bos):
            await each.goto(f"{desk.url}/tasks/{task.task_id}?tab=steps")
            await expect(each.get_by_role("list", name="Steps")).to_be_visible()
        desk.people.tokens.revoke("ann")
        await expect(page.get_by_label("Token")).to_be_visible()
        await expect(page.get_by_role("list", name="Steps")).to_have_count(0)
        await expect(bos.get_by_role("list", name="Steps")).to_be_visible()
        await page.get_by_label("Token").fill(desk.people.tokens.make("ann", ["viewer"]))
        await page.get_by_role("button", name="Sign in").click()
        await expect(page).to_have_url(f"{desk.url}/tasks/{task.task_id}?tab=steps")
        await expect(page.get_by_role("list", name="Steps")).to_be_visible()


async def test_a_link_in_a_message_leads_to_its_card_once_one_has_signed_in(
    runner: AgentRunner, browser: Browser
) -> None:
    task = await runner.create_task("pay kim")
    await runner.run_task(task)
    other = FastAPI()
    async with serve_desk(runner, prefix="/in/here") as desk, serve_app(other) as url:
        card = f"{desk.url}/?card={task.task_id}%3A1"

        @other.get("/message")
        async def message() -> HTMLResponse:
            return HTMLResponse(f'<a href="{card}">decide</a>')

        mail = f"{url.replace('127.0.0.1', 'localhost')}/message"  # another site
        context, page = await stranger(browser)
        await page.goto(mail)
        await page.get_by_role("link").click()
        await page.get_by_label("Token").fill("hfd_wrong")
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("alert")).to_contain_text("not known")
        await page.get_by_label("Token").fill(desk.people.token("ann"))
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("article")).to_contain_text("I pay now.")
        await page.goto(mail)
        await page.get_by_role("link").click()
        await expect(page.get_by_role("article")).to_contain_text("I pay now.")
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_label("Token")).to_be_visible()
        await page.go_back()
        await page.reload()
        await expect(page.get_by_label("Token")).to_be_visible()
        await context.close()
