"""The commonest commands load what they use, and nothing else: an answer at once is the reason."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    "agents",
    "fsspec",
    "nicegui",
    "openai",
    "opentelemetry",
    "pydantic",
    "rich",
    "temporalio",
    "temporalio.client",
}
"""Libraries that take a tenth of a second and more."""

RUN = """
import json, os, sys

def end(code):
    print(json.dumps([name for name in sys.modules if name not in before]), file=sys.__stdout__)
    sys.__stdout__.flush()
    exit_now(0)

before, exit_now, os._exit = set(sys.modules), os._exit, end
from holdfast.cli import main
main()
"""
"""Ends with the names of all modules that the command has loaded."""

LISTING = {"cli", "engine", "errors", "reading", "values"}
CLIENT = LISTING | {
    *("activities", "agents", "archive", "client", "models", "serving", "task"),
    *("tracing", "workers"),
}
CLIENT_LIBRARIES = {"pydantic", "temporalio", "temporalio.client"}


def loaded_by(command: str, cwd: Path) -> set[str]:
    """Return the modules that a command loads; nothing listens where it looks for a server."""
    where = () if command == "--help" else ("--address", "127.0.0.1:1")
    given = [sys.executable, "-c", RUN, *command.split(), *where]
    archive = "" if command.startswith("tasks") else str(cwd)  # a named one is checked
    env = os.environ | {"HOLDFAST_ARCHIVE": archive}
    done = subprocess.run(given, cwd=cwd, env=env, capture_output=True, text=True, check=True)
    names: list[str] = json.loads(done.stdout.splitlines()[-1])
    return set(names)


@pytest.mark.parametrize(
    ("command", "packages", "libraries"),
    [
        ("--help", {"cli", "errors", "values"}, set[str]()),
        # typer alone loads pydantic, and only some versions of it do.
        ("tasks", LISTING, {"pydantic", "temporalio"}),
        ("approvals", CLIENT, CLIENT_LIBRARIES),
        # It has the desk's words, which are no pages.
        ("show a-task", CLIENT | {"desk"}, CLIENT_LIBRARIES | {"rich"}),
        ("run clerk hello", CLIENT, CLIENT_LIBRARIES | {"rich"}),
    ],
)
def test_a_command_loads_what_it_uses(
    command: str, packages: set[str], libraries: set[str], tmp_path: Path
) -> None:
    loaded = loaded_by(command, tmp_path)
    assert loaded & HEAVY <= libraries
    ours = {name.split(".")[1] for name in loaded if name.startswith("holdfast.")}
    assert ours <= packages
    # A worker's parts: what a client imports of the activities is how it hosts and notifies.
    assert not {name for name in loaded if name.startswith("holdfast.activities.steps")}
