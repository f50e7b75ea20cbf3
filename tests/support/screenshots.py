"""Pictures of the desk: `python -m tests.support.screenshots` makes those of the documentation.

With `--all`, every page at two widths and in both themes goes to `.build/screenshots`.
"""

import asyncio
import random
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, cast
from unittest.mock import AsyncMock, patch

from openai import AsyncOpenAI
from playwright.async_api import Browser, async_playwright
from temporalio.runtime import Runtime, TelemetryConfig

from holdfast import Agent, AgentRunner, Task, tool
from holdfast.desk.pages.feed import Feed
from holdfast.desk.views.charts import Asked, Chart, charts_of, period_of
from holdfast.engine.dev_server.ephemeral import ephemeral_server
from holdfast.models.openai.responses import ResponsesModel
from holdfast.reading.streams.progress_view import Progress
from holdfast.task.data.calls import Approval
from holdfast.testing import FakeOpenAI, FakeRequest, Reply, calls, reply
from holdfast.values.steps import ListedTask
from holdfast.values.text.html import Rows
from tests.support.debian import CHROMIUM
from tests.support.desk import FLAGS, Served, person, serve_desk
from tests.support.rig import Rig, finish_a_task, make_engine, run_a_task, until_status

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "images"
ALL = ROOT / ".build" / "screenshots"


def scan_tool(pace: float = 1.0) -> Any:
    """Make the tool that reads receipts; `pace` stretches the time that it takes."""

    @tool(effect="read")
    async def read_receipt(number: int) -> str:
        """Read a scanned receipt.

        Args:
            number: Number of the receipt.
        """
        await asyncio.sleep(pace * (0.4 + 0.3 * number))
        return f"receipt {number}: {31 * number} euros, taxi, 3 March"

    return read_receipt


def unfile(effect: Any) -> str:
    """Take a receipt out of the file."""
    return "taken out"


@tool(undo=unfile)
async def file_claim(employee: str, euros: int, category: str) -> str:
    """File a claim.

    Args:
        employee: Who has paid.
        euros: The sum, in whole euros.
        category: What it was for.
    """
    await asyncio.sleep(0.3)
    return f"claim 4711 of {employee}: {euros} euros, {category}"


@tool(needs_approval=True)
async def pay_out(
    employee: str, euros: int, method: Literal["wire", "card"] = "wire", note: str = ""
) -> str:
    """Pay an expense out.

    Args:
        employee: Who gets the money.
        euros: The sum, in whole euros.
        method: How it is paid.
        note: What the statement says.
    """
    return f"{euros} euros by {method} to {employee}"


def answer(request: FakeRequest) -> Reply:
    """Answer as the expense assistant."""
    results = [each.text for each in request.messages if each.role == "tool"]
    wish = request.last_user
    if "policy" in wish:
        return reply("Taxi rides are paid when no bus runs, up to 60 euros a ride.")
    name = wish.split()[-1].rstrip(".")
    if not results:
        wanted = [("read_receipt", {"number": n}) for n in (1, 2, 3)]
        return calls(wanted, text="I read the three receipts first.")
    if len(results) == 3:
        claim = {"employee": name, "euros": 186, "category": "travel"}
        return calls([("file_claim", claim)], text="Together 186 euros. I file the claim.")
    if len(results) == 4:
        why = f"The claim of {name} is filed and within the policy, so I pay it out now."
        given = {"employee": name, "euros": 186, "note": "Taxi, 3 March"}
        return calls([("pay_out", given)], text=why)
    paid = f"**Paid**: {results[-1]}.\n\n"
    return reply(f"{paid}| claim | of | euros |\n|---|---|---|\n| 4711 | {name} | 186 |")


async def make_story(runner: AgentRunner) -> dict[str, str]:
    """Create the tasks that the pictures show; return their ids."""
    made: dict[str, str] = {}
    for name in ("Ann", "Kim", "Bo", "Eve"):
        task = await run_a_task(runner, f"Pay the taxi receipts of {name}.", task_id=name.lower())
        made[name] = task.task_id
    for name in ("Ann", "Bo"):
        [approval] = await runner.pending_approvals(made[name])
        await runner.approve(approval, "dana", note="receipts seen")
        await runner.run_task(made[name])
    await runner.undo_step(made["Bo"], by="dana", reason="wrong month")
    for _ in range(2):  # the payment cannot be undone, the claim can
        await runner.undo_step(made["Bo"], "keep", by="dana", reason="it was in April")
    steps = [entry.step for entry in await runner.ledger(made["Ann"]) if entry.step is not None]
    copy = await runner.fork(made["Ann"], steps[0].step.step_id, "What is the policy?", by="dana")
    await runner.run_task(copy)
    made["copy"] = copy.task_id
    for wish in ("What is our policy for taxis?", "And what is the policy at night?"):
        task = await finish_a_task(runner, wish, session="dana")
        made["talk"] = task.task_id
    await until_status(runner, made["Kim"], "waiting")
    weekly = "Tell me which claims are open."
    await runner.add_schedule("monday", weekly, every="Mon 09:00", time_zone="Europe/Vienna")
    return made


def a_day() -> list[Chart]:
    """Return the charts of a day at an office: no story of a minute has one."""
    chance, now = random.Random(4), time.time()
    tasks, waits, asked = list[Task](), list[Approval](), list[Asked]()
    for hour, often in enumerate((0, 1, 3, 6, 9, 8, 4, 6, 9, 7, 5, 2), start=8):
        for k in range(often):
            at = now - (20 - hour) * 3600 + chance.uniform(0, 3500)
            states = ["running", "waiting"] if hour > 17 else ["finished"] * 9 + ["failed"]
            status: Any = chance.choice(states)
            tasks.append(Task(task_id=f"{hour}-{k}", created=at, status=status))
            if status == "waiting":
                waits.append(Approval(id=f"{hour}-{k}:1", kind="tool", asked=at))
            for model, price in (("gpt-5", 4e-6), ("gpt-5-mini", 5e-7)):
                tokens, took = chance.randint(2_000, 9_000), chance.uniform(1, 3) + 1e5 * price
                asked.append(
                    Asked(at=at, model=model, took=took, tokens=tokens, dollars=tokens * price)
                )
    return charts_of(period_of("day", now), tasks, waits, asked)


def pages_of(made: dict[str, str]) -> dict[str, str]:
    """Return the pages: name and address."""
    ann, bo, kim = (f"/tasks/{made[name]}" for name in ("Ann", "Bo", "Kim"))
    return {
        "inbox": f"/?card={made['Kim']}:1",
        "tasks": "/tasks",
        "task": ann,
        "task_waiting": kim,
        "task_steps": f"{ann}?tab=steps&step=2",
        "task_effects": f"{bo}?tab=effects",
        "task_transcript": f"{ann}?tab=transcript",
        "task_branches": f"{bo}?tab=branches",
        "compare": f"/compare?left={made['Ann']}&right={made['copy']}",
        "sessions": "/sessions",
        "session": "/sessions?name=dana",
        "workers": "/workers",
        "charts": "/charts",
        "schedules": "/schedules",
        "rules": "/rules",
    }


PICTURES = {
    "inbox": ("light", 1280),
    "task": ("dark", 1280),
    "task_effects": ("light", 1280),
    "compare": ("light", 1280),
    "workers": ("light", 1280),
    "charts": ("light", 1280),
    "session": ("light", 1280),
    "schedules": ("light", 1280),
}
"""Pages of the documentation, with theme and width."""


async def take(  # noqa: PLR0917  what is taken, how, and where to
    browser: Browser, desk: Served, pages: dict[str, str], scheme: str, width: int, to: Path
) -> None:
    """Take pictures of pages."""
    to.mkdir(parents=True, exist_ok=True)
    async with person(browser, desk, "dana", width=width, scheme=scheme) as page:
        for name, path in pages.items():
            await page.goto(desk.url + path)
            await page.wait_for_timeout(1_500)
            file = to / f"{name}.png"
            await page.screenshot(path=file, full_page=True)
            sys.stdout.write(f"{file.relative_to(ROOT)} {file.stat().st_size // 1024} kB\n")


async def take_notebook(browser: Browser, runner: AgentRunner, made: dict[str, str]) -> None:
    """Take a picture of what a notebook shows of a task and of a list."""
    progress = Progress()
    async for event in runner.step_events(made["Ann"], until="answered"):
        progress(event)
    listed = cast("Rows[ListedTask]", await runner.list_tasks())
    shown = (progress._repr_html_(), listed._repr_html_())  # pyright: ignore[reportPrivateUsage]
    style = "<style>body {font: 14px sans-serif} td, th {padding: 3px 12px 3px 0}</style>"
    page = await browser.new_page(viewport={"width": 1000, "height": 300})
    await page.set_content(style + "<br>".join(shown))
    await page.screenshot(path=DOCS / "notebook.png", full_page=True)


async def main() -> None:
    """Take the pictures."""
    telling = Runtime(telemetry=TelemetryConfig(), worker_heartbeat_interval=timedelta(seconds=1))
    Runtime.set_default(telling, error_if_already_set=False)  # who serves is shown at once
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(await ephemeral_server())
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        rig = Rig(await make_engine(server.info, home))
        rig.app = "expenses"
        api = stack.enter_context(FakeOpenAI(answer))
        client = await stack.enter_async_context(
            AsyncOpenAI(base_url=api.base_url, api_key="sk-of-the-pictures")
        )
        model = ResponsesModel("gpt-5-mini", client=client)
        tools = [scan_tool(), file_claim, pay_out]
        await rig.serve(Agent(name="expenses", model=model, tools=tools))
        stack.push_async_callback(rig.stop)
        runner = rig.runner("expenses")
        made = await make_story(runner)
        pages = pages_of(made)
        unserved = AgentRunner(
            agent="travel", app="travel", client=runner.client, archive=runner.archive
        )
        await unserved.create_task("Book a train to Berne.", task_id="berne")
        stack.enter_context(patch.object(Feed, "charts", AsyncMock(return_value=a_day())))
        desk = await stack.enter_async_context(serve_desk(runner))
        playwright = await stack.enter_async_context(async_playwright())
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM.program(), env=CHROMIUM.environment(), args=[*FLAGS]
        )
        stack.push_async_callback(browser.close)
        if "--all" in sys.argv:
            for scheme in ("light", "dark"):
                for width in (1280, 400):
                    to = ALL / f"{scheme}-{width}"
                    await take(browser, desk, pages, scheme, width, to)
            return
        for name, (scheme, width) in PICTURES.items():
            await take(browser, desk, {name: pages[name]}, scheme, width, DOCS)
        await take_notebook(browser, runner, made)


if __name__ == "__main__":
    asyncio.run(main())
