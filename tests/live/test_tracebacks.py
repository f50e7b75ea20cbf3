"""Tracebacks of our errors: the caller's own frames, and hardly one of ours."""

import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import AgentRunner, Task
from holdfast.errors import HoldfastError, TaskNotFoundError
from tests.support.rig import Rig

TESTS = str(Path(__file__).parents[1])
PLUMBING = ("/holdfast/", "/temporalio/", "/asyncio/")


def plumbing_of(error: BaseException) -> list[str]:
    """Name the frames of an error and its causes that are not the caller's."""
    shown = traceback.TracebackException.from_exception(error)
    found: list[str] = []
    each: traceback.TracebackException | None = shown
    while each is not None:
        frames = [frame for frame in each.stack if not frame.filename.startswith(TESTS)]
        found += [frame.name for frame in frames if any(p in frame.filename for p in PLUMBING)]
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    return found


async def read(items: Any) -> None:
    async for _ in items:
        pass


CALLS: dict[str, Callable[[AgentRunner, Task], Awaitable[Any]]] = {
    "get_task": lambda runner, _: runner.get_task("nowhere"),
    "create_task": lambda runner, _: runner.create_task(""),
    "run_step": lambda runner, task: runner.run_step(task),
    "run_task": lambda runner, task: runner.run_task(task),
    "chat": lambda runner, _: runner.chat("q"),
    "fork": lambda runner, task: runner.fork(task, "s9", "q"),
    "approve": lambda runner, task: runner.approve(f"{task.task_id}:1", by="ann"),
    "step_events": lambda runner, _: read(runner.step_events("nowhere")),
    "stream_step": lambda runner, task: read(runner.stream_step(task)),
    "result": lambda runner, task: runner.stream_step(task).result(),
    "session": lambda runner, _: runner.session("s").add_items([{"x": 1}]),
    "connect": lambda _, task: AgentRunner.connect("127.0.0.1:1", agent="agent", archive="a"),
}


ASKING = ("run_step", "run_task", "chat", "stream_step", "result")


async def test_an_error_shows_at_most_three_frames_of_plumbing(rig: Rig) -> None:
    runner = await rig.make()
    task = await runner.create_task("q")
    for name, call in CALLS.items():
        if name in ASKING:
            rig.model.fail(401)
        with pytest.raises(HoldfastError) as caught:
            await call(runner, task)
        assert len(plumbing_of(caught.value)) <= 3, name


async def test_all_frames_are_there_on_demand(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DEBUG", "1")
    runner = await rig.make()
    with pytest.raises(TaskNotFoundError) as caught:
        await runner.get_task("nowhere")
    assert len(plumbing_of(caught.value)) > 3
