"""Environments as users have them: the wheel, installed by pip without extras and with each."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock

from tests.packaging.checkout import MAPPED, ROOT

OURS = re.compile(r"HOLDFAST_|TEMPORAL_|OPENAI_|PYTHON|OTEL_|VIRTUAL_ENV")
"""Variables of this process that a user's process does not have."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment.

    Attributes:
        root: Its directory.
        work: The working directory of what runs in it.
    """

    root: Path
    work: Path

    @property
    def packages(self) -> Path:
        """Where its packages are."""
        (found,) = self.root.glob("lib/python*/site-packages")
        return found

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of Holdfast's console script."""
        return [str(self.root / "bin" / "python"), "-m", "holdfast", *arguments]

    def variables(self, **more: str) -> dict[str, str]:
        """Return the variables of its processes."""
        return {name: value for name, value in os.environ.items() if not OURS.match(name)} | more

    def run(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command in it; `more` are further variables."""
        return subprocess.run(
            command,
            cwd=self.work,
            env=self.variables(**more),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def python(self, code: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run Python code in it."""
        return self.run(str(self.root / "bin" / "python"), "-c", code, **more)

    def holdfast(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command of Holdfast in it."""
        return self.run(*self.command(*arguments), **more)


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a directory that one of the test processes of this run has filled for all of them.

    Args:
        factory: Of this test process.
        name: What the directory holds, as a word.
        make: Fills the directory, which is there and empty.
    """
    base = factory.getbasetemp()
    run = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    directory, done = run / f"all-{name}", run / f"all-{name}.done"
    with FileLock(run / f"all-{name}.lock"):
        if not done.exists():
            directory.mkdir()
            make(directory)
            done.touch()
    return directory


def build_wheel(directory: Path) -> None:
    """Build the wheel of this checkout."""
    source = directory / "source"
    for name in ("holdfast", *MAPPED):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    _check("build", "--wheel", "--no-isolation", "--outdir", str(directory), str(source))


def make_environment(
    directory: Path, wheel: Path, *, extra: str = "", base: Environment | None = None
) -> Environment:
    """Make an environment and install the wheel with pip, in the versions that are locked.

    Args:
        directory: Where to make it.
        wheel: The wheel.
        extra: Installed with this extra.
        base: An environment whose packages it has too, so that they are not installed again.
    """
    made = Environment(directory / "env", directory / "work")
    made.work.mkdir(parents=True)
    venv.create(made.root, with_pip=False)
    if base is not None:
        (made.packages / "base.pth").write_text(f"{base.packages}\n", encoding="utf-8")
    locked = directory / "locked.txt"
    locked.write_text(_versions(), encoding="utf-8")
    wanted = f"holdfast[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
    options = ["--quiet", "--no-compile", "--constraint", str(locked)]
    _check("pip", "--python", str(made.root / "bin" / "python"), "install", *options, wanted)
    return made


def _versions() -> str:
    """Return the locked versions, as constraints.

    They have no hashes, which would have to be there for the wheel, too, and no extras, which pip
    does not take in a constraint.
    """
    lines = (ROOT / "requirements-dev.lock").read_text("utf-8").splitlines()
    pins = [line.removesuffix("\\").strip() for line in lines if re.match(r"[a-z0-9]", line)]
    return "\n".join(re.sub(r"\[[^]]*\]", "", pin, count=1) for pin in pins) + "\n"


def _check(*command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
