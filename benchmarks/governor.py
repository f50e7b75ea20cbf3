"""Measure how worker processes keep the limits of a model provider together.

    python -m benchmarks.governor --rate 5 --workers 3 --tasks 50
    python -m benchmarks.governor --late 5 --tasks 0     # the late tenant alone
    python -m benchmarks.governor --kill                 # a worker process is killed meanwhile

A provider takes `rate` requests a second, saves up a second of them, and refuses all others with
429. Each task makes three model calls. A second tenant comes with some tasks while those of the
first are running. Prints a line of JSON:
* refused: part of the requests that were refused.
* used: part of the rate that was used, from the first request on while tasks wait.
* late_p95: seconds that tasks of the late tenant took, and `late` all of them.
* lost: with `--kill`, the seconds of the killed worker's share that nobody used.
* counted: tokens that the governor knows of, over those of the provider.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from benchmarks.paced import server
from benchmarks.report import ROOT
from holdfast import Agent, AgentRunner, tool
from holdfast.errors import NoWorkerError
from holdfast.models import ChatCompletionsModel
from holdfast.serving.governor.shares import Shares
from holdfast.serving.governor.workflow import QUEUE

PROVIDER = "openai"
TOKENS = 110
SECONDS = 0.1
"""How long an answer takes."""


@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


agent = Agent(
    name="governed",
    model=ChatCompletionsModel("m", base_url=os.environ.get("HOLDFAST_FAKE"), api_key="k"),
    tools=[look],
)


@dataclass
class Limited:
    """A provider with a limit.

    Attributes:
        rate: Requests a second; as many are saved up.
        log: When each request came, and whether it was answered.
    """

    rate: float
    log: list[tuple[float, bool]] = field(default_factory=list[tuple[float, bool]])
    left: float = 0.0
    at: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def takes(self) -> bool:
        """Count a request; return whether it is answered."""
        with self.lock:
            now = time.monotonic()
            self.left = min(self.rate, self.left + (now - self.at) * self.rate)
            self.at, is_taken = now, self.left >= 1
            self.left -= is_taken
            self.log.append((now, is_taken))
            return is_taken


def handler(limited: Limited) -> type[BaseHTTPRequestHandler]:
    """Return what answers requests to the provider."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *_: Any) -> None:  # noqa: A002  the library's name
            """Log nothing."""

        def do_GET(self) -> None:
            """Give the log, and begin a new one."""
            log, limited.log = limited.log, []
            self._send(200, log)

        def do_POST(self) -> None:
            """Answer a request, or refuse it."""
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            is_taken = limited.takes()
            body: dict[str, Any] = {"error": {"message": "slow down", "type": "requests"}}
            if is_taken:
                time.sleep(SECONDS)
                body = answer(sum(each["role"] == "tool" for each in asked["messages"]))
            self._send(200 if is_taken else 429, body)

        def _send(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            if status != 200:
                self.send_header("retry-after", "1")
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler


def answer(done: int) -> dict[str, Any]:
    """Return an answer: two turns call a tool, the third is the last."""
    call = {"id": f"c{done}", "type": "function"}
    call |= {"function": {"name": "look", "arguments": "{}"}}  # type: ignore[dict-item]
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    message = said if done < 2 else {"role": "assistant", "content": "done"}
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": TOKENS - 10, "completion_tokens": 10, "total_tokens": TOKENS},
    }


class Provider(ThreadingHTTPServer):
    """The provider's server."""

    daemon_threads = True
    request_queue_size = 256


def serve(rate: float) -> None:
    """Be the provider, in a process of its own."""
    provider = Provider(("127.0.0.1", 0), handler(Limited(rate, left=rate)))
    print(provider.server_port, flush=True)
    provider.serve_forever()


@asynccontextmanager
async def serving(rate: float) -> AsyncGenerator[str]:
    """Run the provider; yield its address."""
    command = [sys.executable, "-m", "benchmarks.governor", "--serve", "--rate", str(rate)]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}/v1"
    finally:
        process.terminate()
        await process.wait()


def logged(url: str) -> list[tuple[float, bool]]:
    """Return what the provider has seen since the last look."""
    with urlopen(url) as page:  # noqa: S310  a server of ours
        return [(when, is_taken) for when, is_taken in json.load(page)]


@asynccontextmanager
async def workers(
    number: int, address: str, home: Path, url: str, limit: str
) -> AsyncGenerator[list[asyncio.subprocess.Process]]:
    """Run worker processes with this file of limits; none without."""
    environment = {
        **os.environ,
        "TEMPORAL_ADDRESS": address,
        "HOLDFAST_ARCHIVE": str(home / "archive"),
        "HOLDFAST_FAKE": url,
        "HOLDFAST_PROVIDERS": limit,
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
    }
    command = [sys.executable, "-m", "holdfast", "worker", "benchmarks.governor:agent"]
    async with AsyncExitStack() as stack:
        made: list[asyncio.subprocess.Process] = []
        for _ in range(number):
            process = await asyncio.create_subprocess_exec(
                *command, "--address", address, cwd=ROOT, env=environment
            )
            stack.push_async_callback(process.wait)
            stack.callback(_terminate, process)
            made.append(process)
        yield made


def _terminate(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()


async def begun(runner: AgentRunner) -> None:
    """Wait until the worker processes are up, and at rest."""
    await runner.create_task("first go", task_id="first")
    async with asyncio.timeout(120):
        while True:
            with suppress(NoWorkerError):
                await runner.run_task("first")
                break
    await asyncio.sleep(12)


async def ended(runner: AgentRunner, name: str, tenant: str) -> float:
    """Run a task; return the seconds that it took."""
    begun = time.monotonic()
    task = await runner.create_task(f"{name} go", task_id=name, tenant=tenant)
    await runner.run_task(task)
    return time.monotonic() - begun


async def measured(given: argparse.Namespace) -> dict[str, Any]:
    """Run all tasks once, and return what was measured."""
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        limits = home / "providers.toml"
        limits.write_text(f"[{PROVIDER}]\nrequests_per_minute = {given.rate * 60}\n", "utf-8")
        limit = "" if given.ungoverned else str(limits)
        async with (
            serving(given.rate) as url,
            server(directory) as made,
            workers(given.workers, made.address, home, url, limit) as processes,
            await AgentRunner.connect(
                made.address, agent="governed", archive=str(home / "archive")
            ) as runner,
        ):
            await begun(runner)
            logged(url)
            before, killed = sum(made.actions().values()), 0.0
            early = [asyncio.create_task(ended(runner, f"a{n}", "a")) for n in range(given.tasks)]
            if given.tasks:
                await asyncio.sleep(given.delay)
            late = [asyncio.create_task(ended(runner, f"b{n}", "b")) for n in range(given.late)]
            if given.kill:
                killed = time.monotonic()
                processes[0].send_signal(signal.SIGKILL)
            times = await asyncio.gather(*late)
            await asyncio.gather(*early)
            actions = sum(made.actions().values()) - before
            log = logged(url)
            row = rows(log, times, given, killed) | {"actions": actions}
            if not given.ungoverned:
                await asyncio.sleep(8)  # the last leases end, and workers tell what was used
                handle = runner.client.get_workflow_handle(f"{QUEUE}.{PROVIDER}")
                known = await handle.query("shares", result_type=Shares)
                answered = 3 + sum(is_taken for _, is_taken in log)
                row["asks"] = known.asks
                row["counted"] = round(known.tokens / (answered * TOKENS), 3)
    return row


def rows(
    log: Sequence[tuple[float, bool]], late: Sequence[float], given: argparse.Namespace, at: float
) -> dict[str, Any]:
    """Return what the provider has seen."""
    taken = [when for when, is_taken in log if is_taken]
    # Towards the end there are fewer tasks than the rate has room for.
    busy = taken[: -2 * given.workers] if len(taken) > 4 * given.workers else taken
    seconds = busy[-1] - busy[0]
    row: dict[str, Any] = {
        "requests": len(log),
        "refused": round(1 - len(taken) / len(log), 4),
        "seconds": round(taken[-1] - taken[0], 1),
        "used": round((len(busy) - 1) / (seconds * given.rate), 3),
        "refused_at": [round(when - taken[0], 1) for when, is_taken in log if not is_taken],
        "late_p95": round(sorted(late)[int(0.95 * (len(late) - 1) + 0.5)], 2) if late else None,
        "late": [round(each, 2) for each in sorted(late)],
    }
    if at:
        within = [when for when in taken if at <= when <= at + 15]
        row["lost"] = round((15 * given.rate - len(within)) / (given.rate / given.workers), 2)
    return row


async def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rate", type=float, default=5.0, help="requests a second")
    parser.add_argument("--workers", type=int, default=3, help="worker processes")
    parser.add_argument("--tasks", type=int, default=50, help="tasks of the first tenant")
    parser.add_argument("--late", type=int, default=5, help="tasks of the late tenant")
    parser.add_argument("--delay", type=float, default=10.0, help="when they come, in seconds")
    parser.add_argument("--kill", action="store_true", help="kill a worker process then")
    parser.add_argument("--ungoverned", action="store_true", help="leave the limits out")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.rate)
    print(json.dumps(await measured(given)))


if __name__ == "__main__":
    asyncio.run(main())
