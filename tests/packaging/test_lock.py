"""The lock files cover what pyproject.toml asks for, by version and by hash."""

import re
from dataclasses import dataclass
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.packaging.checkout import ROOT, project

DEV = "requirements-dev.lock"
PARTS = ("requirements-uv.lock", "requirements-demo.lock", "requirements.lock")
LOCKS = (DEV, *PARTS)


@dataclass(frozen=True)
class Pin:
    """One locked distribution."""

    requirement: Requirement
    hashes: tuple[str, ...]

    @property
    def version(self) -> Version:
        (specifier,) = self.requirement.specifier
        assert specifier.operator == "=="
        return Version(specifier.version)


def read_lock(name: str) -> dict[str, list[Pin]]:
    """Return the pins of a lock file by canonical name."""
    lines = (ROOT / name).read_text("utf-8").replace("\\\n", " ").splitlines()
    pins: dict[str, list[Pin]] = {}
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        requirement = Requirement(line.partition(" --hash=")[0])
        hashes = tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})\b", line))
        pins.setdefault(canonicalize_name(requirement.name), []).append(Pin(requirement, hashes))
    return pins


def asked_for(*extras: str) -> list[Requirement]:
    """Return the requirements of the project with some extras, its own extras resolved."""
    table = project()["project"]
    lines = [*table["dependencies"]]
    for extra in extras:
        lines += table["optional-dependencies"][extra]
    requirements = [Requirement(line) for line in lines]
    return [found for found in requirements if found.name != table["name"]]


def unmet(requirements: list[Requirement], lock: str) -> list[str]:
    """Return the requirements that a lock file does not pin to an acceptable version."""
    pins = read_lock(lock)
    missing: list[str] = []
    for requirement in requirements:
        found = pins.get(canonicalize_name(requirement.name), [])
        if not found or not all(pin.version in requirement.specifier for pin in found):
            missing.append(str(requirement))
    return missing


def build_tools() -> list[Requirement]:
    """Return what builds the distribution."""
    return [Requirement(line) for line in project()["build-system"]["requires"]]


@pytest.mark.parametrize(
    ("lock", "wanted"),
    [
        (DEV, [*asked_for(*project()["project"]["optional-dependencies"]), *build_tools()]),
        ("requirements-demo.lock", [*asked_for("local", "desk"), *build_tools()]),
        ("requirements.lock", asked_for("keys", "local", "s3")),
    ],
    ids=["dev", "demo", "production"],
)
def test_a_lock_satisfies_what_is_installed_by_it(lock: str, wanted: list[Requirement]) -> None:
    assert unmet(wanted, lock) == []


@pytest.mark.parametrize("lock", PARTS)
def test_each_other_lock_has_versions_of_the_dev_lock_which_were_tested(lock: str) -> None:
    tested = read_lock(DEV)
    for name, pins in read_lock(lock).items():
        assert {pin.version for pin in pins} <= {pin.version for pin in tested[name]}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_one_version_and_a_hash_and_no_source_is_named(lock: str) -> None:
    pins = [pin for found in read_lock(lock).values() for pin in found]
    assert pins
    for pin in pins:
        assert str(pin.version)
        assert pin.hashes, f"{pin.requirement} has no hash"
    text = (ROOT / lock).read_text("utf-8")
    assert not re.search(r"://|--index|--extra-index|--find-links|--trusted-host", text)


@pytest.mark.parametrize("lock", LOCKS)
def test_distribution_wanted_with_extras_is_pinned_with_them(lock: str) -> None:
    # pip takes the newest release of what is wanted with an extra and is pinned without it, and
    # refuses its hash: an installation fails from the day on which there is a newer release.
    pins = read_lock(lock)
    wanted: set[tuple[str, str]] = set()
    for name, found in pins.items():
        extras = {extra for pin in found for extra in pin.requirement.extras}
        wanted |= {
            (canonicalize_name(requirement.name), extra)
            for requirement in _installed_requirements(name, extras)
            for extra in requirement.extras
        }
    pinned = {
        (name, extra)
        for name, found in pins.items()
        for pin in found
        for extra in pin.requirement.extras
    }
    assert wanted <= pinned


def _installed_requirements(name: str, extras: set[str]) -> list[Requirement]:
    """Return what an installed distribution requires here with some extras."""
    try:
        lines = metadata.requires(name) or []
    except metadata.PackageNotFoundError:  # it is for another platform
        return []
    requirements = [Requirement(line) for line in lines]
    return [
        requirement
        for requirement in requirements
        if requirement.marker is None
        or any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras))
    ]
