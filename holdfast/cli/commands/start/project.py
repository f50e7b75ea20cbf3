"""The files of a new project: an agent that books rooms, and its test.

Pure.
"""

from __future__ import annotations

import json
import shlex
from string import Template

from holdfast.cli.commands.start.origin import Origin

AGENTS = '''"""An agent that books meeting rooms. Serve it: `holdfast dev booking:agents`."""

from __future__ import annotations

import os

from holdfast import Agent, Effect, tool

booked: dict[str, str] = {}
"""The world outside; a real tool would call a service."""


def cancel(effect: Effect) -> str:
    """Take a booking back, when its step is undone; `effect.result` is what the tool returned."""
    return f"cancelled {booked.pop(effect.result)}"


@tool(effect="read")
def free_rooms(day: str) -> list[str]:
    """List the rooms that are free on a day."""
    return [room for room in ("Oslo", "Rome") if f"{room} on {day}" not in booked.values()]


@tool(undo=cancel)
def book_room(room: str, day: str) -> str:
    """Book a room for a day, and return the number of the booking."""
    number = f"B{len(booked) + 1}"
    booked[number] = f"{room} on {day}"
    return number


@tool(effect="read")
def multiply(a: float, b: float) -> float:
    """Multiply two numbers, such as hours and a price."""
    return a * b


clerk = Agent(
    name="clerk",
    instructions="Book the rooms that you are asked for. Look first which ones are free.",
    # "offline" only calculates; any other name asks a provider: see HOLDFAST_MODEL in README.md.
    model=os.environ.get("HOLDFAST_MODEL", "offline"),
    tools=[free_rooms, book_room, multiply],
)
agents = [clerk]
'''

TEST = '''"""The agent books a room, and an undo cancels it. No network: the model is scripted."""

from __future__ import annotations

import asyncio
import dataclasses
import json

from holdfast import AgentRunner, ToolCall
from holdfast.testing import ScriptedModel

import booking


def call(name: str, **arguments: str) -> ToolCall:
    return ToolCall(id="", name=name, arguments=json.dumps(arguments))


async def book_and_undo() -> None:
    model = ScriptedModel(
        [
            call("free_rooms", day="Monday"),
            call("book_room", room="Rome", day="Monday"),
            "Rome is yours on Monday.",
        ]
    )
    agent = dataclasses.replace(booking.clerk, model=model)
    async with AgentRunner.local(agent, data_dir=None) as runner:
        task = await runner.create_task("A room for Monday, please.")
        response = await runner.run_task(task)
        assert str(response) == "Rome is yours on Monday."
        assert booking.booked == {"B1": "Rome on Monday"}
        for _ in range(2):  # the answer, then the booking
            await runner.undo_step(task, by="me", reason="The meeting is off.")
        assert booking.booked == {}


def test_a_room_is_booked_and_an_undo_cancels_it() -> None:
    asyncio.run(book_and_undo())
'''

PYPROJECT = """[project]
name = "$name"
version = "0.1.0"
description = "Agents that run durably on Temporal."
requires-python = ">=3.11"
dependencies = ["$local"]

[project.optional-dependencies]
dev = ["$testing", "pytest>=8"]

[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[tool.setuptools]
py-modules = ["booking"]

[tool.pytest.ini_options]
pythonpath = ["."]
"""

COMPOSE = """# A Temporal server with a file as its database, and one worker. For more than that see
# docker-compose.yml of Holdfast: PostgreSQL, the namespace and several workers.
#
#   docker compose up --build

services:
  temporal:
    image: temporalio/temporal:latest
    command:
      - server
      - start-dev
      - --ip=0.0.0.0
      - --headless  # Temporal's web UI has no login
      - --db-filename=/data/temporal.db
      - --search-attribute=HfStatus=Keyword
      - --search-attribute=HfAgent=Keyword
      - --search-attribute=HfApprovals=Int
    ports:
      - "127.0.0.1:7233:7233"
    volumes:
      - temporal:/data
    restart: unless-stopped

  worker:
    image: python:3.12-slim
    working_dir: /app
    # From a copy: to install a directory, pip writes into it.
    command:
      - sh
      - -c
      - >-
        ${fetch}cp /src/*.py /src/pyproject.toml . && pip install --quiet . &&
        exec holdfast worker booking:agents
    environment:
      TEMPORAL_ADDRESS: temporal:7233
      HOLDFAST_ARCHIVE: file:///archive
      # Passed on where they are set.
      HOLDFAST_MODEL:
      HOLDFAST_DEPLOYMENT:
      HOLDFAST_BUILD:
      OPENAI_API_KEY:
    volumes:
      - .:/src:ro
$mount      - archive:/archive
    depends_on:
      - temporal
    init: true
    stop_grace_period: 45s
    restart: unless-stopped

volumes:
  archive:
  temporal:
"""

README = """# $name

An agent that books meeting rooms, durably: kill anything, and its tasks go on.

    python -m venv .venv && source .venv/bin/activate
    pip install -e '.[dev]'
    pytest
    holdfast dev booking:agents --reload

In another terminal:

    holdfast run clerk "What is 6 * 7?"
    holdfast tasks
    holdfast doctor --agents booking:agents

Out of the box, its model is `offline`, which only calculates. With a key, a real one books rooms:

    export OPENAI_API_KEY=... HOLDFAST_MODEL=gpt-5-mini

| file | |
| --- | --- |
| `booking.py` | the agent, and its tools; `book_room` says how it is undone |
| `test_booking.py` | a test without a network |
| `docker-compose.yml` | a Temporal server and a worker |
"""

IGNORED = """.holdfast/
.venv/
__pycache__/
.pytest_cache/
*.egg-info/
build/
.env
"""

_PARTS = ("pyproject.toml", "README.md", "LICENSE", "holdfast", "workflows", "activities")
"""What Holdfast is built from."""

FILES = {
    "booking.py": AGENTS,
    "test_booking.py": TEST,
    "pyproject.toml": PYPROJECT,
    "docker-compose.yml": COMPOSE,
    "README.md": README,
    ".gitignore": IGNORED,
}
"""What a new project holds, by the names of its files: templates."""


def project_files(name: str, origin: Origin) -> dict[str, str]:
    """Return the files of a new project, which asks for the Holdfast that made it.

    Args:
        name: The project's name.
        origin: Where this Holdfast came from.
    """
    known = {
        "name": name,
        "local": origin.requirement("local"),
        "testing": origin.requirement("testing"),
        "fetch": _fetch(origin),
        "mount": _mount(origin),
    }
    return {file: Template(text).substitute(known) for file, text in FILES.items()}


def _fetch(origin: Origin) -> str:
    """Return the commands that let pip install Holdfast in the container.

    Its requirement may name a directory of this machine. That is mounted elsewhere and only read,
    and copied to where it is asked for.
    """
    if origin.url.startswith("git+"):
        return (
            "apt-get -qq update && apt-get -qq install --yes --no-install-recommends git"
            " >/dev/null &&\n        "
        )
    if origin.directory is None:
        return ""
    where = shlex.quote(str(origin.directory)).replace("$", "$$")
    parts = " ".join(f"/holdfast/{part}" for part in _PARTS)
    return f"mkdir -p {where} && cp -RP {parts} {where} &&\n        "


def _mount(origin: Origin) -> str:
    """Return the volume of the container that Holdfast is installed from, if it needs one."""
    path = origin.directory or origin.archive
    if path is None:
        return ""
    source = json.dumps(str(path).replace("$", "$$"))
    target = '"/holdfast"' if origin.directory else source
    lines = ("- type: bind", f"  source: {source}", f"  target: {target}", "  read_only: true")
    return "".join(f"      {line}\n" for line in lines)
