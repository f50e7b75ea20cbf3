"""The blocking twins have every async method, with the same signature."""

import contextlib
import inspect
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import holdfast
from holdfast import sync
from holdfast.errors import InvalidArgumentError
from holdfast.serving.embedded import LocalEngine
from holdfast.workers.function_calling import FunctionCallingAgentWorker

OTHERWISE = {"session", "start"}
"""Methods of the async class that do not wait, written out by hand in the twin."""


def public_methods(kind: type) -> dict[str, object]:
    return {
        name: member
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def test_every_async_method_has_a_blocking_twin() -> None:
    for async_kind, sync_kind in (
        (holdfast.AgentRunner, sync.AgentRunner),
        (holdfast.Session, sync.Session),
    ):
        assert set(public_methods(async_kind)) == set(public_methods(sync_kind))


def test_twins_have_the_signatures_of_their_originals() -> None:
    twins = public_methods(sync.AgentRunner)
    for name, method in public_methods(holdfast.AgentRunner).items():
        if name not in OTHERWISE:
            assert callable(method)
            twin = twins[name]
            assert callable(twin)
            assert inspect.signature(twin) == inspect.signature(method), name


@pytest.mark.parametrize("given", [FunctionCallingAgentWorker(), "my_agents:agents", None])
def test_a_runner_made_of_something_else_is_refused_at_once(given: Any) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"AgentRunner\.local\(Agent\(name='name', worker"
    ):
        sync.AgentRunner(given)


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[LocalEngine]:
    """The engines that were started."""
    found: list[LocalEngine] = []
    start = LocalEngine.__aenter__

    async def counted(engine: LocalEngine) -> Any:
        found.append(engine)
        return await start(engine)

    monkeypatch.setattr(LocalEngine, "__aenter__", counted)
    return found


def test_the_first_calls_of_several_threads_start_the_engine_once(
    starts: list[LocalEngine],
) -> None:
    runner = sync.AgentRunner.local(holdfast.Agent(name="first", model="offline"), data_dir=None)
    assert not starts
    with contextlib.closing(runner), ThreadPoolExecutor(4) as threads:
        found = [threads.submit(runner.list_tasks) for _ in range(4)]
        assert [each.result() for each in found] == [[]] * 4  # values, and no coroutines
        assert runner.session("nobody").chat_history() == []
    assert len(starts) == 1


def test_a_runner_that_was_closed_starts_only_when_it_is_told_to(starts: list[LocalEngine]) -> None:
    runner = sync.AgentRunner.local(holdfast.Agent(name="again", model="offline"), data_dir=None)
    runner.close()
    with pytest.raises(InvalidArgumentError, match="is not started"):
        runner.list_tasks()
    assert not starts
    with runner:
        assert runner.list_tasks() == []
