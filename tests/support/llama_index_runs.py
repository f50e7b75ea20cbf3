"""Fixtures for tests of `holdfast.llama_index`: an engine a module, a run of a program a test."""

from collections.abc import Iterator

import pytest

from holdfast.client.runner.engines import Engines
from holdfast.engine.loop import shared_loop
from holdfast.llama_index import program, tasks


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """Run one embedded engine, in a directory of its own."""
    made = Engines()
    made.configure(data_dir=str(tmp_path_factory.mktemp("engine")))
    yield made
    shared_loop().run(made.close())


@pytest.fixture(autouse=True)
def run(engine: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each test a run of a program of its own."""
    monkeypatch.setattr(tasks, "engines", engine)
    monkeypatch.setattr(program, "engines", engine)
    monkeypatch.setattr(program, "_current", program.Current())
    monkeypatch.setenv(program.RUN, "new")
