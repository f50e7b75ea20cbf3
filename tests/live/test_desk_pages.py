"""The desk's other pages in a real browser, over a real server and the fake model API."""

import asyncio
import dataclasses
import json
import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import pytest
from fastapi import FastAPI
from playwright.async_api import Browser, Error, Page, expect
from starlette.responses import HTMLResponse
from temporalio.api.common.v1 import Payload
from temporalio.client import Client

from holdfast import AgentRunner
from holdfast.desk.pages.task.page import TABS
from tests.live.test_sealed_memos import Sealed
from tests.support.desk import PATIENCE_MS, SETTLED, Served, person, serve_app, serve_desk
from tests.support.desk_agent import EVIL, desk, rig_of_desk, runner, waiting
from tests.support.rig import Rig, damaged, finish_a_task, run_a_task, until_status
from tests.support.scale import times

__all__ = ["desk", "rig_of_desk", "runner"]

HIDDEN = "\u202e\u200b\u2066\ufeff\x1b"
"""Marks that nobody sees; some turn the text around."""
SECRET = "sk-proj-0123456789abcdefghijklmnop"
AXE = Path(str(files("axe_playwright_python"))) / "axe.min.js"
COLOURS = {"runOnly": ["color-contrast"]}
"""What another theme or width can change, once all rules were tried in one look of each."""

LOOKS: tuple[tuple[Literal["light", "dark"], int, dict[str, Any]], ...] = (
    ("light", 1280, {}),
    ("dark", 400, COLOURS),
    *times((), (("dark", 1280, COLOURS), ("light", 400, {}))),
)
READS = (
    "steps",
    "calls",
    "transcript",
    "usage",
    "timeline",
    "branches",
    "forks",
    "effects",
    "audit",
)
expect.set_options(timeout=PATIENCE_MS)


async def serious(page: Page, options: dict[str, Any]) -> list[Any]:
    """Return what axe-core finds that is serious or worse, once all colours have settled."""
    await page.evaluate(SETTLED)
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE.read_text(encoding="utf-8"))
    # All rules are tried. To describe each element that keeps them would take most of the time.
    found: list[Any] = await page.evaluate(
        "options => axe.run(options).then(found => found.violations)",
        {"resultTypes": ["violations"], **options},
    )
    return [
        (each["id"], [node["html"][:300] for node in each["nodes"]])
        for each in found
        if each["impact"] in ("serious", "critical")
    ]


async def test_pages_show_markup_as_text_have_no_serious_fault_of_accessibility_and_fit_a_telephone(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    task = await finish_a_task(runner, f"look {EVIL}", session=f"of {EVIL[:20]}")
    sure = await waiting(runner, f"pay {EVIL.replace(' ', '_')}{HIDDEN} 1")
    await runner.give_feedback(sure, EVIL, by=EVIL)
    ruled = await waiting(runner, "pay Kim 1", session="books")
    await runner.approve(f"{ruled}:1", by="ann", always=True)
    await until_status(runner, ruled, "answered")
    fork = await runner.fork(ruled, at=(await runner.get_completed_steps(ruled))[0], by="ann")
    seen = f"/tasks/{task.task_id}"
    pages = {
        f"{seen}?tab=timeline": "Done. <script>",
        f"{seen}?tab=effects": "reads only",
        f"{seen}?tab=transcript": "{{7*7}}",
        f"/tasks/{ruled}": "ann has approved all calls of pay",
        f"/tasks/{ruled}?tab=effects": "1 euros were paid to 3 characters",
        f"/tasks/{ruled}?tab=branches": f"after step 1{fork.task_id}",
        f"/?q={sure}": "\\u202e\\u200b\\u2066\\ufeff",
        "/tasks?q=script": "look <script>",
        f"/compare?left={task.task_id}&right={sure}": "<img src=x",
        f"/sessions?name={quote(f'of {EVIL[:20]}')}": "{{7*7}}",
        f"/tasks/{quote(EVIL, safe='')}": "There is no such task",
        "/workers": f", process {os.getpid()}",
        "/charts?of=week": "Latency of gpt-5-mini, median",
        "/no/such/page": "There is no such page",
    }
    menus = {f"/?q={sure}": "More", "/workers": "Account: ann"}
    wrong: dict[str, Any] = {}
    async with person(browser, desk) as page:  # which fails on any dialog
        for path, shown in pages.items():
            await page.goto(desk.url + path)
            await expect(page.locator("main")).to_contain_text(shown)
            assert await page.locator("img[src=x], main script").count() == 0, path
            assert not {*HIDDEN} & {*(await page.locator("main").inner_text())}, path
            for scheme, width, options in LOOKS:
                await page.emulate_media(color_scheme=scheme)
                await page.set_viewport_size({"width": width, "height": 900})
                await expect(page.locator(f"body.body--{scheme}")).to_have_count(1)
                over = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
                if (found := await serious(page, options)) or over > 0:
                    wrong[f"{path} {scheme} {width}"] = (found, over)
            if name := menus.get(path):
                await page.get_by_role("button", name=name, exact=True).click()
                await expect(page.locator(".q-menu")).to_be_visible()
                if found := await serious(page, {}):
                    wrong[f"{path} {name}"] = found
    assert wrong == {}


async def test_pages_say_what_is_lost_of_a_task_and_show_the_rest(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    blobs = Path(runner.archive.url, "blobs")
    before = {*blobs.rglob("*")}
    task = await waiting(runner, "pay huge 1", session="of huge")
    await runner.approve(f"{task}:1", by="ann")
    await until_status(runner, task, "answered")
    await runner.finalize_response(task)
    other = await waiting(runner, "pay huge 2")  # which needs a blob of the first
    made = {each.name for each in {*blobs.rglob("*")} - before if each.is_file()}
    pages = {f"/tasks/{task}?tab={tab}": "is lost, and missing below" for tab in TABS}
    pages |= {
        f"/tasks/{other}?tab=transcript": "I pay huge now.",
        f"/?q={other}": "needs approval",
        f"/tasks?q={task}": "pay huge 1",
        f"/compare?left={task}&right={other}": "of the ledger cannot be read",
        "/sessions?name=of%20huge": "This turn cannot be read",
        "/charts": "Tasks begun",
    }
    async with person(browser, desk) as page:
        with ExitStack() as stack:
            for name in made:
                stack.enter_context(damaged(runner, name))
            for path, shown in pages.items():
                await page.goto(desk.url + path)
                await expect(page.locator("main")).to_contain_text(shown)
            for what in ("effects", "branches"):
                said = await page.request.get(f"{desk.url}/api/v1/tasks/{task}/{what}")
                assert (said.status, "cannot be read" in await said.text()) == (503, True)


async def sealed(rig: Rig, monkeypatch: pytest.MonkeyPatch, wish: str, **listed: Any) -> str:
    """Begin a task whose memo says "secret", sealed by a codec that this process has not."""
    monkeypatch.setattr("holdfast.client.agent_runner.task_client.task_client.memo", kept)
    own = rig.engine
    rig.engine = dataclasses.replace(own, client=sealing(own.client))
    task = await rig.runner().create_task(wish, **listed)
    rig.engine = own
    return task.task_id


def sealing(client: Client) -> Client:
    converter = dataclasses.replace(client.data_converter, payload_codec=SealedMemo())
    return Client(client.service_client, namespace=client.namespace, data_converter=converter)


def kept(*_: object, **_more: object) -> dict[str, Any]:
    return {"input": "secret", "from": "secret", "created": "secret"}


class SealedMemo(Sealed):
    """A codec that seals memos alone: workers read the task."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        [sealed] = await super().encode(payloads[:1])
        return [sealed if each.data == b'"secret"' else each for each in payloads]


async def test_a_memo_that_cannot_be_read_fails_no_page_and_hides_no_approval(
    rig_of_desk: Rig,
    runner: AgentRunner,
    desk: Served,
    browser: Browser,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asks = await sealed(rig_of_desk, monkeypatch, "pay Ann 7")
    await runner.run_task(asks)
    ended = await sealed(rig_of_desk, monkeypatch, "hello", session="of sealed")
    await runner.run_task(ended)
    await runner.finalize_response(ended)
    left = await sealed(rig_of_desk, monkeypatch, "hello")
    await runner.client.get_workflow_handle(left).cancel()
    await until_status(runner, left, "abandoned")
    place: dict[str, Any] = {"id": f"unread-{asks}", "task_queue": "of-nobody"}
    unread = await sealing(runner.client).start_workflow("AgentTask", "x", memo=kept(), **place)
    pages = {
        f"/?q={asks}": "Ann",
        f"/tasks?q={asks}": "pay Ann 7",  # the task itself tells it
        f"/tasks?q={unread.id}": "the memo cannot be read here",
        f"/compare?left={ended}&right={left}": "Done.",
        "/sessions": "of sealed",
        "/sessions?name=of%20sealed": "hello",
        "/charts?of=week": "Tasks begun",
        "/workers": "serving",
    }
    for task in times((ended,), (asks, ended, left)):
        pages |= {f"/tasks/{task}?tab={tab}": task for tab in TABS}
    reads = [f"/tasks/{task}/{what}" for task in (asks, ended, left) for what in READS]
    async with person(browser, desk) as page:
        for path, shown in pages.items():
            answer = await page.goto(desk.url + path)
            assert answer is not None
            assert answer.status == 200, path
            await expect(page.locator("main")).to_contain_text(shown)
            assert "went wrong" not in await page.locator("main").inner_text(), path
        for path in ("/tasks", "/approvals", "/sessions", "/rules", "/workers", *reads):
            said = await page.request.get(f"{desk.url}/api/v1{path}")
            assert said.status == 200, (path, await said.text())
    await unread.terminate()


async def test_the_list_of_tasks_is_searched_by_its_url_and_turned_by_pages(
    runner: AgentRunner, desk: Served, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.desk.pages.tasks.PAGE_ROWS", 2)
    for k in range(3):
        await runner.create_task(f"page of tasks {k}")
    task = await waiting(runner, "pay Kim 931")
    async with person(browser, desk) as page:
        rows = page.get_by_role("list", name="Tasks").get_by_role("link")
        await page.goto(f"{desk.url}/tasks?status=waiting&q={task}")
        await expect(rows).to_have_count(1)
        await expect(page.get_by_role("list", name="Tasks")).to_contain_text("approval of pay")
        await page.get_by_label("Search").fill("no such task at all")
        await expect(page.get_by_text("No task fits")).to_be_visible()
        await expect(page).to_have_url(f"{desk.url}/tasks?status=waiting&q=no+such+task+at+all")
        await page.goto(f"{desk.url}/tasks?q=page+of+tasks")
        await expect(rows).to_have_text(["page of tasks 2", "page of tasks 1"])
        await page.get_by_role("button", name="Older").click()
        await expect(rows).to_have_text(["page of tasks 0"])
        await expect(page).to_have_url(f"{desk.url}/tasks?q=page+of+tasks&page=2")
        await page.get_by_role("button", name="Newer").click()
        await expect(rows).to_have_count(2)
        await page.goto(f"{desk.url}/tasks")
        await expect(rows).to_have_text(["pay Kim 931", "page of tasks 2"])
        await page.get_by_role("button", name="Older").click()
        await expect(rows).to_have_text(["page of tasks 1", "page of tasks 0"])
        await page.reload()  # its token is in the address
        await expect(rows).to_have_text(["page of tasks 1", "page of tasks 0"])
        await page.get_by_role("button", name="Newer").click()
        await expect(rows).to_have_text(["pay Kim 931", "page of tasks 2"])


DISCONNECT = "socket.io.reconnection(false); socket.io.engine.close()"
# Not `open()`: only an attempt to reconnect tells the server which message is the next one.
RECONNECT = "socket.io.reconnection(true); socket.io.skipReconnect = false; socket.io.reconnect()"


async def test_what_is_typed_stays_when_the_task_changes(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    task = await waiting(runner, "pay kim 1")
    async with person(browser, desk) as page:
        await page.goto(f"{desk.url}/tasks/{task}")
        await page.get_by_role("button", name="Feedback").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Message").fill("not before noon")
        send = dialog.get_by_role("button", name="Give feedback")
        resume = page.get_by_role("button", name="Resume", include_hidden=True)
        await page.evaluate(f"window.isFirst = true; {DISCONNECT}")
        await expect(page.get_by_text("Connection lost.")).to_be_visible()
        await runner.pause(task, "lunch", "bob")
        await page.evaluate(RECONNECT)
        await expect(page.get_by_text("Connection lost.")).to_be_hidden()
        await expect(page.get_by_text("Paused by bob")).to_be_attached()
        await expect(dialog.get_by_label("Message")).to_have_value("not before noon")
        assert await page.evaluate("window.isFirst")  # the page was not loaded again
        await send.click()
        await expect(page.get_by_text("Sent.")).to_be_visible()
        await page.evaluate(DISCONNECT)
        await expect(resume).to_be_disabled()
        await page.evaluate(RECONNECT)
        await expect(resume).to_be_enabled()
    [said] = [each for each in await runner.audit(task) if each.verb == "feedback"]
    assert said.actor == "ann"
    assert "not before noon" in str(said.wire())


async def test_a_section_that_is_slow_to_read_does_not_take_the_place_of_another(
    runner: AgentRunner, desk: Served, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await run_a_task(runner, "hello")
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


async def test_a_task_is_run_verified_downloaded_without_its_secrets_and_finalized(
    runner: AgentRunner, desk: Served, browser: Browser, tmp_path: Path
) -> None:
    task = await runner.create_task(f"hello, my key is {SECRET}")
    desk.people.token("ole", ["operator"])
    async with person(browser, desk, "ole") as page:
        await page.goto(f"{desk.url}/tasks/{task.task_id}")
        await page.get_by_role("button", name="One step").click()
        await expect(page.get_by_role("button", name="Finalize")).to_be_visible()
        await expect(page.get_by_text("Finalize closes it for good.")).to_be_visible()
        await expect(page.get_by_role("button", name="Pause")).to_have_count(0)
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
    assert "model_call" in [json.loads(line)["kind"] for line in text.splitlines()]
    assert SECRET not in text


async def test_each_role_has_the_buttons_of_its_verbs(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    task = await waiting(runner, "pay kim 1")
    reading = {"Verify", "Audit"}
    operating = {"Pause", "Feedback", "Undo last step", "Abandon"}
    for role, wanted in (("viewer", reading), ("operator", reading | operating)):
        desk.people.token(role, [role])
        async with person(browser, desk, role) as page:
            await page.goto(f"{desk.url}/tasks/{task}")
            await expect(page.get_by_role("button", name="Audit")).to_be_visible()
            labels = await page.locator("main button").all_inner_texts()
            found = {each.strip().split("\n")[-1] for each in labels}
            assert found & (reading | operating) == wanted
            await page.goto(f"{desk.url}/?q={task}")
            card = page.get_by_role("article")
            await expect(card).to_contain_text(f"needs the role approver, and {role} has the role")
            for verb in ("approve", "edit", "reject"):
                await expect(card.locator(f"[data-verb={verb}]")).to_be_disabled()
            await page.keyboard.press("r")
            await page.keyboard.press("x")
            await expect(page.get_by_role("dialog")).to_have_count(0)
            await page.goto(f"{desk.url}/tasks")
            await expect(page.get_by_role("list", name="Tasks")).to_be_visible()
            new = page.get_by_role("button", name="New task")
            await expect(new).to_have_count(1 if role == "operator" else 0)


async def test_open_pages_end_when_their_token_is_revoked_or_another_tab_signs_out(
    runner: AgentRunner, desk: Served, browser: Browser
) -> None:
    task = await waiting(runner, "pay kim 1")
    steps = f"{desk.url}/tasks/{task}?tab=steps"
    async with person(browser, desk, "eve") as page, person(browser, desk, "bo") as bos:
        for each in (page, bos):
            await each.goto(steps)
            await expect(each.get_by_role("list", name="Steps")).to_be_visible()
        desk.people.tokens.revoke("eve")
        await expect(page.get_by_label("Token")).to_be_visible()
        await expect(page.get_by_role("list", name="Steps")).to_have_count(0)
        await expect(bos.get_by_role("list", name="Steps")).to_be_visible()
        await page.get_by_label("Token").fill(desk.people.tokens.make("eve", ["viewer"]))
        await page.get_by_role("button", name="Sign in").click()
        await expect(page).to_have_url(steps)
        await expect(page.get_by_role("list", name="Steps")).to_be_visible()
        async with person(browser, desk, "eve") as other:
            await other.goto(f"{desk.url}/workers")
            await other.get_by_role("button", name="Account: eve").click()
            await expect(other.get_by_text("You may act as viewer.")).to_be_visible()
            await other.get_by_role("button", name="Sign out").click()
            await expect(page.get_by_label("Token")).to_be_visible()
            await expect(page.get_by_role("list", name="Steps")).to_have_count(0)


async def test_a_link_in_a_message_leads_to_its_card_of_a_mounted_desk_once_one_has_signed_in(
    runner: AgentRunner, browser: Browser
) -> None:
    task = await waiting(runner, "pay kim 1")
    other = FastAPI()
    async with serve_desk(runner, prefix="/in/here") as desk, serve_app(other) as url:
        card = f"{desk.url}/?card={task}%3A1"

        @other.get("/message")
        async def message() -> HTMLResponse:
            return HTMLResponse(f'<a href="{card}">decide</a>')

        mail = f"{url.replace('127.0.0.1', 'localhost')}/message"  # another site
        context = await browser.new_context()
        page = await context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        outside: list[str] = []
        page.on("request", lambda it: None if "/in/here" in it.url else outside.append(it.url))
        await page.goto(mail)
        await page.get_by_role("link").click()
        await page.get_by_label("Token").fill("hfd_wrong")
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("alert")).to_contain_text("not known")
        await page.get_by_label("Token").fill(desk.people.token("ann"))
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("article")).to_contain_text("I pay kim now.")
        await page.get_by_role("button", name="Account: ann").click()
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_label("Token")).to_be_visible()
        with suppress(Error):  # what may not be kept is in no cache
            await page.go_back()
        await page.reload()
        await expect(page.get_by_label("Token")).to_be_visible()
        await context.close()
    assert {*outside} == {mail}
