"""Another user of the machine, as a program: what it gets at doors and of files.

It reads what to try from stdin as JSON, and prints what it got. Root becomes a user that owns
nothing. Anybody else stays who they are: doors ask both for the same, and files are judged by
their modes.
"""

import asyncio
import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from temporalio.client import Client

from tests.support import forked

NOBODY = 65_534
SECRET = "the-words-of-the-task"
EVIL = {"host": "evil.example"}, {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
PATHS = (
    *(
        "/",
        "/login",
        "/tasks",
        "/api/v1/tasks",
        "/api/v1/me",
        "/mcp",
        "/metrics",
        "/decode",
        "/ready",
    ),
    *("/api/v1/namespaces/default/workflows", "/namespaces/default/workflows"),
)


def stranger_gets(
    doors: Mapping[str, str] | None = None, files: Iterable[Path] = (), address: str = ""
) -> Any:
    """Let another user of this machine try; return what they get.

    Args:
        doors: By a name, `http://127.0.0.1:PORT` or the path of a proxy's socket: `rules` says of
            each what it asks for.
        files: Files and directories: `reached` has those that they can read, write or connect to.
        address: Where a Temporal server is: `read` has what they read there of a task of theirs.
    """
    asked = {"doors": {**(doors or {})}, "files": [*map(str, files)], "address": address}
    done = subprocess.run(
        forked.command("-m", "tests.support.stranger"),
        input=json.dumps(asked),
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def _rule(door: str) -> str:
    """Try everything a web page or another user may send, and say what the door asks for."""
    at = door if door.startswith("http") else "http://127.0.0.1"
    # A connection for each request: a server may close an idle one while the next request comes.
    each = httpx.Limits(max_keepalive_connections=0)
    transport = httpx.HTTPTransport(uds=None if at == door else door, limits=each)
    statuses: dict[str, set[int]] = {}
    with httpx.Client(base_url=at, transport=transport, timeout=30) as client:
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
    if served in ({"/metrics"}, {"/ready"}):
        return {"/metrics": "metrics", "/ready": "health"}[served.pop()]
    asks = statuses["/api/v1/me"] | statuses["/mcp"] | statuses["/decode"]
    if served <= {"/login"} and 401 in asks:
        return "asks for a token"
    if {status for found in statuses.values() for status in found} == {502}:
        return "grpc"  # so a proxy says it
    return "http api, closed" if not served and 403 in statuses[PATHS[-2]] else f"? {statuses}"


def _is_reached(file: str) -> bool:
    if os.geteuid() != NOBODY:
        return all(each.stat().st_mode & 0o007 for each in (Path(file), *Path(file).parents))
    return any(os.access(file, mode) for mode in (os.R_OK, os.W_OK))


async def _read(address: str) -> str:
    client = await Client.connect(address)
    made = {"head": {"agent": "calc"}, "input": SECRET}
    task = await client.start_workflow("AgentTask", made, id=SECRET, task_queue="hf:calc")
    return str((await task.fetch_history()).events[0])


def _be() -> None:
    """Be another user, and print what they get."""
    asked = json.load(open(0))  # noqa: SIM115
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    read = asyncio.run(_read(asked["address"])) if asked["address"] else ""
    with ThreadPoolExecutor(20) as pool:
        rules = dict(zip(asked["doors"], pool.map(_rule, asked["doors"].values()), strict=True))
    reached = [each for each in asked["files"] if _is_reached(each)]
    print(json.dumps({"read": read, "rules": rules, "reached": reached}))  # noqa: T201


if __name__ == "__main__":
    _be()
