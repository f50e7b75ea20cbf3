"""The blocking twins have every async method, with the same signature."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import holdfast
from holdfast import sync
from holdfast.errors import InvalidArgumentError
from holdfast.workers.function_calling.worker import FunctionCallingAgentWorker

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


def test_a_twin_returns_the_value_and_not_a_coroutine() -> None:
    runner = sync.AgentRunner.local(holdfast.Agent(name="twin", model="offline"), data_dir=None)
    with runner:
        task = runner.create_task("What is 1 + 1?")
        assert task.agent == "twin"
        assert runner.session("nobody").chat_history() == []
