"""Every port that Holdfast opens: whose it is, what it asks of who comes, and what nobody gets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import psutil
import pytest
from temporalio.client import Client

MARK = "HOLDFAST_TEST_PORTS"
SECRET = "the-words-of-the-task"
AGENTS = """
from holdfast import Agent
agents = Agent(name="calc", model="offline")
"""
LOCAL = f"""
import time
from holdfast import Agent
from holdfast.sync import AgentRunner
with AgentRunner.local(Agent(name="own", model="offline"), data_dir=None) as runner:
    runner.create_task("{SECRET}")
    print("up", flush=True)
    time.sleep(600)
"""
HOLDFAST = ("-m", "holdfast")
PROGRAMS = {
    "dev": (*HOLDFAST, "dev", "mine:agents"),
    "desk": (*HOLDFAST, "desk", "--port", "0"),
    "mcp": (*HOLDFAST, "mcp", "mine:agents", "--http", "--port", "0"),
    "worker": (*HOLDFAST, "worker", "mine:agents"),
    "local": ("-c", LOCAL),
}
UP = re.compile(r"address +\d|desk is at|agents are at|Serving|^up", re.MULTILINE)

SERVER = {"grpc": 4, "http api, closed": 1, "metrics": 1}
"""The embedded server. gRPC is open to every user of this machine, but no browser speaks it: the
frontend and three services that talk to each other."""

OPENED = {
    "dev": {**SERVER, "asks for a token": 1},
    "desk": {"asks for a token": 1},
    "mcp": {"asks for a token": 1},
    "worker": {},
    "local": SERVER,
}
"""Owner, rule and number of all ports. A new one fails the test until its rule is here."""

EVIL = {"host": "evil.example"}, {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
PATHS = (
    *("/", "/login", "/tasks", "/api/v1/tasks", "/api/v1/me", "/mcp", "/metrics"),
    *("/api/v1/namespaces/default/workflows", "/namespaces/default/workflows"),
)


@contextmanager
def started(name: str, home: Path) -> Generator[str]:
    """Run a program until the block ends; yield what it has printed when it is up."""
    hidden = ("TEMPORAL_", "HOLDFAST_", "OPENAI_")
    kept = {key: text for key, text in os.environ.items() if not key.startswith(hidden)}
    with subprocess.Popen(
        [sys.executable, *PROGRAMS[name]],
        cwd=home,
        env={**kept, MARK: name, "HOLDFAST_DATA_DIR": str(home / "data")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if UP.search(said):
                break
        else:
            pytest.fail(said)
        try:
            yield said
        finally:
            process.terminate()
            process.communicate(timeout=60)


def ports() -> list[tuple[str, str, int]]:
    """List what the programs' processes listen at, also those that have left their session."""
    found: list[tuple[str, str, int]] = []
    for process in psutil.process_iter():
        try:
            name = process.environ().get(MARK)
            listening = process.net_connections("inet") if name else []
        except (psutil.AccessDenied, psutil.NoSuchProcess):
            continue
        bound = [each.laddr for each in listening if each.status == psutil.CONN_LISTEN]
        found += [(name or "", at.ip, at.port) for at in bound]
    return found


def rule_of(port: int) -> str:
    """Try everything a web page or another user may send, and say what the port asks for."""
    statuses: dict[str, set[int]] = {}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) as client:
        for path in PATHS:
            for method, headers in [("GET", {}), *((m, e) for m in ("GET", "POST") for e in EVIL)]:
                sent = {**headers, "content-type": "text/plain"}
                try:
                    answered = client.request(method, path, headers=sent, content="{}")
                except httpx.TransportError:
                    if statuses:
                        raise
                    return "grpc"  # it speaks no HTTP/1
                assert SECRET not in answered.text
                is_written = method == "POST" and answered.is_success and path != "/metrics"
                assert not is_written, (path, answered)
                statuses.setdefault(path, set()).add(answered.status_code)
    served = {path for path, found in statuses.items() if found & {200, 201, 202, 204}}
    if served == {"/metrics"}:
        return "metrics"
    if served <= {"/login"} and 401 in statuses["/api/v1/me"] | statuses["/mcp"]:
        return "asks for a token"
    return "http api, closed" if not served and 403 in statuses[PATHS[-2]] else f"? {statuses}"


async def test_every_port_is_known_and_gives_nothing_to_web_pages_and_other_users(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine.py").write_text(AGENTS, encoding="utf-8")
    with ExitStack() as stack:
        said = {name: stack.enter_context(started(name, tmp_path)) for name in PROGRAMS}
        address = re.findall(r"address +(\S+)", said["dev"])[0]
        client = await Client.connect(address)  # as docs/security.md says: asked for nothing
        made = {"head": {"agent": "calc"}, "input": SECRET}
        await client.start_workflow("AgentTask", made, id=SECRET, task_queue="hf:calc")
        found = ports()
        assert {ip for _, ip, _ in found} == {"127.0.0.1"}
        rules = {name: Counter[str]() for name in PROGRAMS}
        with ThreadPoolExecutor(len(found)) as pool:
            for (name, _, _), rule in zip(
                found, pool.map(rule_of, [p for *_, p in found]), strict=True
            ):
                rules[name][rule] += 1
    assert rules == OPENED
