"""Progress of answers for readers of other processes: when heartbeats tell it, and how often."""

import asyncio

from holdfast.activities.heartbeat import PROGRESS_SECONDS, Pulse
from holdfast.reading.streams.hub import LocalHub, StreamKey

KEY = StreamKey("t", 1, 0)


async def test_progress_is_told_at_once_and_then_at_most_twice_a_second() -> None:
    pulse, loop = Pulse(print), asyncio.get_running_loop()
    times: list[float] = []
    for _ in range(3):
        for _ in range(100):
            pulse.tell_progress()
        await pulse.news.wait()
        pulse.news.clear()
        times.append(loop.time())
    assert times[2] - times[0] > 1.9 * PROGRESS_SECONDS


async def test_progress_is_told_to_a_reader_elsewhere_that_has_asked_since_the_answer_before() -> (
    None
):
    hub = LocalHub()

    def is_told() -> bool:
        return hub.is_read_elsewhere(KEY.task_id)

    def answer() -> None:
        hub.end(KEY, hub.begin(KEY, 1))

    answer()
    assert is_told()  # nobody has asked here: it may be asked in another worker process
    with hub.listening(KEY.task_id):
        assert not is_told()
    hub.asked(KEY.task_id, hub.name)
    hub.asked(KEY.task_id, "")
    hub.asked(KEY.task_id, LocalHub().name)
    assert is_told()
    answer()
    assert not is_told()
    hub.asked(KEY.task_id, LocalHub().name)
    assert is_told()
