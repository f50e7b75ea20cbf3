"""A new project asks for the Holdfast that made it, wherever that was installed from."""

# pyright: reportPrivateUsage=false

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from holdfast.cli.commands.start import doctor
from holdfast.cli.commands.start.init import write_project
from holdfast.cli.commands.start.origin import origin
from holdfast.values.code.extras import DISTRIBUTION

COMMIT = "0123456789abcdef0123456789abcdef01234567"
GIT = {"vcs_info": {"vcs": "git", "commit_id": COMMIT, "requested_revision": "main"}}


def install(place: Path, monkeypatch: pytest.MonkeyPatch, direct: object = None) -> None:
    """Leave in a folder what an installer does, and let that folder be the only one."""
    about = place / "holdfast_agents-0.9.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: 0.9\n")
    if direct is not None:
        (about / "direct_url.json").write_text(json.dumps(direct))
    monkeypatch.setattr(sys, "path", [str(place)])


@pytest.mark.parametrize(
    ("direct", "wanted"),
    [
        (None, "==0.9"),
        ({"url": "https://host/a.git", **GIT}, f" @ git+https://host/a.git@{COMMIT}"),
        ({"url": "https://ann:pw@host/a.git", **GIT}, f" @ git+https://host/a.git@{COMMIT}"),
        ({"url": "https://token@host:81/a.git", **GIT}, f" @ git+https://host:81/a.git@{COMMIT}"),
        ({"url": "ssh://git:pw@host/a.git", **GIT}, f" @ git+ssh://git@host/a.git@{COMMIT}"),
        (
            {"url": "https://host/a.git", "subdirectory": "sub", **GIT},
            f" @ git+https://host/a.git@{COMMIT}#subdirectory=sub",
        ),
        (
            {"url": "https://host/a.whl?sig=s1", "archive_info": {"hashes": {"sha256": "ab"}}},
            " @ https://host/a.whl#sha256=ab",
        ),
        ({"url": "file:///a%20b/c.whl", "archive_info": {}}, " @ file:///a%20b/c.whl"),
        ({"url": "file:///a%20b", "dir_info": {"editable": True}}, " @ file:///a%20b"),
    ],
)
def test_requirement_names_the_origin_without_credentials(
    direct: object, wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, direct)
    text = origin().requirement("local", "desk")
    assert text == f"{DISTRIBUTION}[local,desk]{wanted}"
    assert Requirement(text).extras == {"local", "desk"}


@pytest.mark.parametrize(
    ("direct", "fetched", "mounted"),
    [
        (None, False, None),
        ({"url": "https://host/a.git", **GIT}, True, None),
        ({"url": "file:///a%20b/c.whl", "archive_info": {}}, False, ("/a b/c.whl", "/a b/c.whl")),
        ({"url": "file:///a%20%24b", "dir_info": {}}, True, ("/a $b", "/holdfast")),
    ],
)
def test_container_of_a_new_project_has_what_its_requirement_names(
    direct: object,
    fetched: bool,
    mounted: tuple[str, str] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(tmp_path / "site", monkeypatch, direct)
    project = write_project(tmp_path / "rooms")
    compose = yaml.safe_load((project / "docker-compose.yml").read_text("utf-8").replace("$$", "$"))
    worker = compose["services"]["worker"]
    [_, _, script] = worker["command"]
    assert script.startswith("cp /src/*.py") is not fetched
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)
    binds: list[object] = [each for each in worker["volumes"] if "source" in each]
    expected = [] if mounted is None else [dict(zip(("source", "target"), mounted, strict=True))]
    assert binds == [{"type": "bind", **each, "read_only": True} for each in expected]


def test_doctor_warns_of_the_other_project_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch)
    assert [each.level for each in doctor._packages()] == ["ok"]
    about = tmp_path / "holdfast-0.5.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: holdfast\nVersion: 0.5.1\n")
    [_, found] = doctor._packages()
    assert found.level == "warning"
    assert "pip uninstall holdfast" in found.remedy
