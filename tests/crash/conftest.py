"""One Temporal server for the tests that do not kill it, and a lab for each test."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from holdfast.engine.dev_server.server import ensure_server, stop_server
from holdfast.reading import queries
from holdfast.testing import FakeOpenAI
from tests.crash.lab import SOON, Lab, Labs, context, make_lab, plan
from tests.crash.programs import Job


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for worker processes that were just started as long as a busy machine needs."""
    monkeypatch.setattr(queries, "PATIENCE_SECONDS", SOON)


@pytest.fixture(scope="session", autouse=True)
async def forks() -> None:
    """Have the process that forks import everything, which would hold up the loop of a test."""
    first = context.Process(target=str)
    await asyncio.to_thread(first.start)
    await asyncio.to_thread(first.join)


@pytest.fixture(scope="session")
async def shared_job(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Job]:
    """Say where the server is that all tests share which let it live."""
    data_dir = tmp_path_factory.mktemp("shared-server")
    server = await ensure_server(data_dir)
    yield Job(server=server, home=data_dir, app="", base_url="")
    await stop_server(data_dir)


@pytest.fixture
async def own_job(tmp_path: Path) -> AsyncGenerator[Job]:
    """Start a server that a test may kill."""
    data_dir = tmp_path / "server"
    server = await ensure_server(data_dir)
    yield Job(server=server, home=data_dir, app="", base_url="")
    await stop_server(data_dir)


@pytest.fixture
def api() -> Generator[FakeOpenAI]:
    """Serve the fake model; each request gets the answer that its conversation asks for."""
    with FakeOpenAI(plan) as api:
        yield api


@pytest.fixture
async def lab(shared_job: Job, tmp_path: Path, api: FakeOpenAI) -> AsyncGenerator[Lab]:
    """Make a lab on the shared server."""
    async with make_lab(shared_job, tmp_path / "lab", api) as lab:
        yield lab


@pytest.fixture
def labs(shared_job: Job, tmp_path: Path, api: FakeOpenAI) -> Labs:
    """Make labs on the shared server, as many as a test wants at once."""
    return Labs(shared_job, tmp_path, api)


@pytest.fixture
async def own_lab(own_job: Job, tmp_path: Path, api: FakeOpenAI) -> AsyncGenerator[Lab]:
    """Make a lab on a server of its own."""
    async with make_lab(own_job, tmp_path / "lab", api) as lab:
        yield lab
