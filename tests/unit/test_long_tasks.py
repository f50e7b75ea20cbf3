"""What a worker need not read, nor look at, again and again in a long task."""

import gc
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from holdfast.activities.data.cache import Cache
from holdfast.activities.data.source import Source, seen_before
from holdfast.archive.archive import Archive
from holdfast.archive.segments import archived_step, uncollected, write_messages, write_segment
from holdfast.task.data.head import TaskHead
from holdfast.task.data.records import Entry, EventRecord, InputRef, SegmentRef, StepRecord
from holdfast.task.data.wire import View, ViewRequest
from holdfast.task.ledger.recording import output_digest
from holdfast.task.queries.pages import StepView
from holdfast.values.base import ChainRef, extend
from holdfast.values.messages import ImagePart, Message, assistant, user
from holdfast.values.steps import HistoryRef, TaskStep

PICTURE = Message(role="user", content=(ImagePart(kind="image", url="https://x.test/cat.png"),))


def step(n: int, *adds: Message, output: Any = None) -> Entry:
    made = StepRecord(n=n, step=TaskStep(step_id=f"s{n}"), adds=adds, output=output or f"out {n}")
    return Entry(step=made)


def undone(first: int) -> Entry:
    return Entry(event=EventRecord(kind="undone", at=1.0, body={"n": first, "steps": [first]}))


class Reading(Archive):
    """Says which of its objects were read."""

    def __init__(self) -> None:
        super().__init__(f"memory://{id(self)}")
        self.read: list[str] = []

    async def aget(self, sha256: str) -> bytes:
        self.read.append(sha256)
        return await super().aget(sha256)


async def segments(archive: Archive, *parts: Sequence[Entry]) -> list[SegmentRef]:
    """Write a ledger in parts, oldest first; return all of them."""
    made: list[SegmentRef] = []
    for entries in parts:
        made.append(await write_segment(archive, entries, made[-1] if made else None))
    return made


class Archived(Source):
    """A source whose task has the messages up to `base` in the archive, the others itself."""

    def __init__(self, archive: Archive, newest: SegmentRef, base: int) -> None:
        super().__init__(archive, Cache())
        self.newest = newest
        self.base = base
        self.said: list[Message] = []

    async def _view(self, asked: ViewRequest) -> View:
        here = self.said[max(asked.have - self.base, 0) : max(asked.upto - self.base, 0)]
        segment = self.newest if asked.have < self.base else None
        return View(messages=tuple(here), segment=segment, base=self.base)

    async def _query(self, name: str, kind: Any, *args: object) -> Any:
        assert (name, kind) == ("step", StepView)
        return StepView(segment=self.newest)

    def knows(self, *messages: Message) -> None:
        self.memory().append(messages, messages)


SAID = [user("q"), *(assistant(f"a{k}") for k in range(5))]
"""What a task has said in six steps, of which each has added one message."""

WHOLE = ChainRef(6, extend("", SAID))


async def three_parts(archive: Archive) -> list[SegmentRef]:
    entries = [step(n, said) for n, said in enumerate(SAID, 1)]
    return await segments(archive, entries[:2], entries[2:4], entries[4:])


# ---- the transcript


@pytest.mark.parametrize(("known", "read"), [(0, 3), (1, 3), (2, 2), (3, 2), (4, 1), (5, 1)])
async def test_a_worker_that_knows_the_first_messages_reads_the_segments_of_the_others(
    known: int, read: int
) -> None:
    archive = Reading()
    parts = await three_parts(archive)
    source = Archived(archive, parts[-1], base=6)

    async def transcript() -> tuple[Message, ...]:
        source.knows(*SAID[:known])
        return await source.transcript(WHOLE)

    assert await ActivityEnvironment().run(transcript) == tuple(SAID)
    assert archive.read == [each.sha256 for each in reversed(parts)][:read]


async def test_what_an_undo_took_from_the_archive_is_not_in_the_transcript() -> None:
    archive = Reading()
    kept, other = SAID[:3], [assistant("b3"), assistant("b4")]
    [*_, newest] = await segments(
        archive,
        [step(n, said) for n, said in enumerate(SAID, 1)],
        [undone(4), step(4, other[0]), step(5, other[1])],
    )
    source = Archived(archive, newest, base=5)
    at = ChainRef(5, extend("", [*kept, *other]))

    async def transcript() -> tuple[Message, ...]:
        source.knows(*kept)
        return await source.transcript(at)

    assert await ActivityEnvironment().run(transcript) == (*kept, *other)


def test_what_is_expected_next_outlives_a_task_that_continued_as_new() -> None:
    cache = Cache()
    before = cache.task("t", "run1")
    before.append(SAID[:2], SAID[:2])
    before.put_result(2, 0, SAID[3])
    before.expect([SAID[2], (2, 0)])
    after = cache.task("t", "run2")
    assert after.guess(ChainRef(4, extend("", SAID[:4]))) == SAID[2:4]
    assert after.guess(ChainRef(4, extend("", [*SAID[:3], user("x")]))) is None
    assert cache.size == after.size
    before.expect([])
    before.clear_results()
    assert after.guess(ChainRef(4, extend("", SAID[:4]))) == SAID[2:4]


# ---- outputs


async def test_the_output_of_an_archived_step_is_read_from_the_newest_segment_that_has_it() -> None:
    archive = Reading()
    first, second = step(2, output="undone"), step(2, output="repeated")
    parts = await segments(archive, [step(1)], [first, undone(2), second], [step(3)])
    assert await archived_step(archive, parts[-1], 2) == second.step
    assert archive.read == [parts[2].sha256, parts[1].sha256]
    assert await archived_step(archive, parts[-1], 4) is None
    assert await archived_step(archive, None, 1) is None
    source = Archived(archive, parts[-1], base=0)
    assert second.step is not None
    ref = InputRef(2, output_digest(second.step))

    async def output() -> Any:
        return await source.output(ref)

    assert await ActivityEnvironment().run(output) == "repeated"


# ---- images


@pytest.mark.parametrize(
    ("skip", "places"), [(None, (1, 2, 4)), (0, (1, 2, 4)), (1, (1, 3)), (3, (1,))]
)
async def test_the_places_of_images_are_those_of_what_the_agent_sees(
    skip: int | None, places: tuple[int, ...]
) -> None:
    archive = Reading()
    own = [PICTURE, user("a"), PICTURE]
    earlier = [user("earlier"), PICTURE]
    stored = await write_messages(archive, earlier)
    source = Archived(archive, await write_segment(archive, []), base=0)
    head = TaskHead(agent="a", snapshot="s", history=stored)
    view = None if skip is None else HistoryRef(sha256=stored, skip=skip)
    at = ChainRef(3, extend("", own))

    async def seen() -> Any:
        source.knows(*own, PICTURE)  # of a message that an undo takes
        return await seen_before(source, head, TaskStep(history=view), at)

    found = await ActivityEnvironment().run(seen)
    assert found.whole.messages == (*earlier, *own[skip or 0 :])
    assert found.whole.not_text == places
    assert (found.given, found.transcript) == (2, tuple(own[skip or 0 :]))


# ---- garbage collection


def test_nothing_is_collected_until_the_last_thread_has_left() -> None:
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with uncollected():
            inside.set()
            leave.wait(100)

    thread = threading.Thread(target=other)
    assert gc.isenabled()
    with uncollected(), uncollected():
        thread.start()
        assert inside.wait(100)
        assert not gc.isenabled()
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()
