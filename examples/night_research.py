"""A research assistant works every night of a month, while its worker is killed at random; offline.

pip install ".[local,testing]"
python examples/night_research.py 3      three nights; `make month` runs all thirty

Each night is a task of a schedule. The nights are over, so a backfill begins them one after the
other, and a month takes minutes. They share a conversation, which is folded when it is too long for
the model. The papers are read by a model at half the price, in batches. Ann is asked twice.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from holdfast import Agent, AgentRunner, ToolContext, tool, wait_for_event
from holdfast.errors import CommandRefusedError, EngineError
from holdfast.serving.batches import BatchModel
from holdfast.testing import FakeOpenAI, FakeRequest, Reply, call, calls
from holdfast.workers import FoldingAgentWorker

FIRST = datetime(2025, 6, 1, 2, tzinfo=UTC)
MONTH = 30
PRICES = {
    "gpt-5": {"input": "1.25", "output": "10"},
    "gpt-5-mini": {"input": "0.25", "output": "2"},
}
ABSTRACT = "Tides were measured at nine harbours, each hour, with gauges of three kinds. " * 11


# The agents, which the worker process serves.


@tool(effect="read")
def search(ctx: ToolContext) -> str:
    """Find the papers that came out on this day."""
    day = datetime.fromisoformat(ctx.task_id.partition("-")[2])
    number = (day - FIRST).days + 1
    titles = [f"Tides {number}a", f"Tides {number}b"]
    found = [f"{title}: {ABSTRACT}" for title in titles]
    if number == 2:
        found.append("Only to buy, for 30 euros: The Atlas of Tides.")
    if number == 3:
        found.append("The gauges' own data will be released: event data.released.")
    return "\n".join([f"Papers of {day:%Y-%m-%d}: {', '.join(titles)}.", *found])


@tool(idempotent=True, needs_approval=True)
def buy(title: str, euros: int) -> str:
    """Buy a book."""
    return f"{title} was bought for {euros} euros"


@tool(effect="read")
async def write(ctx: ToolContext, name: str, text: str) -> str:
    """Write a file."""
    return await ctx.artifacts.aput(name, text)


@tool(idempotent=True, needs_approval=True)
def publish(reference: str) -> str:
    """Publish a report."""
    return f"{reference} is published"


reader = Agent(
    name="reader",
    instructions="Say in one sentence what the paper found.",
    model=BatchModel("gpt-5-mini", age="1 s", look="1 s"),  # with a real API without the times
)
researcher = Agent(
    name="researcher",
    instructions="Follow what is new about tides. Read each paper. Write a note each night.",
    model="gpt-5",
    worker=FoldingAgentWorker(window=3_500),
    tools=[search, reader.as_tool("read", "Read a paper."), buy, write, wait_for_event, publish],
)


# In place of the models: what answers at the fake of the provider's API.

MEMORY = "You keep the memory of an agent"
"""Begins the instructions of the call that folds a conversation."""


def think(request: FakeRequest) -> Reply | str | None:
    """Answer as the model of one of the agents does."""
    if request.instructions == reader.instructions:
        return f"{request.last_user}: the tide comes twice a day."
    nights = sorted({*re.findall(r"Night of \S+ read: .+?\.", request.text)})
    if MEMORY in request.instructions:
        return "\n".join(nights)
    return next_call(request, nights)


def next_call(request: FakeRequest, nights: Sequence[str]) -> Reply | str:
    """Do the next thing of this night."""
    begun = max(k for k, each in enumerate(request.messages) if each.text.startswith("Night shift"))
    told = [each.text for each in request.messages[begun:] if each.role == "tool"]
    if not told:
        return call("search")
    day, listed = re.findall(r"Papers of (\S+): (.+)\.", told[0])[0]
    papers = listed.split(", ")
    work = [calls([("read", {"input": each}) for each in papers])]
    if "to buy" in told[0]:
        work.append(call("buy", {"title": "The Atlas of Tides", "euros": 30}))
    if "data.released" in told[0]:
        work.append(call("wait_for_event", {"name": "data.released", "timeout": "30 d"}))
    read = f"Night of {day} read: {', '.join(papers)}."
    work.append(call("write", {"name": "note.md", "text": read}))
    if request.messages[begun].text.endswith(f"until {day}."):
        report = "\n".join(["# Tides", *sorted({*nights, read})])
        work.append(call("write", {"name": "report.md", "text": report}))
        work.append(call("publish", {"reference": told[-1]}))
    done = max(0, len(told) - len(papers))  # two papers are read by one answer
    return work[done] if done < len(work) else read


# The month.


class Worker:
    """The worker process, which is killed and started again."""

    def __init__(self, directory: Path, api: FakeOpenAI) -> None:
        prices = directory / "prices.json"
        prices.write_text(json.dumps(PRICES))
        self._log = (directory / "worker.log").open("ab")
        self._command = [sys.executable, "-m", "holdfast", "worker", "night_research:researcher"]
        self._command += ["--data-dir", str(directory), "--json"]
        more = {"OPENAI_BASE_URL": api.base_url, "OPENAI_API_KEY": "any"}
        self._environment = os.environ | more | {"HOLDFAST_PRICES": str(prices)}
        self.kills = 0
        self.start()

    def start(self) -> None:
        """Start it, and return once it serves."""
        self.process = subprocess.Popen(
            self._command,
            cwd=Path(__file__).parent,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        if self.process.stdout is None or not self.process.stdout.readline():
            raise RuntimeError(f"The worker did not start: see {self._log.name}")

    async def die_at_random(self, over: asyncio.Event) -> None:
        """Be killed again and again, in the middle of whatever it does."""
        while not over.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), random.uniform(5, 20))
                break
            self.process.kill()
            self.process.wait()
            self.kills += 1
            await asyncio.to_thread(self.start)


async def be_ann(runner: AgentRunner, nights: Sequence[str]) -> None:
    """Until the last night is over, approve what Ann is asked, and release the data."""
    asked, open_nights = set[str](), {*nights}
    while open_nights:
        # No server or worker answers just now, or the answer to a decision was lost: ask again.
        with suppress(EngineError, CommandRefusedError):
            for approval in await runner.pending_approvals():
                if approval.id not in asked:
                    print(f"Ann is asked: {approval.tool} {approval.arguments}")
                    await runner.approve(approval, by="ann")
                    asked.add(approval.id)
            for task in await runner.list_tasks("running", "researcher"):
                if "data.released" in (await runner.get_task(task)).waits:
                    print(f"{task.task_id} waits for the data, which are released now")
                    await runner.send_event("data.released", {"harbours": 9}, id="release-1")
            ended = {each.task_id for each in await runner.list_tasks("finished", limit=100)}
            for each in sorted(open_nights & ended):
                print(each, "is over")
            open_nights -= ended
        await asyncio.sleep(1)


async def tell(runner: AgentRunner, nights: Sequence[str], requests: list[FakeRequest]) -> None:
    """Print the report, the audit and the bill."""
    report = (await runner.read_artifact(nights[-1], "report.md")).decode()
    print(report)
    days = [night.removeprefix("night-").partition("T")[0] for night in nights]
    if forgotten := [day for day in days if f"Night of {day} read" not in report]:
        raise RuntimeError(f"The memory has lost nights: {', '.join(forgotten)}")
    events = [each for night in nights for each in await runner.audit(night)]
    broken = [night for night in nights if await runner.verify(night)]
    print(f"Audit: {len(events)} events; records that are not intact: {len(broken)}")
    for each in events:
        if each.kind == "command":
            print(f"  {each.actor} decided: {each.verb} {each.tool}")
    spent = await runner.session("tides").usage()
    batched = sum(each.path == "/v1/batches" for each in requests)
    print(f"Bill: {spent.requests} model calls, {spent.cost_shown}; {batched} at half the price")
    folds = sum(MEMORY in each.instructions for each in requests)
    print(f"The conversation was folded {folds} times.")
    read = Counter(each.last_user for each in requests if each.model == "gpt-5-mini")
    print(f"Papers: {len(read)}, read twice: {sum(count > 1 for count in read.values())}")


async def main(count: int) -> None:
    """Run the nights, and tell what has come of them."""
    times = [FIRST + timedelta(days=k) for k in range(count)]
    nights = [f"night-{each:%Y-%m-%dT%H:%M:%SZ}" for each in times]
    text = f"Night shift, until {times[-1]:%Y-%m-%d}."
    with tempfile.TemporaryDirectory() as place, FakeOpenAI(think) as api:
        worker, over = Worker(Path(place), api), asyncio.Event()
        killing = asyncio.create_task(worker.die_at_random(over))
        try:
            runner = await AgentRunner.connect(agent="researcher", data_dir=place, heartbeat=3)
            await runner.add_schedule("night", text, every="day 02:00", session="tides")
            await runner.backfill_schedule("night", FIRST, times[-1])
            await be_ann(runner, nights)
            over.set()
            await killing
            await tell(runner, nights, api.requests)
            print(f"The worker was killed {worker.kills} times.")
        finally:
            over.set()
            await killing
            worker.process.terminate()
            worker.process.wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else MONTH))
