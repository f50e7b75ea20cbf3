"""What is built from the checkout is whole, and claims one name."""

import tarfile
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.packaging.checkout import module_files
from tests.packaging.environments import build, made_once


@dataclass(frozen=True)
class Built:
    """The files of one build: those of the sdist, and those of the wheel made from it."""

    sdist: frozenset[str]
    wheel: frozenset[str]
    entry_points: str


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build an sdist, and the wheel from it, in a copy of the checkout; once for all processes."""
    return read_build(made_once(tmp_path_factory, "dist", build))


def read_build(out: Path) -> Built:
    """Read the one sdist and the one wheel of a directory."""
    (wheel,) = out.glob("*.whl")
    (sdist,) = out.glob("*.tar.gz")
    with tarfile.open(sdist) as packed, ZipFile(wheel) as archive:
        sources = frozenset(name.partition("/")[2] for name in packed.getnames())
        (entry_points,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        return Built(sources, frozenset(archive.namelist()), archive.read(entry_points).decode())


def test_wheel_has_exactly_the_modules_of_the_three_trees(built: Built) -> None:
    expected = module_files()
    assert any(name.startswith("holdfast/workflows/") for name in expected)
    assert any(name.startswith("holdfast/activities/") for name in expected)
    assert {name for name in built.wheel if name.endswith(".py")} == expected


def test_wheel_claims_one_name_is_typed_and_carries_licence_and_command(built: Built) -> None:
    names = {name.partition("/")[0] for name in built.wheel}
    assert {name for name in names if not name.endswith(".dist-info")} == {"holdfast"}
    stubs = {"holdfast/__init__.pyi", "holdfast/models/__init__.pyi"}
    assert {"holdfast/py.typed", *stubs} <= built.wheel
    assert any(name.endswith("/licenses/LICENSE") for name in built.wheel)
    assert "holdfast = holdfast.cli:main" in built.entry_points


def test_sdist_has_the_real_directories_and_no_second_copy(built: Built) -> None:
    assert {name for name in built.sdist if name.startswith("workflows/")}
    assert {name for name in built.sdist if name.startswith("activities/")}
    assert not {name for name in built.sdist if name.startswith("holdfast/workflows/")}
    assert not {name for name in built.sdist if name.startswith("holdfast/activities/")}
