"""Fixtures for all tests: one real server, one runner and worker per test, one fake model API."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import sys
from collections.abc import AsyncGenerator, Generator, Iterator
from itertools import chain, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from openai import AsyncOpenAI

from holdfast import tool
from holdfast.activities import heartbeat
from holdfast.agents.tools.context import Effect
from holdfast.agents.tools.decorator import Tool
from holdfast.engine.dev_server import command
from holdfast.engine.dev_server.serverinfo import ServerInfo
from holdfast.testing import FakeOpenAI
from holdfast.tracing import instrument
from holdfast.values.checks.gate import clean
from tests.support.certificates import share_certificates
from tests.support.dialects import anthropic, gemini
from tests.support.lent import LENDER, ephemeral_server, lend_servers
from tests.support.patience import be_patient
from tests.support.receiver import Receiver, receiving
from tests.support.rig import Engine, Rig, World, make_engine
from tests.support.runs import Runs
from tests.support.scale import EXHAUSTIVE, times
from tests.support.site import Site
from tests.support.spans import Spans
from tests.support.starts import start_quickly

if TYPE_CHECKING:
    from playwright.async_api import Browser

    from tests.support.cli import Cli

# A busy machine is slow, which is no defect: times are for benchmarks/.
# The same examples each time: what a search at random finds is kept as a test of its own.
settings.register_profile(
    "holdfast",
    deadline=None,
    max_examples=times(25, 100),
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="HOLDFAST_SEARCH" not in os.environ,
)
settings.load_profile("holdfast")

be_patient()
share_certificates()
lend_servers()

gc.disable()  # until all is imported: what imports make stays for good

# For servers, also those that other processes of a test start. Each has little to do, and on a
# machine that is busy with tests more threads and frequent garbage collections only cost time.
os.environ.setdefault("GOMAXPROCS", "1")
os.environ.setdefault("GOGC", "400")

WAITING = (
    "tests/crash/",
    "tests/packaging/test_extras",
    "tests/live/test_cli_",
    "tests/live/test_object_lock",
    "tests/live/test_ports",
    "tests/live/test_r",
    "tests/live/test_upgrades",
    "tests/simulation/test_random",
)
"""Tests that wait most of the time, apart from those of a browser, and what needs a processor."""

heartbeat.FASTEST_SECONDS = 0.5  # an activity learns by its next heartbeat that it is cancelled


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave to `make test-all` what is marked as exhaustive; order the rest for the processes."""
    left = [] if EXHAUSTIVE else [item for item in items if is_exhaustive(item)]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not is_exhaustive(item)]
    items[:] = in_order(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def in_order(items: list[pytest.Item], processes: int) -> list[pytest.Item]:
    """Order tests so that no process is left alone with long ones, or waits for nothing else.

    Each process gets a run of as many tests, and later takes from the end of another's. So each
    run begins with files that wait, and ends with the shortest tests. Those of the browser are all
    in the first run, and the processor is left to the other processes in the meantime.
    """
    runs: list[list[pytest.Item]] = [[] for _ in range(processes)]
    short: list[pytest.Item] = []
    files = [list(tests) for _, tests in groupby(sorted(items, key=_kind), _kind)]
    for n, ((kind, _), tests) in enumerate((_kind(tests[0]), tests) for tests in files):
        (short if kind == SHORT else runs[0 if kind == BROWSER else n % processes]).extend(tests)
    rest = iter(short)
    for n, run in enumerate(runs, start=1):
        end = n * len(items) // processes - sum(map(len, runs[: n - 1]))
        run.extend(islice(rest, max(0, end - len(run))))
    return [*chain.from_iterable(runs), *rest]


BROWSER, SHORT = 0, 3


def _kind(item: pytest.Item) -> tuple[int, str]:
    """Return when a test is begun, and its file."""
    file = item.nodeid.partition("::")[0]
    if "browser" in getattr(item, "fixturenames", ()):
        return BROWSER, file
    if file.startswith("tests/unit/"):
        return SHORT, file
    return 1 if file.startswith(WAITING) else 2, file


def pytest_collection_finish() -> None:
    """Collect garbage seldom, and never look through the modules that are imported by now.

    That takes a tenth of the processor time of tests of tasks. What imports have left as garbage
    stays: to find it takes half a second of each process.
    """
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)
    gc.enable()


def pytest_sessionfinish() -> None:
    """Stop the servers that runners of this process have had."""
    asyncio.run(LENDER.stop())


def is_exhaustive(item: pytest.Item) -> bool:
    """Whether a test repeats, at great cost, what a cheaper one shows once."""
    return item.get_closest_marker("exhaustive") is not None


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, object, object]:
    """Replace lone surrogates, which tests log: a test process cannot send them to its parent."""
    data = yield
    return None if data is None else json.loads(clean(json.dumps(data, ensure_ascii=False)))


PLAIN = {
    # Lists of Temporal Cloud, a second and namespace.
    "frontend.namespaceRPS.visibility": "30",
    "frontend.namespaceBurstRatio.visibility": "1",
}
"""Settings of a server as it comes, but for the limits of Temporal Cloud that are lower."""


@pytest.fixture(scope="session", autouse=True)
def starts(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Have servers start quickly."""
    start_quickly(tmp_path_factory.mktemp("temporal"))


@pytest.fixture(scope="session")
async def server() -> AsyncGenerator[ServerInfo]:
    """Run a real server in memory, with settings of ours or as `HOLDFAST_SERVER=plain` says."""
    if os.environ.get("HOLDFAST_SERVER") == "plain":
        command.DYNAMIC_CONFIG = PLAIN
    async with await ephemeral_server() as running:
        yield running.info


@pytest.fixture(scope="session")
async def engine(server: ServerInfo, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """Connect to the server, with an archive of its own."""
    return await make_engine(server, tmp_path_factory.mktemp("archive"))


@pytest.fixture
async def rig(engine: Engine, model: FakeOpenAI, openai_client: AsyncOpenAI) -> AsyncGenerator[Rig]:
    """Give a test its own queue; afterwards replay every workflow that it started."""
    made = Rig(engine, model, openai_client.with_options(base_url=model.base_url))
    yield made
    await made.stop()
    await made.assert_replays()


@pytest.fixture
def run(rig: Rig) -> Runs:
    """Run agents on the test's own worker."""
    return Runs(rig)


@pytest.fixture
def site(rig: Rig) -> Site:
    """Give a test a worker process whose agents it exchanges."""
    return Site(rig)


@pytest.fixture
def world(rig: Rig) -> World:
    """Give a test what its tools act on."""
    return rig.world


@pytest.fixture
def send(world: World) -> Tool:
    """Give a tool whose calls cannot be taken back."""

    @tool
    async def send(text: str) -> str:
        """Send."""
        world.done.append(f"send {text}")
        return f"sent {text}"

    return send


@pytest.fixture
def book(world: World) -> Tool:
    """Give a tool whose calls can be taken back."""

    def cancel(effect: Effect) -> str:
        world.done.append(f"cancel {effect.arguments['city']}")
        return f"cancelled {effect.arguments['city']}"

    @tool(undo=cancel)
    async def book(city: str) -> str:
        """Book."""
        world.done.append(f"book {city}")
        return f"booked {city}"

    return book


@pytest.fixture
def model() -> Iterator[FakeOpenAI]:
    """Serve the fake API; an exhausted script and unused replies fail the test."""
    with FakeOpenAI(dialects=(anthropic, gemini)) as fake:
        yield fake


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Give a server that takes webhooks."""
    with receiving() as made:
        yield made


@pytest.fixture
def api(model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch) -> FakeOpenAI:
    """Have models that are only named reach the fake API."""
    monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-tests-1")
    return model


@pytest.fixture(scope="session")
async def openai_client() -> AsyncGenerator[AsyncOpenAI]:
    """Give one client for all tests: each client of its own reads the machine's certificates."""
    async with AsyncOpenAI(api_key="sk-of-the-tests-1") as client:
        yield client


@pytest.fixture(scope="session")
async def browser() -> AsyncGenerator[Browser]:
    """Start chromium."""
    from playwright.async_api import async_playwright

    from tests.support.debian import CHROMIUM
    from tests.support.desk import FLAGS

    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(
            executable_path=CHROMIUM.program(), env=CHROMIUM.environment(), args=[*FLAGS]
        )
        yield started
        await started.close()


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    """Give the command line in a directory of the test's own."""
    from tests.support.cli import make_cli

    made = make_cli(tmp_path)
    yield made
    made("stop")


@pytest.fixture
def spans() -> Iterator[Spans]:
    """Trace what the test does in its own process."""
    made = Spans()
    instrument(made.provider)
    yield made
    instrument(None)


@pytest.fixture
def buckets() -> Iterator[Any]:
    """Give the class of S3's file systems, and close their connections afterwards.

    Else they are collected in a test that has nothing to do with them, and fail it.
    """
    import fsspec
    from fsspec import asyn

    untyped: Any = fsspec
    loops: Any = asyn
    found = untyped.get_filesystem_class("s3")
    found.clear_instance_cache()  # one of another server
    yield found
    for each in found._cache.values():
        if each._s3 is not None:
            loops.sync(each.loop, each._s3creator.__aexit__, None, None, None)
    found.clear_instance_cache()
    gc.collect()


@pytest.fixture(scope="module")
def connections_of_libraries() -> Iterator[None]:
    """Let go of the connections that LiteLLM and any-llm keep, while warnings of that are ignored.

    Else they are collected in a test that has nothing to do with them, and fail it.
    """
    yield
    litellm: Any = sys.modules.get("litellm")
    if litellm is not None:
        litellm.in_memory_llm_clients_cache.flush_cache()
    gc.collect()


@pytest.fixture
def logs_told() -> Iterator[None]:
    """Logs have texts again afterwards."""
    yield
    logging.setLogRecordFactory(logging.LogRecord)
