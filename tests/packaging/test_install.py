"""`.venv` grows by stages: a small project is installed by our script from a folder of wheels."""

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import pip
import pytest

import install
from tests.packaging.checkout import ROOT
from tests.support.programs import ran

BACKEND = """
import shutil

def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return shutil.copy("../small-1-py3-none-any.whl", wheel_directory).rpartition("/")[2]
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "small"
version = "1"

[tool.setuptools]
"""


@dataclass(frozen=True)
class Small:
    """A project with `install.py`, and wheels that it may want."""

    root: Path

    @property
    def packages(self) -> Path:
        [found] = (self.root / ".venv").glob("lib/python*/site-packages")
        return found

    def lock(self, stage: str, *names: str) -> None:
        """Write the lock of a stage."""
        wheels = {name: write_wheel(self.root.parent / "wheels", name) for name in names}
        lines = [
            f"{name}==1 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"
            for name, wheel in wheels.items()
        ]
        (self.root / f"requirements-{stage}.lock").write_text("".join(lines), "utf-8")

    def install(self, stage: str, expect: int = 0) -> str:
        """Install a stage; return what is said."""
        settings = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.root.parent / "wheels")}
        clean = {name: text for name, text in os.environ.items() if not name.startswith("PIP_")}
        done = subprocess.run(
            [sys.executable, "install.py", stage],
            cwd=self.root,
            env=clean | settings | {"PIP_CONFIG_FILE": os.devnull},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == expect, done.stdout
        return done.stdout

    def has(self, *names: str) -> bool:
        """Say whether distributions are installed."""
        return all((self.packages / f"{name}-1.dist-info").is_dir() for name in names)


def write_wheel(directory: Path, name: str) -> Path:
    """Write the wheel of an empty module, version 1."""
    about = f"{name}-1.dist-info"
    made = directory / f"{name}-1-py3-none-any.whl"
    with ZipFile(made, "w") as wheel:
        wheel.writestr(f"{name}.py", "")
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        tag = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{about}/WHEEL", tag)
        wheel.writestr(f"{about}/RECORD", "")
    return made


@pytest.fixture
def small(tmp_path: Path) -> Small:
    """Make the project, in a folder whose name has a blank, with no uv to be had."""
    made = Small(tmp_path / "a project")
    made.root.mkdir()
    (tmp_path / "wheels").mkdir()
    shutil.copy(ROOT / "install.py", made.root)
    (made.root / "backend.py").write_text(BACKEND, "utf-8")
    (made.root / "pyproject.toml").write_text(PROJECT, "utf-8")
    made.lock("uv", "uv")
    next((tmp_path / "wheels").iterdir()).unlink()
    write_wheel(tmp_path, "small")
    made.lock("demo", "used")
    made.lock("dev", "used", "tested")
    return made


@pytest.fixture
def with_uv(small: Small) -> Small:
    """Make the project with an environment that has uv and pip."""
    venv.create(small.root / ".venv", symlinks=True)
    (small.root / ".venv" / "bin" / "uv").symlink_to(Path(sys.executable).parent / "uv")
    (small.packages / "pip").symlink_to(Path(pip.__file__).parent)
    return small


def test_uv_adds_a_stage_from_where_pip_looks_and_an_earlier_one_takes_nothing_away(
    with_uv: Small,
) -> None:
    told = with_uv.install("demo")
    assert [line[:5] for line in told.splitlines()] == ["[1/3]", "[2/3]", "[3/3]"]
    assert with_uv.has("used", "small")
    assert not with_uv.has("tested")
    with_uv.install("dev")
    assert with_uv.has("used", "small", "tested")
    with_uv.lock("demo", "used", "more")
    with_uv.install("demo")
    assert with_uv.has("used", "small", "tested", "more")


def test_stage_that_is_installed_is_not_installed_again_for_a_setting_of_a_tool(
    with_uv: Small,
) -> None:
    with_uv.install("dev")
    project = with_uv.root / "pyproject.toml"
    project.write_text(PROJECT + "[tool.ruff]\n", "utf-8")
    assert with_uv.install("dev") == with_uv.install("demo") == ""
    project.write_text(
        PROJECT.replace('version = "1"', 'version = "1"\ndescription = "new"'), "utf-8"
    )
    assert with_uv.install("demo").count("\n") == 3


def test_pip_installs_a_stage_where_there_is_no_uv_and_an_interrupted_one_is_made_again(
    small: Small,
) -> None:
    left = small.root / ".venv" / "left"
    left.parent.mkdir()
    left.touch()
    (left.parent / ".unfinished").touch()
    told = small.install("demo")
    assert "No matching distribution found for uv" in told
    assert "by pip" in told
    assert small.has("used", "small")
    assert not left.exists()
    assert not (left.parent / ".unfinished").exists()


def test_stage_that_cannot_be_installed_says_why_and_leaves_no_stamp(with_uv: Small) -> None:
    with_uv.lock("demo", "lost")
    (with_uv.root.parent / "wheels" / "lost-1-py3-none-any.whl").unlink()
    told = with_uv.install("demo", expect=1)
    assert "uv failed" in told
    assert "error: the stage 'demo' of .venv cannot be installed" in told
    assert "No matching distribution found for lost" in told
    assert not list((with_uv.root / ".venv").glob(".d*"))


def test_every_place_that_pip_knows_is_told_to_uv() -> None:
    listed = (
        "global.index-url='https://one/simple'\n"
        "install.index-url='https://two/simple'\n"
        ":env:.extra-index-url='https://three/simple https://four/simple'\n"
        "global.find-links='\\n/a\\n/b'\n"
        "global.timeout='3'\n"
        "list.index-url='https://five'\n"
    )
    assert install.uv_settings(listed) == {
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_DEFAULT_INDEX": "https://two/simple",
        "UV_INDEX": "https://three/simple https://four/simple",
        "UV_FIND_LINKS": "/a,/b",
    }


@pytest.mark.parametrize(
    ("version", "error"),
    [
        (None, "there is no './python'. Install Python 3.11 or newer"),
        ("(3, 10, 1)", "needs Python 3.11, 3.12 or 3.13, but ./python is 3.10.1"),
        ("(3, 14, 0)", "needs Python 3.11, 3.12 or 3.13, but ./python is 3.14.0"),
    ],
)
def test_make_says_which_python_it_needs(tmp_path: Path, version: str | None, error: str) -> None:
    for name in ("Makefile", "install.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    for stage in ("uv", "demo", "dev"):
        (tmp_path / f"requirements-{stage}.lock").touch()
    if version is not None:
        said = (
            f"import sys; sys.version_info = {version}; sys.version = '.'.join(map(str, {version}))"
        )
        python = tmp_path / "python"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -c "{said}; $2"\n', "utf-8")
        python.chmod(0o755)
    done = ran(["make", "demo", "PYTHON=./python"], tmp_path)
    assert done.returncode == 2
    assert error in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_python_that_makes_no_environments_is_told_what_it_lacks(small: Small) -> None:
    (small.root / "ensurepip.py").write_text(
        "raise ImportError('No module named ensurepip')", "utf-8"
    )
    assert "apt install python3-venv" in small.install("demo", expect=1)
    assert not (small.root / ".venv").exists()
