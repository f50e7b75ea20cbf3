"""`HOLDFAST_HEALTH`: a process is ready while its parts are, and says which is not, and why."""

import json
import os
import re
import signal
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.engine.dev_server.process import free_port
from holdfast.errors import ConnectError
from holdfast.serving.activities import Activities
from holdfast.serving.observed.health import Polls
from holdfast.serving.worker_host import Workers
from holdfast.serving.worker_process import serving_worker
from holdfast.testing import FakeOpenAI
from tests.support.lent import ephemeral_server
from tests.support.rig import Rig, until
from tests.support.serving import Program, running, worker_of

AGENTS = """
import pathlib, time
from holdfast import Agent, tool

@tool
def hold(path: str) -> str:
    "Hold on while there is no such file."
    pathlib.Path(path, "begun").touch()
    while not pathlib.Path(path, "go").exists():
        time.sleep(0.02)
    return "held"

agents = Agent(name="buyer", model="gpt-5-mini", tools=[hold])
"""


def asked(program: Program, path: str = "/ready", method: str = "GET") -> tuple[int, Any]:
    """Ask the health port of a program that tells which it is; return status and body."""
    [port] = re.findall(r"health at 127.0.0.1:(\d+)", program.text)
    return answer_of(int(port), path, method)


def answer_of(port: int, path: str = "/ready", method: str = "GET") -> tuple[int, Any]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=100) as answer:
            return answer.status, json.loads(answer.read() or "null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or "null")


async def test_a_worker_is_ready_once_it_polls_and_while_server_and_archive_are_there(
    tmp_path: Path,
) -> None:
    archive = tmp_path / "archive"
    async with await ephemeral_server() as temporal:
        environment = {
            "HOLDFAST_HEALTH": "127.0.0.1:0",
            "HOLDFAST_ARCHIVE": str(archive),
            "TEMPORAL_ADDRESS": temporal.info.address,
            "OPENAI_API_KEY": "sk-of-the-tests-1",
        }
        arguments = ("worker", "mine:agents")
        with running(*arguments, home=tmp_path / "w", agents=AGENTS, **environment) as worker:
            worker.wait_for("health at")
            assert asked(worker, "/live") == (200, {"live": True})

            async def says(status: int) -> bool:
                return asked(worker)[0] == status

            await until(lambda: says(200))
            assert asked(worker) == (200, {"ready": True, "problems": {}})
            assert asked(worker, method="HEAD") == (200, None)
            assert asked(worker, "/tasks")[0] == 404
            assert asked(worker, method="POST")[0] == 405
            archive.rename(tmp_path / "away")
            status, body = asked(worker)
            assert (status, [*body["problems"]]) == (503, ["archive"])
            assert str(archive) in body["problems"]["archive"]
            (tmp_path / "away").rename(archive)
            assert asked(worker)[0] == 200
            await temporal.stop()
            status, body = asked(worker)
            assert (status, [*body["problems"]]) == (503, ["server"])
            assert asked(worker, "/live")[0] == 200
            worker.process.kill()


async def test_a_worker_polls_from_its_start_to_its_end(rig: Rig) -> None:
    client, agent = rig.engine.client, rig.agent()
    activities = Activities([agent], rig.engine.archive)
    idle = Workers([serving_worker(client, activities, queue="hf.nobody")])
    with pytest.raises(ConnectError, match="knows no poll of this process"):
        await Polls(idle).check()
    await rig.serve(agent)
    assert rig.worker is not None
    polls = Polls(Workers([rig.worker]))

    async def is_seen() -> bool:
        with suppress(ConnectError):
            await polls.check()
            return True
        return False

    await until(is_seen)
    await rig.stop()
    with pytest.raises(ConnectError, match="has ended"):
        await polls.check()


async def test_a_worker_that_is_told_to_stop_is_not_ready_while_a_tool_goes_on(
    model: FakeOpenAI, tmp_path: Path
) -> None:
    door = tmp_path / "door"
    door.mkdir()
    model.call("hold", {"path": str(door)})
    async with worker_of(model, tmp_path, AGENTS, HOLDFAST_HEALTH="0") as (worker, runner):
        await runner.create_task("q", step_mode="automatic")
        await until((door / "begun").exists)
        os.kill(worker.process.pid, signal.SIGTERM)
        worker.wait_for("stopping: running calls get 30 seconds")
        status, body = asked(worker)
        assert (status, body["ready"]) == (503, False)
        assert body["problems"]["process"].startswith("It is being stopped")
        assert asked(worker, "/live")[0] == 200
        (door / "go").touch()
    assert worker.process.wait(timeout=60) == 0


async def test_a_desk_says_the_same_and_a_wrong_address_is_refused(tmp_path: Path) -> None:
    arguments = ("desk", "--port", "0", "--data-dir", str(tmp_path / "data"))
    port = free_port()
    with running(*arguments, home=tmp_path / "w", HOLDFAST_HEALTH=f"127.0.0.1:{port}") as desk:
        desk.wait_for("The desk is at")
        assert answer_of(port) == (200, {"ready": True, "problems": {}})
    for given in ("9464x", "127.0.0.1:70000"):
        with running(*arguments, home=tmp_path / "w", HOLDFAST_HEALTH=given) as desk:
            assert desk.process.wait(timeout=60) == 2
        assert f"HOLDFAST_HEALTH is '{given}'; it is host:port" in desk.text
