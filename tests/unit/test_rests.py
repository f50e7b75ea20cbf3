"""Hints that tasks may rest."""

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
