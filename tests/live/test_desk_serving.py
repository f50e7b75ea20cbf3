"""The desk as commands and as a part of another application, each a process of its own."""

import os
import re
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Browser, expect

from holdfast.desk.server import desk_served
from holdfast.engine.dev_server.process import free_port
from holdfast.errors import InvalidArgumentError, ServerStartError
from tests.support import forked
from tests.support.rig import Rig, until
from tests.support.serving import running

ROOT = Path(__file__).parent.parent.parent
AGENTS = """
from holdfast import Agent
agents = Agent(name="calculator", model="offline")
"""


def signed_in(printed: str, token: str = "") -> httpx.AsyncClient:
    """Give a client of the local user, by the address that was printed for them, or by a token."""
    url, _, printed_token = printed.partition("/login#token=")
    headers = {"Authorization": f"Bearer {token or printed_token}"}
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=60)


@contextmanager
def started(directory: Path, *command: str, program: str = "holdfast") -> Generator[str]:
    """Run a command until the block ends; yield the first address that it prints."""
    own = {"PYTHONPATH": str(ROOT), "HOLDFAST_DATA_DIR": str(directory / "data")}
    with running(*command, program=program, home=directory, agents=AGENTS, **own) as it:
        yield it.wait_for(r"http://[\d.]+:\d+\S*(?=\s)")


async def test_dev_prints_first_what_opens_the_desk_and_serves_the_agents_beside_it(
    tmp_path: Path, browser: Browser
) -> None:
    port = str(free_port())
    with started(tmp_path, "dev", "mine:agents", "--port", port) as url:
        assert url.startswith(f"http://127.0.0.1:{port}/login#")
        page = await browser.new_page()
        await page.goto(url)
        await expect(page).to_have_title("Inbox · Holdfast")
        assert "token" not in page.url
        await page.close()
        async with signed_in(url) as client:
            made = await client.post("/api/v1/tasks", json={"input": "What is 2 + 2?"})
            assert made.status_code == 201
            at = f"/api/v1/tasks/{made.json()['task_id']}"

            async def is_answered() -> bool:
                return bool((await client.get(at)).json()["status"] == "answered")

            await until(is_answered)
            assert "<title>Tasks" in (await client.get("/tasks")).text


async def test_a_desk_of_its_own_asks_for_a_token_once_there_is_one(tmp_path: Path) -> None:
    def said(*arguments: str) -> str:
        command = forked.command("-m", "holdfast", "desk", "token", *arguments)
        environment = {**os.environ, "HOLDFAST_DATA_DIR": str(tmp_path / "data")}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    token = said("make", "anna", "--role", "operator")
    with started(tmp_path, "desk", "--port", "0") as url:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            assert (await client.get("/api/v1/me")).status_code == 401
            headers = {"Authorization": f"Bearer {token}"}
            found = (await client.get("/api/v1/me", headers=headers)).json()
            assert (found["name"], found["roles"]) == ("anna", ["operator"])
            assert "anna  operator" in said("list")
            said("revoke", "anna")
            assert (await client.get("/api/v1/me", headers=headers)).status_code == 401


async def test_an_application_of_forty_lines_runs_an_agent_and_mounts_the_desk(
    tmp_path: Path,
) -> None:
    example = ROOT / "examples" / "desk" / "app.py"
    assert len(example.read_text(encoding="utf-8").splitlines()) <= 40
    served = ("--app-dir", str(example.parent), "app:app", "--port", "0")
    with started(tmp_path, *served, program="uvicorn") as url:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            assert (await client.get("/desk/api/v1/tasks")).status_code == 401
        [file] = tmp_path.rglob("desk-local-token")
        async with signed_in(url, file.read_text(encoding="utf-8").strip()) as client:
            task = (await client.post("/questions", params={"text": "What is 6 * 7?"})).json()

            async def is_(status: str) -> bool:
                found = await client.get(f"/desk/api/v1/tasks/{task}")
                return bool(found.json()["status"] == status)

            await until(lambda: is_("waiting"))
            on = f"/desk/api/v1/approvals/{task}:1/approve"
            [asked] = (await client.get("/desk/api/v1/approvals")).json()
            assert (await client.post(on, json={"digest": asked["digest"]})).status_code == 200
            await until(lambda: is_("answered"))
            response = (await client.get(f"/desk/api/v1/tasks/{task}/response")).json()
            assert "42" in response["response"]
            assert "<title>Inbox" in (await client.get("/desk/")).text


async def test_a_taken_port_is_named_and_a_desk_that_others_could_reach_needs_tokens(
    rig: Rig, tmp_path: Path
) -> None:
    tokens = tmp_path / "none.json"
    with pytest.raises(InvalidArgumentError, match="holdfast desk token make"):
        async with desk_served(rig.runner(), tokens=tokens, host="0.0.0.0"):
            pass
    async with desk_served(rig.runner(), tokens=tokens, port=0) as url:
        port = int(re.findall(r":(\d+)", url)[0])
        with pytest.raises(ServerStartError, match=f"{port}: .* Give another --port"):
            async with desk_served(rig.runner(), tokens=tokens, port=port):
                pass
        async with desk_served(rig.runner(), tokens=tokens, port=port, any_port=True) as other:
            assert port < int(re.findall(r":(\d+)", other)[0]) < port + 100
