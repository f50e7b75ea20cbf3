"""The lint rules that protect workflow code bite."""

import json
import sys

import pytest

from tests.packaging.checkout import ROOT
from tests.support.programs import ran

REPLAY_HAZARDS = [
    "import asyncio\nasyncio.sleep(1)",
    "import datetime\ndatetime.datetime.now()",
    "from datetime import datetime\ndatetime.now()",
    "import os.path",
    "from random import choice",
    "import time",
    "from uuid import uuid4",
    "import uuid\nuuid.uuid4()",
    "import threading",
    "import httpx",
    "print()",
    "open('file')",
]
BARE_IMPORTS = ["import workflows.steps", "from activities import tools"]
TREES = ["workflows/x.py", "activities/x.py", "holdfast/x.py", "tests/unit/x.py", "examples/x.py"]


def violations(code: str, path: str) -> set[str]:
    """Return the rules that a file with this code and this path would break."""
    command = [sys.executable, "-m", "ruff", "check", "--output-format=json", "--no-cache"]
    command += ["--stdin-filename", path, "-"]
    done = ran(command, ROOT, input=code + "\n")
    return {found["code"] for found in json.loads(done.stdout)}


@pytest.mark.parametrize("code", REPLAY_HAZARDS)
def test_what_does_not_replay_is_refused_in_workflows(code: str) -> None:
    assert violations(code, "workflows/x.py") & {"TID251", "T201", "PTH123"}


def test_clocks_are_allowed_elsewhere() -> None:
    assert "TID251" not in violations("import time", "activities/x.py")


@pytest.mark.parametrize("path", TREES)
@pytest.mark.parametrize("code", BARE_IMPORTS)
def test_bare_import_is_refused_everywhere(code: str, path: str) -> None:
    assert "TID251" in violations(code, path)
