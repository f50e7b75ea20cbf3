"""Environments as users have them: the wheel, installed without extras and with each."""

import functools
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

from install import uv_settings
from tests.packaging.checkout import MAPPED, ROOT
from tests.support.cli import Result
from tests.support.programs import printed_by, ran

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

    def python(self, code: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run Python code in it; `more` are further variables."""
        command = [str(self.root / "bin" / "python"), "-c", code]
        return ran(command, self.work, self.variables(**more))

    def holdfast(self, *commands: str, **more: str) -> list[Result]:
        """Run commands of Holdfast in it, one after the other."""
        variables = self.variables(**more)
        ended = [ran(self.command(*each.split()), self.work, variables) for each in commands]
        return [Result(done.returncode, done.stdout, done.stderr) for done in ended]


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


def build(directory: Path) -> None:
    """Build this checkout, an sdist and a wheel from it; the copy that is built is there, too."""
    source = directory / "source"
    for name in ("holdfast", *MAPPED):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    here = ("--no-build-isolation", "--python", sys.executable, "--out-dir", str(directory))
    _check("uv", "build", "--quiet", *here, str(source))


def make_environment(
    directory: Path, *wanted: str, base: Environment | None = None, locked: bool = True
) -> Environment:
    """Make an environment and install distributions.

    Args:
        directory: Where to make it.
        wanted: Requirements, as arguments of `pip install`.
        base: An environment to begin with: its files, compiled modules too, are linked.
        locked: Whether to take the versions that are locked.
    """
    made = Environment(directory / "env", directory / "work")
    made.work.mkdir(parents=True)
    if base is None:
        venv.create(made.root, symlinks=True)
    else:
        shutil.copytree(base.root, made.root, symlinks=True, copy_function=os.link)
    command = ["uv", "pip", "install", "--quiet", "--python", str(made.root / "bin" / "python")]
    lock = ("--no-verify-hashes", "--constraint", str(ROOT / "requirements-dev.lock"))
    _check(*command, *(lock if locked else ()), *wanted)
    return made


def _check(*command: str) -> None:
    printed_by([sys.executable, "-m", *command], environment={**_uv_settings(), **os.environ})


@functools.cache
def _uv_settings() -> dict[str, str]:
    """Return where packages are here, as variables of uv."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    return uv_settings(printed_by(command))
