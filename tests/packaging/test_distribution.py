"""What is built from the checkout is whole, and claims one name."""

import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.packaging.checkout import MAPPED, ROOT, module_files

SOURCES = ("pyproject.toml", "README.md", "LICENSE", "holdfast", *MAPPED)


@dataclass(frozen=True)
class Built:
    """The files of one build: those of the sdist, and those of the wheel made from it."""

    sdist: frozenset[str]
    wheel: frozenset[str]
    entry_points: str


@pytest.fixture(scope="module", params=["links", "no links"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build an sdist, and the wheel from it, in a copy of the checkout; once without the links."""
    checkout = tmp_path_factory.mktemp("checkout")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, checkout / name, symlinks=True, ignore=ignore)
        else:
            shutil.copy(source, checkout / name)
    if request.param == "no links":
        for name in MAPPED:
            (checkout / "holdfast" / name).unlink()

    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(checkout)]
    done = subprocess.run(command, cwd=out, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return read_build(out)


def read_build(out: Path) -> Built:
    """Read the one sdist and the one wheel of a directory."""
    (sdist,) = out.glob("*.tar.gz")
    (wheel,) = out.glob("*.whl")
    with tarfile.open(sdist) as archive:
        packed = frozenset(name.partition("/")[2] for name in archive.getnames())
    with ZipFile(wheel) as archive:
        (entry_points,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        return Built(packed, frozenset(archive.namelist()), archive.read(entry_points).decode())


def test_wheel_has_exactly_the_modules_of_the_three_trees(built: Built) -> None:
    expected = module_files()
    assert any(name.startswith("holdfast/workflows/") for name in expected)
    assert any(name.startswith("holdfast/activities/") for name in expected)
    assert {name for name in built.wheel if name.endswith(".py")} == expected


def test_wheel_claims_one_top_level_name(built: Built) -> None:
    names = {name.partition("/")[0] for name in built.wheel}
    assert {name for name in names if not name.endswith(".dist-info")} == {"holdfast"}


def test_wheel_is_typed(built: Built) -> None:
    assert "holdfast/py.typed" in built.wheel


def test_wheel_carries_the_licence(built: Built) -> None:
    assert any(name.endswith("/licenses/LICENSE") for name in built.wheel)


def test_wheel_installs_the_command(built: Built) -> None:
    assert "holdfast = holdfast.cli:main" in built.entry_points


def test_sdist_has_the_real_directories_and_no_second_copy(built: Built) -> None:
    assert {name for name in built.sdist if name.startswith("workflows/")}
    assert {name for name in built.sdist if name.startswith("activities/")}
    assert not {name for name in built.sdist if name.startswith("holdfast/workflows/")}
    assert not {name for name in built.sdist if name.startswith("holdfast/activities/")}
