"""The checkout under test, and what the packaging tests ask about it."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

MAPPED = ("activities", "workflows")
"""Directories at the root that are imported as subpackages of holdfast."""


def project() -> dict[str, Any]:
    """Return pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def python_files(directory: Path) -> Iterator[Path]:
    """Yield the Python files of a directory, without following links."""
    for child in sorted(directory.iterdir()):
        if child.is_dir() and not child.is_symlink() and child.name != "__pycache__":
            yield from python_files(child)
        elif child.suffix == ".py":
            yield child


def module_files() -> set[str]:
    """Return the files that an installation must have, as paths by their import name."""
    package = {path.relative_to(ROOT) for path in python_files(ROOT / "holdfast")}
    mapped = {
        Path("holdfast") / path.relative_to(ROOT)
        for name in MAPPED
        for path in python_files(ROOT / name)
    }
    return {path.as_posix() for path in package | mapped}


def run_python(code: str, *, cwd: Path, pythonpath: Path | None = None) -> str:
    """Run code in a new interpreter that has `cwd` first on its path; return what it prints."""
    command = [sys.executable, "-c", code]
    env = os.environ | {"PYTHONPATH": str(pythonpath or "")}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
