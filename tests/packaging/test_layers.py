"""The layers of the packages are held by `make lint`: an import that runs up breaks it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TREES = ("holdfast", "workflows", "activities")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Copy the packages, with what says how they are layered."""
    for tree in TREES:
        shutil.copytree(
            ROOT / tree,
            tmp_path / tree,
            symlinks=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


UP = "\nfrom holdfast.workflows import steps as steps\n"
FOR_TYPES = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from holdfast.agents.agent import Agent as Agent
"""
CIRCLE = "\ndef late() -> None:\n    from holdfast.task.people import approvals as approvals\n"


def test_imports_that_run_up_or_in_a_circle_and_a_package_without_a_layer_are_refused(
    copy: Path,
) -> None:
    wrong = {"task/undo.py": UP, "values/steps.py": FOR_TYPES, "task/data/head.py": CIRCLE}
    for name, text in wrong.items():
        file = copy / "holdfast" / name
        file.write_text(file.read_text() + text)
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    for said in (
        "holdfast.task is not allowed to import holdfast.workflows",
        "holdfast.values is not allowed to import holdfast.agents",
        "No cycles are allowed in holdfast.task",
    ):
        assert said in done.stdout
    (copy / "holdfast" / "extra").mkdir()
    (copy / "holdfast" / "extra" / "__init__.py").touch()
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert "holdfast.extra" in done.stdout


def test_no_folder_is_too_long_to_be_read_at_a_glance() -> None:
    hidden = {"__init__.py", "__init__.pyi", "__main__.py", "__pycache__", "py.typed"}
    # A package that has moved away leaves its caches behind.
    caches = {path.parent for path in (ROOT / "holdfast").glob("*/__pycache__")}
    left = {path.name for path in caches if len(list(path.iterdir())) == 1}
    top = {path.name for path in (ROOT / "holdfast").iterdir()} - hidden - left
    assert len(top) <= 22, top
    folders = [path for tree in TREES for path in (ROOT / tree).rglob("*") if path.is_dir()]
    folders = [
        path for path in folders if not any(p[0] == "." for p in path.relative_to(ROOT).parts)
    ]
    folders = [path for path in folders if path.name != "__pycache__"]
    assert len(folders) > 30
    counts = {
        path: sum(each.name not in hidden and each.name[0] != "." for each in path.iterdir())
        for path in folders
    }
    assert {path: count for path, count in counts.items() if count > 14} == {}
