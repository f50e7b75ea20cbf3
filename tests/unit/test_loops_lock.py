"""A lock for coroutines of several event loops: passed on in order, and never lost."""

import asyncio
import threading

import pytest

from holdfast.client.caller_sessions.protocol import LoopsLock


@pytest.mark.parametrize("late", [False, True])
async def test_who_is_cancelled_while_waiting_does_not_keep_it(*, late: bool) -> None:
    lock = LoopsLock()

    async def take() -> None:
        async with lock:
            pass

    async with lock:
        waiting = asyncio.ensure_future(take())
        await asyncio.sleep(0)
        if not late:
            waiting.cancel()
    if late:  # it has been passed on, and the one that waits does not know yet
        waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with asyncio.timeout(100):
        await take()


def test_one_holds_it_at_a_time_whatever_its_loop() -> None:
    lock, inside, most = LoopsLock(), 0, 0

    async def work() -> None:
        nonlocal inside, most
        for _ in range(50):
            async with lock:
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1

    threads = [threading.Thread(target=lambda: asyncio.run(work()), daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert not any(thread.is_alive() for thread in threads)
    assert most == 1
