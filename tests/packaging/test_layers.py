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


def lint(copy: Path) -> subprocess.CompletedProcess[str]:
    """Run the linter of imports as `make lint` does."""
    linter = Path(sys.executable).with_name("lint-imports")
    command = [str(linter), "--no-logo", "--no-cache"]
    return subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)


def test_an_import_that_runs_up_is_refused(copy: Path) -> None:
    below = copy / "holdfast" / "task" / "undo.py"
    below.write_text(below.read_text() + "\nfrom holdfast.workflows import steps as steps\n")
    done = lint(copy)
    assert done.returncode == 1
    assert "holdfast.task is not allowed to import holdfast.workflows" in done.stdout


def test_an_import_for_types_only_counts(copy: Path) -> None:
    below = copy / "holdfast" / "values" / "steps.py"
    text = "\nif TYPE_CHECKING:\n    from holdfast.agents.agent import Agent as Agent\n"
    below.write_text(below.read_text() + "\nfrom typing import TYPE_CHECKING\n" + text)
    done = lint(copy)
    assert done.returncode == 1
    assert "holdfast.values is not allowed to import holdfast.agents" in done.stdout


def test_a_circle_inside_a_package_is_refused(copy: Path) -> None:
    below = copy / "holdfast" / "task" / "data" / "head.py"
    text = "\ndef late() -> None:\n    from holdfast.task.people import approvals as approvals\n"
    below.write_text(below.read_text() + text)
    done = lint(copy)
    assert done.returncode == 1
    assert "No cycles are allowed in holdfast.task" in done.stdout


def test_a_package_without_a_layer_is_refused(copy: Path) -> None:
    (copy / "holdfast" / "extra").mkdir()
    (copy / "holdfast" / "extra" / "__init__.py").write_text("")
    done = lint(copy)
    assert done.returncode == 1
    assert "holdfast.extra" in done.stdout


def test_no_folder_is_too_long_to_be_read_at_a_glance() -> None:
    hidden = {"__init__.py", "__init__.pyi", "__main__.py", "__pycache__", "py.typed"}
    top = {path.name for path in (ROOT / "holdfast").iterdir()} - hidden
    assert len(top) <= 21, top
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
