"""The ledger as a fold: against a simple model, and over rollovers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pytest

from holdfast.models.base import ModelAnswer
from holdfast.reading.streams.follower import Follower
from holdfast.task.data.calls import Outcome
from holdfast.task.data.commands import Command, RunRequest
from holdfast.task.data.failures import Failure
from holdfast.task.data.head import TaskHead
from holdfast.task.data.records import Entry, Offset, OpenStep, SegmentRef, StepResult
from holdfast.task.data.state import TaskInput
from holdfast.task.data.wire import Advanced, EntriesRequest, ViewRequest
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.ledger.recording import CHAINED_TOGETHER, KnownIds
from holdfast.task.people import approvals
from holdfast.task.queries.pages import entries_page, step_view, view
from holdfast.task.requests.command_effects import obey
from holdfast.values.base import ChainRef, extend
from holdfast.values.messages import ImagePart, Message, ToolCall, Usage, assistant
from holdfast.values.settings import Budget
from holdfast.values.steps import TaskStep

if TYPE_CHECKING:
    from holdfast.reading.reader import Reader

HEAD = TaskHead(agent="a")


def stepped(ledger: Ledger, text: str) -> None:
    """Run one step that says this, calls a tool, and queues another step."""
    ledger.begin(RunRequest(input=text), now=2.0)
    n = ledger.last_opened
    calls = (ToolCall(id=f"{n}", name="f"),)
    answer = ModelAnswer(message=assistant(f"answer {n}", calls=calls), usage=Usage(input_tokens=3))
    result = StepResult(adds=("input", "j0"), calls="j0", next=(TaskStep(), TaskStep()))
    ledger.advanced(n, Advanced(answer=answer, result=result))
    ledger.calls.outcome(n, 0, Outcome(content="found"))
    ledger.finish(n, now=3.0)


def test_pages_give_every_message_and_entry_once_and_a_large_message_alone() -> None:
    ledger = Ledger(TaskInput(head=HEAD, input="q"), task_id="t", now=1.0)
    texts = [letter * 300_000 for letter in "xy"] + ["z" * 20_000] * 9
    for text in texts:
        stepped(ledger, text)
    ids = [step.step_id for step in ledger.s.queue]
    assert len(ids) == len(set(ids))  # none is ever used twice
    entries: list[Entry] = []
    while True:
        page = entries_page(ledger, EntriesRequest(skip=len(entries)))
        entries.extend(page.entries)
        if not page.more:
            break
    assert entries == ledger.log.entries
    messages: list[Message] = []
    length, pages = ledger.s.transcript.length, list[int]()
    while len(messages) < length:
        found = view(ledger, ViewRequest(have=len(messages), upto=length)).messages
        messages.extend(found)
        pages.append(len(found))
    assert messages == ledger.messages
    assert [m.text for m in messages if m.role == "user"] == texts
    assert (pages[0], max(pages) > 3) == (1, True)


def test_what_a_task_carries_stays_small_when_it_grows() -> None:
    ledger = Ledger(TaskInput(head=HEAD, input="q"), task_id="t", now=1.0)
    sizes: list[int] = []
    for number in range(40):
        stepped(ledger, "more")
        ledger.s.queue = ledger.s.queue[:1]
        ledger.archived(SegmentRef(sha256=str(number), entries=len(ledger.log.entries)))
        ledger.log.lines = ()
        carried = ledger.carried()
        sizes.append(len(json.dumps(carried.wire())))
        given = TaskInput(head=HEAD, input="q", carried=carried)
        ledger = Ledger(given, task_id="t", now=1.0)
    assert sizes[-1] <= sizes[5] + 40


async def test_a_reader_that_skips_what_is_archived_goes_on_behind_it() -> None:
    ledger = Ledger(TaskInput(head=HEAD, input="q"), task_id="t", now=1.0)
    stepped(ledger, "more")
    number = ledger.log.number
    ledger.archived(SegmentRef(sha256="s", entries=len(ledger.log.entries)))
    given = TaskInput(head=HEAD, input="q", carried=ledger.carried())
    rolled = Ledger(given, task_id="t", now=2.0)

    class Reading:
        async def query(self, _id: str, _name: str, _kind: Any, asked: Any, **_: Any) -> Any:
            return entries_page(rolled, asked)

    follower = Follower(cast("Reader", Reading()), lambda _: never(), "t")
    await follower.skip()
    assert follower.after == number > 0


async def never() -> Any:
    """Give no answer of a task."""


def pause(ledger: Ledger, by: str, after: object = None) -> str:
    body: dict[str, Any] = {} if after is None else {"after": after}
    return obey(ledger, Command(id="c", verb="pause", by=by, body=body), now=2.0)


def test_a_pause_after_an_event_takes_the_place_of_no_other() -> None:
    ledger = Ledger(TaskInput(head=HEAD, input="q"), task_id="t", now=1.0)
    assert "offset" in pause(ledger, "ann", "late")
    assert "offset" in pause(ledger, "ann", -1)
    assert ledger.paused == ""
    assert pause(ledger, "ann") == ""
    assert pause(ledger, "eve", int(Offset(7))) == ""
    assert (ledger.paused, ledger.s.paused_after) == ("ann", 7)
    assert pause(ledger, "joe") == ""
    assert (ledger.paused, ledger.s.paused_after) == ("joe", 7)
    obey(ledger, Command(id="r", verb="resume"), now=3.0)
    assert (ledger.paused, ledger.s.paused_after) == ("", 0)


def test_only_the_pause_of_a_run_that_stopped_after_its_turn_is_marked_as_such() -> None:
    ledger = Ledger(TaskInput(head=HEAD, input="q"), task_id="t", now=1.0)
    of_run: dict[str, Any] = {"after": 7, "run": True, "reason": "any words"}
    obey(ledger, Command(id="1", verb="pause", by="Runner", body=of_run), now=2.0)
    assert ledger.task().paused_by_run
    pause(ledger, "ann")
    obey(ledger, Command(id="2", verb="pause", by="Runner", body=of_run), now=2.0)
    assert (ledger.paused, ledger.task().paused_by_run) == ("ann", False)
    obey(ledger, Command(id="3", verb="resume"), now=3.0)
    obey(ledger, Command(id="4", verb="pause", by="Runner", body=of_run), now=4.0)
    obey(ledger, Command(id="5", verb="resume"), now=5.0)
    assert not ledger.task().paused_by_run


def test_the_status_of_a_task_says_what_stands_in_its_way() -> None:
    ledger = Ledger(TaskInput(head=HEAD, input="q"), task_id="t", now=1.0)
    seen: list[str] = [ledger.status]
    ledger.s.paused = "ann"
    seen.append(ledger.status)
    ledger.begin(RunRequest(), now=2.0)
    ledger.fail(Failure(type="E", message="m"), now=3.0)
    seen.append(ledger.status)
    ledger.s.paused = ""
    ledger.retry(ledger.last_opened, RunRequest(), now=4.0)
    answer = ModelAnswer(message=assistant("", calls=(ToolCall(id="1", name="f"),)))
    ledger.advanced(
        ledger.last_opened, Advanced(answer=answer, result=StepResult(adds=("j0",), calls="j0"))
    )
    asked = approvals.ask(ledger, 1, 0, "unknown", now=5.0, text="?")
    seen.append(ledger.status)
    assert seen == ["running", "paused", "needs_attention", "waiting"]
    assert step_view(ledger, 0).approvals == (asked.id,)


def test_a_retry_may_bring_a_new_input_and_a_restart_drops_the_journal() -> None:
    ledger = Ledger(TaskInput(head=HEAD, input="q"), task_id="t", now=1.0)
    ledger.begin(RunRequest(), now=2.0)
    ledger.advanced(
        ledger.last_opened,
        Advanced(result=None, request="r", answer=ModelAnswer(message=assistant("paid"))),
    )
    ledger.fail(Failure(type="E", message="m"), now=3.0)
    ledger.retry(ledger.last_opened, RunRequest(input="new"), now=4.0)
    current = ledger.find(ledger.last_opened)
    assert current is not None
    assert (current.open.step.input, len(current.journal)) == ("new", 1)
    ledger.fail(Failure(type="E", message="m"), now=5.0)
    ledger.retry(ledger.last_opened, RunRequest(restart=True), now=6.0)
    current = ledger.find(ledger.last_opened)
    assert current is not None
    assert (current.open.step.input, current.journal, current.chain) == ("new", (), ChainRef())
    assert ledger.s.costs.usage.requests == 1


def test_a_step_that_is_started_again_next_to_another_keeps_its_answers_apart_from_those() -> None:
    ledger = Ledger(TaskInput(head=TaskHead(agent="a"), input="q"), task_id="t", now=1.0)
    ledger.s.queue = (*ledger.s.queue, TaskStep(step_id="s2", input="r"))
    ledger.begin(RunRequest(), now=2.0)
    ledger.begin(RunRequest(), now=3.0)
    ledger.fail(Failure(type="E", message="m"), now=4.0, n=2)
    ledger.retry(2, RunRequest(restart=True), now=5.0)
    assert [current.lane for current in ledger.s.opens] == [0, 1]


def test_a_set_of_known_ids_is_carried_and_forgets_the_first() -> None:
    known = KnownIds("", 3)
    for id in "abcd":
        known.add(id)
    again = KnownIds(known.packed(), 3)
    assert [id in again for id in "abcd"] == [False, True, True, True]
    again.add("e")
    assert "b" not in again


@pytest.mark.parametrize("events", [0, 1, CHAINED_TOGETHER - 2, CHAINED_TOGETHER, 130])
def test_the_chain_of_the_ledger_is_that_of_all_its_entries(events: int) -> None:
    ledger = Ledger(TaskInput(head=HEAD), task_id="t", now=1.0)
    for i in range(events):
        ledger.note("paused", now=2.0, text=str(i))
    assert ledger.log.chain == ChainRef(len(ledger.log.entries), extend("", ledger.log.entries))
    ledger.note("resumed", now=3.0)
    kept = ledger.carried()
    assert kept.log.ledger == ChainRef(events + 2, extend("", ledger.log.entries))
    further = Ledger(TaskInput(head=HEAD, carried=kept), task_id="t", now=4.0)
    further.note("paused", now=5.0)
    assert further.log.chain == ChainRef(events + 3, extend("", further.log.entries))


def test_a_step_that_gets_a_new_input_loses_the_images_of_the_old_one() -> None:
    image = ImagePart(kind="image", url="https://example.com/a.png")
    for asked, images in [(RunRequest(input="new"), ()), (RunRequest(), (image,))]:
        ledger = Ledger(TaskInput(head=HEAD, input="q", images=(image,)), task_id="t", now=1.0)
        ledger.begin(asked, now=2.0)
        assert ledger.at(ledger.last_opened).open.step.images == images


def test_a_budget_in_seconds_counts_from_the_creation_of_its_task() -> None:
    given = TaskInput(head=TaskHead(agent="a"), input="q", budget=Budget(max_seconds=4))
    ledger = Ledger(given, task_id="t", now=1.0)
    assert not ledger.money.exceeded(now=4.9)
    assert ledger.money.exceeded(now=5.0) == "max_seconds=4"


def test_open_calls_that_were_recorded_by_their_ids_are_read() -> None:
    opened = OpenStep(step=TaskStep(step_id="s1"), unanswered=(ToolCall(id="c", name=""),))
    older = {**opened.wire(), "unanswered": ["c"]}
    assert OpenStep.model_validate(older) == opened
