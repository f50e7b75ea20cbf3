"""Measure the desk's pages in a real browser.

    python -m benchmarks.desk --approvals 2000 --tasks 10000

What is measured, and how:
* inbox, tasks: from the request of the page to the browser's first contentful paint, and to the
  first row on the screen, with so many approvals and tasks. Median of `--rounds`.
* decision: from the key to the moment at which the card is gone.
* token: a model tells tokens, each the time at which it was told; its age when it is on the screen.
* page_mb: by how much the process that serves has grown for each of `--pages` pages left open, half
  of them the inbox and half the list of tasks.

Prints one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from playwright.async_api import BrowserContext, Page, async_playwright, expect
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest

from benchmarks.shared import percentile
from benchmarks.streaming import Clock, answer
from holdfast import Agent, AgentRunner, Message, ToolCall, tool
from holdfast.models import ModelAnswer, ModelRequest
from holdfast.values.checks.ids import queue_of
from tests.support.debian import CHROMIUM
from tests.support.desk import FLAGS, serve_desk
from tests.support.rig import until

AT_ONCE = 20
"""Approvals of a task."""

WATCH = """() => {
    window.ages = [];
    let seen = 0;
    setInterval(() => {
        const told = document.querySelector('[data-answer]')?.innerText.trim().split(/\\s+/) ?? [];
        const now = Date.now() / 1000;
        for (; seen < told.length - 1; seen++) window.ages.push(now - Number(told[seen]));
    }, 5);
}"""
"""Notes the age of each token, once the next one is there: it is whole then."""


class Asker:
    """Wants a tool many times at once, then ends."""

    name = "asker"

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Answer with calls."""
        if any(message.role == "tool" for message in request.messages):
            return answer(Message(role="assistant", content="done"))
        made = [
            ToolCall(id=f"call_{k}", name="send", arguments=json.dumps({"to": f"person {k}"}))
            for k in range(AT_ONCE)
        ]
        return answer(Message(role="assistant", content="I send them all.", calls=tuple(made)))


@tool(effect="read", needs_approval=True)
def send(to: str) -> str:
    """Send."""
    return f"sent to {to}"


async def fill(runner: AgentRunner, approvals: int, tasks: int) -> None:
    """Create the tasks; wait until all approvals are listed, and nothing waits for a worker.

    Else the figures would be those of a worker process that catches up with the new tasks, among
    which a task that is created now waits for its turn.
    """
    for first in range(0, tasks, 50):
        names = range(first, min(first + 50, tasks))
        await asyncio.gather(*(runner.create_task(f"task {k}", agent="clock") for k in names))
    for _ in range(-(-approvals // AT_ONCE)):
        await runner.create_task("send", agent="asker", step_mode="automatic")

    async def listed() -> bool:
        return len(await runner.pending_approvals()) >= approvals

    async def caught_up() -> bool:
        return not sum([await backlog(runner, name) for name in ("clock", "asker")])

    await until(listed, seconds=600, every=0.5)
    await until(caught_up, seconds=900, every=1.0)


async def backlog(runner: AgentRunner, agent: str) -> int:
    """Return how many workflow tasks of an agent's tasks wait for a worker process."""
    asked = DescribeTaskQueueRequest(
        namespace=runner.client.namespace,
        task_queue=TaskQueue(name=queue_of(runner.app, agent)),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        report_stats=True,
    )
    found = await runner.client.workflow_service.describe_task_queue(asked)
    return found.stats.approximate_backlog_count


async def paint(browser: BrowserContext, url: str, row: str, rounds: int) -> tuple[float, float]:
    """Return how long a page takes to its first paint and to its first row, in ms."""
    paints: list[float] = []
    rows: list[float] = []
    for _ in range(rounds):
        page = await browser.new_page()
        began = time.perf_counter()
        await page.goto(url, wait_until="commit")
        await page.wait_for_selector(row)
        rows.append(1000 * (time.perf_counter() - began))
        script = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
        paints.append(float(await page.evaluate(script)))
        await page.close()
    return statistics.median(paints), statistics.median(rows)


async def decisions(page: Page, url: str, rounds: int) -> list[float]:
    """Return how long each card took to go after its key, in ms."""
    await page.goto(url)
    found: list[float] = []
    for _ in range(rounds):
        await expect(page.get_by_role("article")).to_contain_text("Why the agent asks")
        shown = await page.locator("article [data-approval]").inner_text()
        began = time.perf_counter()
        await page.keyboard.press("a")
        gone = "id => document.querySelector('article [data-approval]')?.innerText !== id"
        await page.wait_for_function(gone, arg=shown)
        found.append(1000 * (time.perf_counter() - began))
    return sorted(found)


async def tokens(page: Page, url: str, runner: AgentRunner) -> list[float]:
    """Return how old each token was when it was on the screen, in ms."""
    task = await runner.create_task("tell me", agent="clock", streams=True)
    await page.goto(f"{url}/tasks/{task.task_id}")
    await expect(page.get_by_text("Nothing has run yet.")).to_be_visible(timeout=60_000)
    await page.evaluate(WATCH)
    await runner.run_task(task)
    return sorted(1000 * float(age) for age in await page.evaluate("window.ages"))


async def memory(browser: BrowserContext, url: str, pages: int) -> float:
    """Return by how much this process grows for an open page, in MB."""
    process = psutil.Process()
    before = process.memory_info().rss
    for k in range(pages):
        page = await browser.new_page()
        await page.goto(url + ("/tasks" if k % 2 else "/"))
        await page.wait_for_selector("li")
    return (process.memory_info().rss - before) / pages / 2**20


async def main(given: argparse.Namespace) -> None:
    """Measure everything once."""
    clock = Agent(name="clock", model=Clock(given.tokens, given.token_ms / 1000))
    asker = Agent(name="asker", model=Asker(), tools=[send])
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        async with (
            AgentRunner.local(clock, asker, data_dir=Path(directory)) as runner,
            serve_desk(runner) as desk,
            async_playwright() as playwright,
        ):
            await fill(runner, given.approvals, given.tasks)
            chrome = await playwright.chromium.launch(
                executable_path=CHROMIUM.program(), env=CHROMIUM.environment(), args=[*FLAGS]
            )
            url = desk.url
            browser = await chrome.new_context()
            await browser.add_cookies(desk.cookies("ann"))
            await paint(browser, f"{url}/workers", "section", 1)  # what is read once
            for name, path in (("inbox", "/"), ("tasks", "/tasks")):
                first, row = await paint(browser, url + path, "li", given.rounds)
                figures |= {f"{name}_paint_ms": round(first), f"{name}_row_ms": round(row)}
            page = await browser.new_page()
            gone = await decisions(page, url, given.decisions)
            figures["decision_ms_median"] = round(statistics.median(gone))
            figures["decision_ms_p95"] = round(percentile(gone, 0.95))
            told = await tokens(page, url, runner)
            figures["token_ms_median"] = round(statistics.median(told))
            figures["token_ms_p95"] = round(percentile(told, 0.95))
            await page.close()
            figures["page_mb"] = round(await memory(browser, url, given.pages), 2)
            await chrome.close()
    line = {
        "bench": "desk",
        "python": ".".join(map(str, sys.version_info[:3])),
        "cpus": os.cpu_count(),
        "loadavg_at_end": round(os.getloadavg()[0], 2),
        "approvals": given.approvals,
        "tasks": given.tasks,
        **figures,
    }
    print(json.dumps(line, separators=(",", ":")), flush=True)


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--approvals", type=int, default=2_000, help="approvals that wait")
    parser.add_argument("--tasks", type=int, default=10_000, help="tasks beside theirs")
    parser.add_argument("--rounds", type=int, default=5, help="how often a page is opened")
    parser.add_argument("--decisions", type=int, default=20, help="approvals that are decided")
    parser.add_argument("--tokens", type=int, default=200, help="tokens of the answer")
    parser.add_argument("--token-ms", type=float, default=20, help="time between two tokens")
    parser.add_argument("--pages", type=int, default=20, help="pages that are left open")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(read_arguments()))
