import asyncio
import contextvars
import os
import threading
import traceback
from collections.abc import Generator
from pathlib import Path

import pytest

from holdfast.engine.dev_server.server import ensure_server
from holdfast.engine.loop import LoopThread, shared_loop
from holdfast.errors import ServerStartError


@pytest.fixture
def loop() -> Generator[LoopThread]:
    made = LoopThread()
    yield made
    made.close()


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


async def fail() -> None:
    raise LookupError("of the coroutine")


def test_run_returns_the_result_or_raises_the_error(loop: LoopThread) -> None:
    assert loop.run(double(21)) == 42
    with pytest.raises(LookupError, match="of the coroutine"):
        loop.run(fail())


def test_run_from_inside_the_loop_says_what_to_do(loop: LoopThread) -> None:
    async def inside() -> int:
        return loop.run(double(1))

    with pytest.raises(RuntimeError, match="from inside Holdfast's own loop"):
        loop.run(inside())


async def test_wrap_awaits_from_another_loop(loop: LoopThread) -> None:
    async def where() -> str:
        return threading.current_thread().name

    assert await loop.wrap(where()) == "holdfast-loop"
    with pytest.raises(LookupError):
        await loop.wrap(fail())


async def _wait(begun: threading.Event, steps: list[str]) -> None:
    try:
        begun.set()
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.01)
        steps.append("cleaned up")


async def test_wrap_passes_cancellation_on_and_waits_for_the_clean_up(loop: LoopThread) -> None:
    begun = threading.Event()
    steps: list[str] = []

    waiting = asyncio.create_task(loop.wrap(_wait(begun, steps)))
    await asyncio.to_thread(begun.wait, 100)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert steps == ["cleaned up"]


async def test_context_variables_are_passed_on(loop: LoopThread) -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("set")

    async def read() -> str:
        return variable.get()

    assert await loop.wrap(read()) == "set"


def test_close_cancels_what_runs_and_refuses_what_comes(loop: LoopThread) -> None:
    steps: list[str] = []
    begun = threading.Event()

    loop.submit(_wait(begun, steps))
    assert begun.wait(100)
    loop.close()
    loop.close()
    assert steps == ["cleaned up"]
    with pytest.raises(RuntimeError, match="closed"):
        loop.run(double(1))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_makes_its_own_loop_and_is_refused_the_old_one() -> None:
    old = shared_loop()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            assert shared_loop() is not old
            assert shared_loop().run(double(4)) == 8
            try:
                old.run(double(1))
            except RuntimeError as error:
                code = 0 if "forked" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert shared_loop() is old


def frames(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def test_an_error_of_ours_comes_without_the_frames_of_the_loop(loop: LoopThread) -> None:
    with pytest.raises(ServerStartError) as caught:
        loop.run(ensure_server(Path(os.devnull) / "data"))
    assert frames(caught.value) == [
        "test_an_error_of_ours_comes_without_the_frames_of_the_loop",
        "run",
    ]


async def _leave() -> None:
    raise SystemExit(3)


def test_a_loop_goes_on_when_code_on_it_wants_to_end_the_process() -> None:
    loop = LoopThread()
    with pytest.raises(SystemExit):
        loop.submit(_leave()).result(timeout=100)
    loop.loop.call_soon_threadsafe(loop.loop.stop)
    assert loop.run(asyncio.sleep(0, "still here")) == "still here"
    loop.close()
    assert loop.loop.is_closed()
