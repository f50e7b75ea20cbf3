"""Hints that tasks may rest."""

from __future__ import annotations

import asyncio
import threading

from holdfast.engine.rests import may_rest, rest_of


async def test_those_who_wait_for_a_task_are_told_from_another_thread() -> None:
    with rest_of("a") as first, rest_of("a") as second, rest_of("b") as other:
        thread = threading.Thread(target=may_rest, args=("a",))
        thread.start()
        await first.wait()
        await second.wait()
        thread.join()
        assert not other.is_set()


async def test_nobody_has_to_wait() -> None:
    may_rest("nobody")
    with rest_of("a") as rests:
        pass
    may_rest("a")
    await asyncio.sleep(0)
    assert not rests.is_set()


def test_a_loop_that_is_closed_is_left_out() -> None:
    loop = asyncio.new_event_loop()

    async def begin() -> None:
        waiting.__enter__()

    waiting = rest_of("a")
    loop.run_until_complete(begin())
    loop.close()
    may_rest("a")
    waiting.__exit__(None, None, None)
