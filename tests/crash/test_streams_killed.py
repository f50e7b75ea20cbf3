"""Workers and readers are killed in the middle of an answer that is being streamed."""

import asyncio
from collections.abc import Sequence

from holdfast.reading.streams.reader import RawResponsesStreamEvent, StreamEvent
from holdfast.testing import paced
from tests.crash.lab import Lab, answers

DELTA = "response.output_text.delta"


def hold_answer(lab: Lab, *, after: int) -> None:
    """Hold the first answer without tools after so many deltas; asked again, it comes whole."""
    lab.api.when(
        lambda request: lab.is_mine(request) and len(answers(request)) == 0,
        paced("one two three four five", piece=4, hold_after=after),
        times=1,
    )


def created(events: Sequence[StreamEvent]) -> list[int]:
    """Return the attempts that were begun."""
    raws = [event for event in events if isinstance(event, RawResponsesStreamEvent)]
    return [raw.attempt for raw in raws if raw.data.type == "response.created"]


def text(events: Sequence[StreamEvent]) -> str:
    """Put the text of the last attempt together."""
    raws = [event for event in events if isinstance(event, RawResponsesStreamEvent)]
    newest = max(raw.attempt for raw in raws)
    return "".join(e.data.delta for e in raws if e.attempt == newest and e.data.type == DELTA)


async def test_a_worker_killed_in_mid_stream(lab: Lab) -> None:
    hold_answer(lab, after=3)
    worker = await lab.serve()
    task = await lab.create("", streams=True)
    asking = asyncio.create_task(lab.runner.run_task(task))
    got: list[StreamEvent] = []
    async for event in lab.runner.stream_events(task, until="waiting"):
        got.append(event)
        if text_so_far(got) == "one two thre" and worker.exitcode is None:
            await lab.kill(worker)
            lab.api.release()
            lab.start()
    output = await asking
    assert output.output == text(got) == "final"
    first, last = created(got)  # a slow machine may lose an attempt before it asks the model
    assert first == 1 < last
    offsets = [event.offset for event in got]
    assert offsets == sorted(set(offsets))
    assert lab.asked == [0, 0]
    lost = [e for e in got if isinstance(e, RawResponsesStreamEvent) and e.attempt == 1][-1]
    again = lab.runner.stream_events(task, offset=lost.offset, until="waiting")
    rest = [event async for event in again]
    assert created(rest) == [last]
    assert rest[0].offset > lost.offset
    assert text(rest) == "final"


def text_so_far(events: Sequence[StreamEvent]) -> str:
    """Put the text together that the newest attempt has told, or nothing."""
    return text(events) if created(events) else ""
