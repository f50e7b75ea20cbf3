"""Every port that Holdfast opens: whose it is, what it asks of who comes, and what nobody gets."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest
from fastapi import FastAPI
from fastapi.responses import HTMLResponse
from playwright.async_api import Browser
from temporalio.client import Client

from holdfast.desk import Tokens
from holdfast.engine.dev_server.process import free_port
from tests.support import forked
from tests.support.debian import NGINX
from tests.support.desk import serve_app
from tests.support.master_keys import LINE
from tests.support.stranger import SECRET, stranger_gets

MARK = "HOLDFAST_TEST_PORTS"
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
    "metrics": (*HOLDFAST, "metrics"),
    "local": ("-c", LOCAL),
    "codec": (*HOLDFAST, "codec", "serve", "--port", "0"),
}
UP = re.compile(r"address +\d|(desk|codec) is at|Bearer|Serving|Counting|^up", re.MULTILINE)

SERVER = {"grpc": 4, "http api, closed": 1, "metrics": 1}
"""The embedded server. gRPC is open to every user of this machine, but no browser speaks it: the
frontend and three services that talk to each other. It cannot be told to open no metrics."""

OPENED = {
    "dev": {**SERVER, "asks for a token": 1},
    "desk": {"asks for a token": 1},
    "mcp": {"asks for a token": 1},
    "worker": {},
    "metrics": {"metrics": 1, "health": 1},
    "local": SERVER,
    "codec": {"asks for a token": 1},
}
"""Owner, rule and number of all ports. A new one fails the test until its rule is here."""

START = {"head": {"agent": "calc", "asker": "x"}, "automatic": True, "input": "2"}
EVIL_PAGE = Path(__file__).parents[1] / "support" / "evil_page.js"
"""What a page of another site tries at all ports; it returns what it has read."""

PROXY = """
daemon off; master_process off; pid {home}/nginx.pid;
events {{}}
http {{
    access_log off; client_body_temp_path {home}/body; proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi; uwsgi_temp_path {home}/uwsgi; scgi_temp_path {home}/scgi;
    {servers}
}}
"""
BARE = (
    "server {{ listen unix:{home}/{port}; location / {{ proxy_pass http://127.0.0.1:{port}; }} }}"
)
TOLD = """
    server {{ listen unix:{home}/told-{port}; location / {{
        proxy_pass http://127.0.0.1:{port}; proxy_set_header Host $http_host;
        proxy_set_header X-Forwarded-For 192.0.2.7; proxy_set_header X-Forwarded-Proto https;
    }} }}
"""
"""A proxy that says nothing of who comes, and one that does."""


@dataclass(frozen=True)
class World:
    """The programs, of which the desk alone has tokens, behind a proxy.

    Attributes:
        home: Where they run; other users can enter it.
        said: What each has printed.
        ports: Owner, address and number of each port.
        proxy: The directory of the proxy's sockets.
        token: Of anna, an operator of the desk.
    """

    home: Path
    said: dict[str, str]
    ports: list[tuple[str, str, int]]
    proxy: Path
    token: str

    def url(self, name: str) -> str:
        """Return where a program is, with the local user's token."""
        return str(re.findall(r"http://\S+", self.said[name])[0])

    def behind(self, name: str, how: str = "") -> httpx.Client:
        """Return a client of a program, through the proxy."""
        port = re.findall(r":(\d+)", self.url(name))[0]
        transport = httpx.HTTPTransport(uds=str(self.proxy / f"{how}{port}"))
        return httpx.Client(base_url="http://desk.example", transport=transport, timeout=60)


@contextmanager
def started(name: str, home: Path) -> Generator[str]:
    """Run a program until the block ends; yield what it has printed when it is up."""
    hidden = ("TEMPORAL_", "HOLDFAST_", "OPENAI_")
    kept = {key: text for key, text in os.environ.items() if not key.startswith(hidden)}
    own = {MARK: str(home / name), "HOLDFAST_DATA_DIR": str(home / "data")}
    if name in {"desk", "codec"}:
        own["HOLDFAST_DESK_TOKENS"] = str(home / "desk-tokens.json")
    if name == "codec":  # the last: from then on the archive asks for its keys
        own["HOLDFAST_KEYS"] = f"command:{sys.executable} -c 'print(\"{LINE}\")'"
    if name == "metrics":
        own |= {"HOLDFAST_METRICS": f"127.0.0.1:{free_port()}", "HOLDFAST_HEALTH": "127.0.0.1:0"}
    (home / name).mkdir()
    (home / name / "mine.py").write_text(AGENTS, encoding="utf-8")
    with subprocess.Popen(
        forked.command(*PROGRAMS[name]),
        cwd=home / name,
        env={**kept, **own, "TMPDIR": str(home / "tmp")},
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


def processes(home: Path) -> Generator[tuple[str, psutil.Process]]:
    """List the programs' processes, also those that have left their session."""
    for process in psutil.process_iter():
        try:
            place = Path(process.environ().get(MARK) or process.cwd())
        except (psutil.AccessDenied, psutil.NoSuchProcess):
            continue
        if place.parent == home and place.name in PROGRAMS:
            yield place.name, process


def ports(home: Path) -> list[tuple[str, str, int]]:
    """List what the programs listen at."""
    found: list[tuple[str, str, int]] = []
    for name, process in processes(home):
        listening = process.net_connections("inet")
        bound = [each.laddr for each in listening if each.status == psutil.CONN_LISTEN]
        found += [(name, at.ip, at.port) for at in bound]
    return found


@contextmanager
def proxied(home: Path, opened: list[int]) -> Generator[Path]:
    """Run nginx before these ports until the block ends."""
    servers = "".join(each.format(home=home, port=port) for port in opened for each in (BARE, TOLD))
    (home / "conf").write_text(PROXY.format(home=home, servers=servers), encoding="utf-8")
    command = [NGINX.program(), "-e", str(home / "log"), "-c", str(home / "conf")]
    with subprocess.Popen(command, env=NGINX.environment()) as process:
        try:
            while not (home / "nginx.pid").exists():  # it listens, then writes this file
                if process.poll() is not None:
                    pytest.fail((home / "log").read_text(encoding="utf-8"))
                time.sleep(0.02)
            yield home
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def world() -> Generator[World]:
    with ExitStack() as stack:
        home, proxy = (Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2))
        home, proxy = home.resolve(), proxy.resolve()
        (home / "tmp").mkdir()
        (home / "tmp").chmod(0o1777)
        home.chmod(0o755)
        proxy.chmod(0o755)
        token = Tokens(home / "desk-tokens.json").make("anna", ["operator"])
        said = {name: stack.enter_context(started(name, home)) for name in PROGRAMS}
        opened = ports(home)
        stack.enter_context(proxied(proxy, [port for *_, port in opened]))
        yield World(home, said, opened, proxy, token)


def test_every_port_is_known_and_gives_nothing_to_web_pages_other_users_and_a_proxy(
    world: World,
) -> None:
    assert {ip for _, ip, _ in world.ports} == {"127.0.0.1"}
    direct = {f"{name} {port}": f"http://127.0.0.1:{port}" for name, _, port in world.ports}
    proxied = {f"{name} p{port}": str(world.proxy / str(port)) for name, _, port in world.ports}
    [address] = re.findall(r"address +(\S+)", world.said["dev"])
    got = stranger_gets({**direct, **proxied}, address=address)
    assert SECRET in got["read"]  # as docs/security.md says: gRPC asks for nothing
    for doors in (direct, proxied):
        rules = {name: Counter[str]() for name in PROGRAMS}
        for door in doors:
            rules[door.split()[0]][got["rules"][door]] += 1
        assert rules == OPENED


async def test_a_page_of_another_site_reads_nothing_and_changes_nothing_in_a_real_browser(
    world: World, browser: Browser
) -> None:
    """Its person is signed in at the desk; what a page can send without asking first is tried."""
    [address] = re.findall(r"address +(\S+)", world.said["dev"])
    client = await Client.connect(address)
    await client.start_workflow("AgentTask", START, id="of-the-owner", task_queue="nobody")
    before = await client.get_workflow_handle("of-the-owner").describe()
    site = FastAPI()
    site.get("/", response_class=HTMLResponse)(lambda: "<title>elsewhere</title>")
    async with serve_app(site) as elsewhere:
        context = await browser.new_context()
        page = await context.new_page()
        for name in ("dev", "desk"):
            await page.goto(world.url(name))
        await page.goto(elsewhere.replace("127.0.0.1", "evil.localhost"))
        opened = [port for *_, port in world.ports]
        assert await page.evaluate(EVIL_PAGE.read_text(), [opened, START]) == []
        await context.close()
    after = await client.get_workflow_handle("of-the-owner").describe()
    assert after.history_length == before.history_length
    begun = {each.id async for each in client.list_workflows("WorkflowType = 'AgentTask'")}
    assert begun == {"of-the-owner"}


def test_another_user_of_the_machine_reads_no_file_of_the_programs_and_no_token_in_their_commands(
    world: World,
) -> None:
    files = [world.home, *world.home.rglob("*")]
    files = [each for each in files if "__pycache__" not in each.parts]
    kinds = {each.name for each in files}
    assert kinds >= {"temporal.db", "desk-local-token", "desk-tokens.json", "archive"}
    public = {world.home, world.home / "tmp", *(world.home / name for name in PROGRAMS)}
    public |= {world.home / name / "mine.py" for name in PROGRAMS}
    got = stranger_gets(files=files)
    assert {*map(Path, got["reached"])} == public
    tokens = re.findall(r"(?:token=|Bearer )([\w-]{20,})", "".join(world.said.values()))
    commands = [str(process.cmdline()) for _, process in processes(world.home)]
    assert len(tokens) >= 2
    assert not [each for each in commands if any(token in each for token in tokens)]


def test_behind_a_proxy_a_desk_without_tokens_serves_nobody_and_one_with_tokens_those_who_have_one(
    world: World,
) -> None:
    own = {"authorization": f"Bearer {world.url('dev').partition('token=')[2]}"}
    with world.behind("dev") as bare, world.behind("dev", "told-") as told:
        assert bare.get("/api/v1/me").status_code == 401
        assert bare.get("/api/v1/me", headers=own).json()["source"] == "local"
        for host in ("desk.example", "127.0.0.1"):
            assert told.get("/api/v1/me", headers={**own, "host": host}).status_code == 401
    with world.behind("desk", "told-") as client:
        site = {"host": "desk.example", "origin": "https://desk.example"}
        assert client.get("/api/v1/me").status_code == 401
        signed = client.post("/login", content=f"token={world.token}", headers=site)
        cookie = signed.headers["set-cookie"]
        assert cookie.startswith("__Host-")
        assert "; Secure" in cookie
        client.cookies.clear()
        session = {**site, "cookie": cookie.partition(";")[0]}
        task = {"input": "2", "agent": "calc", "step_mode": "manual"}
        made = client.post("/api/v1/tasks", json=task, headers=session)
        assert made.status_code == 201
        evil = {**session, "origin": "https://evil.example"}
        assert client.post("/api/v1/tasks", json={"input": "x"}, headers=evil).status_code == 403
        on = f"/api/v1/tasks/{made.json()['task_id']}"
        with client.stream("GET", f"{on}/events", headers=session) as events:
            lines = events.iter_lines()
            assert next(lines).startswith("retry:")
            client.post(f"{on}/step", json={}, headers=session)
            assert next(line for line in lines if line.startswith("event:"))  # it has not ended
