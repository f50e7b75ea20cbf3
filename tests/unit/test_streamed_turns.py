"""Turns of streamed runs: what they wait for, and what becomes of a stop."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.models.base import Delta, ModelAnswer
from holdfast.models.draft import Draft, deltas_of
from holdfast.reading.streams.hub import (
    LocalHub,
    LocalTurns,
    Place,
    StreamedTurns,
    StreamKey,
    read_progress,
    write_progress,
)
from holdfast.reading.streams.raw import AnswerEvents, Raw, to_openai
from holdfast.reading.streams.reader import StepUndoneStreamEvent
from holdfast.reading.streams.timeline import undone
from holdfast.task.data.records import Entry, EventRecord, Mark, Offset, StepRecord
from holdfast.task.happenings import StepsUndone, noted_of
from holdfast.values.messages import Message, ToolCall
from holdfast.values.steps import TaskStep
from tests.support.there import there

NEVER = 1000.0


class Gates:
    """One streamed run, and the steps that want to begin."""

    def __init__(self) -> None:
        self.hub = LocalHub()
        self.all = LocalTurns(self.hub)
        self.all.patience = NEVER
        self.run = self.more()

    def more(self) -> StreamedTurns:
        made = StreamedTurns("task", self.all)
        made.watch()
        return made

    def step(self, n: int, *, branch: int = 0) -> asyncio.Task[bool]:
        return asyncio.create_task(self.all.may_begin("task", Place(branch, n)))


@pytest.fixture
async def gates() -> AsyncGenerator[Gates]:
    async with asyncio.timeout(100):
        yield Gates()


async def waits(step: asyncio.Task[bool]) -> bool:
    """Return whether a step still waits once all that is ready has run."""
    for _ in range(20):
        await asyncio.sleep(0)
    return not step.done()


async def begins(step: Awaitable[bool]) -> bool:
    return await step


async def test_a_turn_begins_when_all_readers_have_come_back(gates: Gates) -> None:
    one, two = gates.run.read(), gates.run.read()
    step = gates.step(2)
    one.came_back(2)
    two.came_back(1)
    assert await waits(step)
    two.came_back(2)
    assert await begins(step)


async def test_neither_the_first_turn_waits_nor_one_that_is_tried_again(gates: Gates) -> None:
    reading = gates.run.read()
    assert await gates.step(1)
    reading.came_back(2)
    assert await gates.step(2)
    reading.came_back(1)
    assert await gates.step(2)
    again = gates.step(2, branch=1)
    assert await waits(again)
    again.cancel()


async def test_a_turn_waits_for_nobody_who_has_ended(gates: Gates) -> None:
    reading = gates.run.read()
    step = gates.step(2)
    assert await waits(step)
    reading.end()
    assert await begins(step)
    assert await gates.all.may_begin("another", Place(0, 2))


@pytest.mark.parametrize("fails", [True, False])
async def test_a_consumer_counts_while_it_may_come_back(gates: Gates, fails: bool) -> None:
    reading = gates.run.read()

    async def consume() -> None:
        reading.hand_over()
        if fails:
            raise RuntimeError("the consumer is broken")

    await asyncio.gather(asyncio.create_task(consume()), return_exceptions=True)
    step = gates.step(2)
    assert await waits(step) is not fails
    reading.came_back(2)
    assert await begins(step)
    later = gates.step(3)
    assert await waits(later)
    later.cancel()


async def test_a_late_reader_holds_up_one_turn_until_it_has_come_back(gates: Gates) -> None:
    reading = gates.run.read()
    gates.all.patience = 0.01
    assert await gates.step(2)
    gates.all.patience = NEVER
    assert await gates.step(3)
    reading.came_back(3)
    step = gates.step(4)
    assert await waits(step)
    step.cancel()


async def test_a_stop_that_is_taken_keeps_what_has_not_begun_once(gates: Gates) -> None:
    gates.run.read().came_back(9)
    assert await gates.step(2)
    gates.run.stop()
    assert await gates.step(2)
    step = gates.step(3)
    assert await waits(step)
    gates.run.end()
    gates.run.stopped(is_taken=True)
    assert not await step
    assert not await gates.step(4)  # it was on its way when the run was over for its caller
    assert await gates.step(3)  # the task wants it again: it was resumed


@pytest.mark.parametrize("how", ["resumed", "late"])
async def test_a_stop_holds_until_the_task_goes_on(gates: Gates, how: str) -> None:
    if how == "late":
        gates.all.patience = 0.0
    gates.run.stop()
    gates.run.stopped(is_taken=True)
    gates.run.end()
    gates.all.patience = NEVER
    if how == "resumed":
        gates.all.resume("task")
    assert await gates.step(2)


# ---- events of answers: the same at the same places, however an answer comes

KEY = StreamKey("task", 3, 0)
CALLS = (ToolCall(id="c1", name="look", arguments='{"a": 1}'), ToolCall(id="c2", name="go"))


def answer(text: str, calls: int = 0, reasoning: str = "", refusal: str = "") -> ModelAnswer:
    items: tuple[dict[str, Any], ...] = ()
    if reasoning:
        summary = [{"type": "summary_text", "text": reasoning}]
        items = ({"type": "reasoning", "id": "rs_1", "summary": summary},)
    message = Message(role="assistant", content=text or refusal, calls=CALLS[:calls], items=items)
    return ModelAnswer(message=message, refusal=refusal)


answers = st.builds(
    answer, text=st.text(max_size=12), calls=st.integers(0, 2), reasoning=st.text(max_size=5)
)


def whole(made: ModelAnswer) -> list[Raw]:
    return list(AnswerEvents("1_0").whole(made))


def spelled(raws: list[Raw]) -> list[tuple[Any, ...]]:
    """Write events one character each, so that the cut into deltas does not matter."""
    found: list[tuple[Any, ...]] = []
    for raw in raws:
        kind = raw.data["type"]
        if kind.endswith(".delta"):
            start = raw.place - raw.size + 1
            found += [(start + i, kind, char) for i, char in enumerate(raw.data["delta"])]
        else:
            found.append((raw.place, kind))
    return found


@given(answers, st.integers(0, 60), st.booleans())
def test_reading_goes_on_behind_any_place(made: ModelAnswer, at: int, behind: bool) -> None:
    raws = whole(made)
    place = at + (1 << 23 if behind else 0)
    rest = [left for raw in raws if (left := raw.after(place)) is not None]
    assert spelled(rest) == [event for event in spelled(raws) if event[0] > place]


@given(answers)
def test_reasoning_that_is_not_given_back_moves_nothing_else(made: ModelAnswer) -> None:
    if not made.message.content and not made.message.calls:
        return  # then there is nothing else
    behind = [event for event in spelled(whole(made)) if event[0] > 1 << 23]
    plain = made.model_copy(update={"message": made.message.model_copy(update={"items": ()})})
    assert [event for event in spelled(whole(plain)) if event[0] > 1 << 23] == behind


def test_events_are_the_clients_own_objects() -> None:
    events = [to_openai(raw.data) for raw in whole(answer("text", 1, "hm"))]
    last = events[-1]
    assert type(last).__name__ == "ResponseCompletedEvent"
    assert [item.type for item in last.response.output] == ["reasoning", "message", "function_call"]
    assert (last.response.output_text, last.response.output[2].call_id) == ("text", "c1")
    done = [e.item for e in events if e.type == "response.output_item.done"]
    assert [item.type for item in done] == ["reasoning", "message", "function_call"]
    added = {e.item.id for e in events if e.type == "response.output_item.added"}
    assert {item.id for item in done} == added == {item.id for item in last.response.output}


def test_a_refusal_has_events_of_its_own() -> None:
    events = [to_openai(raw.data) for raw in whole(answer("", refusal="no"))]
    assert [e.delta for e in events if e.type == "response.refusal.delta"] == ["no"]
    assert events[-1].response.output[0].content[0].refusal == "no"


@given(answers, st.integers(1, 4))
def test_an_answer_gives_the_events_of_its_record_live_and_in_the_pieces_in_which_it_was_told(
    made: ModelAnswer, size: int
) -> None:
    told, recorded, answer = deltas_of(made, size=size), spelled(whole(made)), AnswerEvents("1_0")
    live = spelled([raw for delta in told for raw in answer.add(delta)])
    assert live == recorded[: len(live)]
    events = list(AnswerEvents("1_0").whole(made, told))
    assert spelled(events) == recorded
    pieces = [raw.data["delta"] for raw in events if "delta" in raw.data]
    assert pieces == [delta.text for delta in told if delta.text and delta.kind != "item"]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))))
def test_offsets_grow_as_places_do(places: list[tuple[int, int, int]]) -> None:
    offsets = [Offset(*place) for place in places]
    assert sorted(offsets) == sorted(offsets, key=int)


@given(answers, st.integers(1, 4))
def test_a_heartbeat_carries_an_answer(made: ModelAnswer, size: int) -> None:
    draft = Draft(attempt=2)
    for delta in deltas_of(made, size=size):
        draft.add(delta)
    said = write_progress(KEY, draft.window())
    got = there(read_progress("task", said))
    assert (got[0], got[1].attempt) == (KEY, 2)
    assert list(got[1].after(0)) == deltas_of(made)


async def test_a_hub_wakes_its_readers_from_another_thread() -> None:
    hub = LocalHub()
    with hub.listening("task") as news:
        first = hub.begin(KEY, 1)
        await asyncio.to_thread(hub.publish, KEY, first, Delta("text", "hello"))
        async with asyncio.timeout(100):
            await news.wait()
        assert list(there(hub.read(KEY, 2)).after(2)) == [Delta("text", "llo")]
        second = hub.begin(KEY, 2)
        again = there(hub.read(KEY, 5))
        assert (again.attempt, again.at, again.deltas) == (2, 0, ())
        hub.end(KEY, second)
        assert hub.read(KEY) is None


async def test_an_attempt_that_was_given_up_neither_adds_to_the_next_one_nor_ends_it() -> None:
    hub = LocalHub()
    lost = hub.begin(KEY, 1)
    hub.publish(KEY, lost, Delta("text", "Hello "))
    newest = hub.begin(KEY, 1)  # the step was undone and is run anew: a first attempt again
    hub.publish(KEY, newest, Delta("text", "Good "))
    hub.publish(KEY, lost, Delta("text", "world"))
    hub.end(KEY, lost)
    hub.publish(KEY, newest, Delta("text", "day"))
    assert "".join(delta.text for delta in there(hub.read(KEY)).deltas) == "Good day"
    hub.end(KEY, newest)
    assert hub.read(KEY) is None


def test_an_undo_leaves_what_ran_beside_the_undone_step_standing() -> None:
    def entry(n: int, *numbers: int) -> Entry:
        marks = tuple(Mark(number, "call") for number in numbers)
        return Entry(
            step=StepRecord(n=n, step=TaskStep(), started=0, ended=0, digest="", marks=marks)
        )

    event = EventRecord(kind="undone", at=0, body={"n": 2}, number=8)
    undo = noted_of(event)
    assert isinstance(undo, StepsUndone)
    told = undone([entry(1, 1, 3), entry(2, 2, 4), Entry(event=event), entry(2, 9)], undo, "a")
    assert int(told.at) == int(Offset(8))
    pairs = [(first >> 34, end >> 34) for first, end in told.void]
    assert (pairs, told.agent) == ([(2, 3), (4, 8)], "a")
    shown = StepUndoneStreamEvent(steps=("s2",), void=told.void)
    assert [shown.is_void(int(Offset(mark, 1, 5))) for mark in range(1, 9)] == [
        mark in (2, 4, 5, 6, 7) for mark in range(1, 9)
    ]
