from importlib import metadata
from pathlib import Path
from typing import NoReturn

import pytest

from holdfast.engine.dev_server.command import find_cli
from holdfast.errors import ServerStartError


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> NoReturn:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.delenv("HOLDFAST_TEMPORAL_CLI", raising=False)
    monkeypatch.setattr(metadata, "files", missing)


def test_the_variable_wins_and_one_that_names_nothing_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = executable(tmp_path / "mine")
    monkeypatch.setenv("HOLDFAST_TEMPORAL_CLI", str(named))
    assert find_cli() == named
    monkeypatch.setenv("HOLDFAST_TEMPORAL_CLI", str(tmp_path / "none"))
    with pytest.raises(ServerStartError, match="not an executable file"):
        find_cli()


def test_the_package_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_TEMPORAL_CLI", raising=False)
    monkeypatch.setenv("PATH", "")
    assert find_cli().name == "temporal"


@pytest.mark.usefixtures("no_package")
def test_the_path_is_next_and_without_any_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = executable(tmp_path / "bin" / "temporal")
    monkeypatch.setenv("PATH", str(found.parent))
    assert find_cli() == found
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ServerStartError, match=r"pip install 'holdfast-agents\[local\]'"):
        find_cli()
