"""The ledger as a fold: against a simple model, and over rollovers."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Agent, SQLiteSession
from holdfast.agents.nesting.agent_tool import described, summary_of
from holdfast.errors import UserError
from holdfast.models.base import ModelAnswer
from holdfast.reading.streams.follower import Follower
from holdfast.task.data.calls import Outcome
from holdfast.task.data.children import ChildReport, ChildState, child_id
from holdfast.task.data.commands import Command, RunRequest
from holdfast.task.data.failures import Failure
from holdfast.task.data.head import TaskHead
from holdfast.task.data.records import (
    Entry,
    JournalEntry,
    Offset,
    OpenStep,
    SegmentRef,
    StepRecord,
    StepResult,
)
from holdfast.task.data.state import Carried, Described, TaskInput
from holdfast.task.data.wire import Advanced, EntriesRequest, ViewRequest
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.ledger.queue import problem
from holdfast.task.ledger.recording import (
    CHAINED_TOGETHER,
    CHUNK,
    LINES_KEPT,
    TEXTS_KEPT,
    KnownIds,
    Packed,
    StepLine,
    line_of,
    lines_after,
    pack,
    unpacked,
)
from holdfast.task.people import approvals
from holdfast.task.queries import readable
from holdfast.task.queries.pages import (
    MOST_PAGES,
    STEPS_SHOWN,
    call_label,
    details,
    details_of,
    entries_page,
    keep_last_page,
    step_view,
    take_last_page,
    title_of,
    view,
)
from holdfast.task.requests.command_effects import obey
from holdfast.values.base import ChainRef, canonical, extend
from holdfast.values.messages import Blob, ImagePart, Message, ToolCall, Usage, assistant
from holdfast.values.runs.verbs import VERBS
from holdfast.values.settings import Budget
from holdfast.values.steps import TaskStep
from tests.support.there import there

if TYPE_CHECKING:
    from holdfast.reading.reader import Reader

HEAD = TaskHead(agent="a")


def a_ledger(head: TaskHead = HEAD, **given: Any) -> Ledger:
    return Ledger(TaskInput(head=head, input="q", **given), task_id="t", now=1.0)


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
    ledger = a_ledger()
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
    ledger = a_ledger()
    sizes: list[int] = []
    for number in range(40):
        stepped(ledger, "more")
        ledger.s.queue = ledger.s.queue[:1]
        ledger.archived(SegmentRef(sha256=str(number), entries=len(ledger.log.entries)))
        ledger.log.lines = ()
        carried = ledger.carried()
        sizes.append(len(json.dumps(carried.wire())))
        ledger = a_ledger(carried=carried)
    assert sizes[-1] <= sizes[5] + 40


async def test_a_reader_that_skips_what_is_archived_goes_on_behind_it() -> None:
    ledger = a_ledger()
    stepped(ledger, "more")
    number = ledger.log.number
    ledger.archived(SegmentRef(sha256="s", entries=len(ledger.log.entries)))
    rolled = a_ledger(carried=ledger.carried())

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


def test_a_verb_without_an_effect_is_no_applied_command() -> None:
    for verb in VERBS.keys() - {"abandon"}:
        obey(a_ledger(), Command(id="c", verb=verb), now=2.0)
    with pytest.raises(NotImplementedError):  # the workflow's own
        obey(a_ledger(), Command(id="c", verb="abandon"), now=2.0)


def test_a_pause_after_an_event_takes_the_place_of_no_other() -> None:
    ledger = a_ledger()
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
    ledger = a_ledger()
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
    ledger = a_ledger()
    seen: list[str] = [ledger.status]
    ledger.s.paused = "ann"
    seen.append(ledger.status)
    ledger.begin(RunRequest(), now=2.0)
    ledger.fail(Failure(type="E", message="m"), now=3.0)
    seen.append(ledger.status)
    ledger.s.paused = ""
    ledger.retry(ledger.last_opened, RunRequest(), now=4.0)
    answer = ModelAnswer(message=assistant("", calls=(ToolCall(id="1", name="f"),)))
    result = StepResult(adds=("j0",), calls="j0")
    ledger.advanced(ledger.last_opened, Advanced(answer=answer, result=result))
    asked = approvals.ask(ledger, 1, 0, "unknown", now=5.0, text="?")
    seen.append(ledger.status)
    assert seen == ["running", "paused", "needs_attention", "waiting"]
    assert step_view(ledger, 0).approvals == (asked.id,)


def test_a_retry_may_bring_a_new_input_and_a_restart_drops_the_journal() -> None:
    ledger = a_ledger()
    ledger.begin(RunRequest(), now=2.0)
    paid = ModelAnswer(message=assistant("paid"))
    ledger.advanced(1, Advanced(result=None, request="r", answer=paid))
    ledger.fail(Failure(type="E", message="m"), now=3.0)
    ledger.retry(ledger.last_opened, RunRequest(input="new"), now=4.0)
    current = ledger.at(ledger.last_opened)
    assert (current.open.step.input, len(current.journal)) == ("new", 1)
    ledger.fail(Failure(type="E", message="m"), now=5.0)
    ledger.retry(ledger.last_opened, RunRequest(restart=True), now=6.0)
    current = ledger.at(ledger.last_opened)
    assert (current.open.step.input, current.journal, current.chain) == ("new", (), ChainRef())
    assert ledger.s.costs.usage.requests == 1


def test_a_step_that_is_started_again_next_to_another_keeps_its_answers_apart_from_those() -> None:
    ledger = a_ledger()
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
        ledger = a_ledger(images=(image,))
        ledger.begin(asked, now=2.0)
        assert ledger.at(ledger.last_opened).open.step.images == images


def test_a_budget_in_seconds_counts_from_the_creation_of_its_task() -> None:
    ledger = a_ledger(budget=Budget(max_seconds=4))
    assert not ledger.money.exceeded(now=4.9)
    assert ledger.money.exceeded(now=5.0) == "max_seconds=4"


def test_open_calls_that_were_recorded_by_their_ids_are_read() -> None:
    opened = OpenStep(step=TaskStep(step_id="s1"), unanswered=(ToolCall(id="c", name=""),))
    older = {**opened.wire(), "unanswered": ["c"]}
    assert OpenStep.model_validate(older) == opened


# ---- steps that wait for each other: circles are found, and links that cannot be kept named


@given(st.lists(st.lists(st.integers(0, 12), max_size=3), max_size=12))
def test_circles_are_found_and_nothing_else(waits: list[list[int]]) -> None:
    steps = [
        TaskStep(step_id=str(k), prev_steps=tuple(str(w) for w in each if w < len(waits)))
        for k, each in enumerate(waits)
    ]
    left = {step.step_id: set(step.prev_steps) for step in steps}
    while free := [id for id, before in left.items() if not before & left.keys()]:
        for id in free:
            del left[id]
    assert ("wait for each other" in problem(steps, queue=(), opened=(), known=())) == bool(left)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (TaskStep(step_id="a", prev_steps=("a",)), "wait for each other"),
        (TaskStep(step_id="a", prev_steps=("nobody",)), "'nobody'"),
        (TaskStep(step_id="b"), "taken by another step"),
        (TaskStep(step_id="done"), "'done' was used before"),
    ],
)
def test_links_that_cannot_be_kept_are_named(step: TaskStep, said: str) -> None:
    assert said in problem((TaskStep(step_id="b"), step), queue=(), opened=(), known=("done",))


# ---- the lines that are carried of archived steps


def record(n: int, output: object = "", **more: object) -> StepRecord:
    return StepRecord.model_validate(
        {"n": n, "step": TaskStep(step_id=f"s{n}"), "output": output, **more}
    )


def entries(*records: StepRecord) -> list[Entry]:
    return [Entry(step=each) for each in records]


@pytest.mark.parametrize(
    ("made", "output"),
    [
        (record(1, "a\n\n b"), "a b"),
        (record(1, "x" * 100), "x" * 39 + "…"),
        (record(1, {"a": [1]}), '{"a":[1]}'),
        (
            record(1, stored=Blob(sha256="f" * 64, size=99)),
            f"[99 bytes in the archive as {'f' * 11}…",
        ),
    ],
)
def test_a_line_has_the_beginning_of_the_output(made: StepRecord, output: str) -> None:
    assert line_of(made) == (1, "s1", (), output)


def test_a_line_names_the_tools_in_call_order_and_marks_effects() -> None:
    def call(name: str) -> ToolCall:
        return ToolCall(id=name, name=name)

    journal = JournalEntry(
        request="r", calls=(call("look"),), outcomes=(Outcome(content="l", effect="read"),)
    )
    made = record(
        1,
        journal=(journal,),
        calls=(call("pay"), call("refused")),
        outcomes=(
            Outcome(content="paid 7", effect="irreversible"),
            Outcome(at=0, attempts=0, effect="irreversible"),
        ),
        adds=(Message(role="tool", call_id="refused", content="rejected"),),
    )
    assert line_of(made) == (1, "s1", ("look", "pay!", "refused"), "rejected")


def test_no_part_of_a_secret_is_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "correcthorsebatterystaplezz9")
    made = record(1, "The word that you want is correcthorsebatterystaplezz9, and more")
    assert line_of(made).output == "The word that you want is [redacted], a…"


def test_lines_of_steps_that_were_undone_or_done_again_are_replaced() -> None:
    packed = lines_after((), entries(*(record(n, f"old {n}") for n in (1, 2, 3))), 3)
    again = [record(2, "new 2"), record(3, "undone"), record(3, "new 3"), record(4, "undone")]
    packed = lines_after(packed, entries(*again), 3)
    assert [line.output for line in unpacked(packed)] == ["old 1", "new 2", "new 3"]
    assert [line.n for line in unpacked(lines_after(packed, [], 1))] == [1]


def rolled(steps: int, every: int = 170) -> Iterator[Packed]:
    """Archive so many steps, some at a time; yield the packed lines each time."""
    packed: Packed = ()
    texts = [hashlib.sha256(bytes([k])).hexdigest() for k in range(250)]
    for first in range(1, steps + 1, every):
        last = min(first + every - 1, steps)
        made = [record(n, texts[n % len(texts)]) for n in range(first, last + 1)]
        packed = lines_after(packed, entries(*made), last)
        yield packed


def test_a_long_task_carries_little_more_than_a_short_one() -> None:
    sizes = [sum(map(len, packed)) for packed in rolled(10_000)]
    short, long = sizes[: 1000 // 170], sizes[3000 // 170 :]
    assert max(long) < 2 * max(short)


def test_the_newest_lines_have_outputs_and_the_oldest_are_dropped() -> None:
    steps = LINES_KEPT + 2 * CHUNK
    *_, packed = rolled(steps)
    kept = unpacked(packed)
    assert [line.n for line in kept] == list(range(steps - len(kept) + 1, steps + 1))
    assert LINES_KEPT <= len(kept) <= LINES_KEPT + CHUNK
    with_output = [line.n for line in kept if line.output]
    assert with_output == list(range(with_output[0], steps + 1))
    assert TEXTS_KEPT <= len(with_output) <= TEXTS_KEPT + CHUNK
    assert {line.step_id for line in kept} == {f"s{line.n}" for line in kept}


# ---- answers of queries stay below what the server takes, whatever a task holds

MOST = 1024 * 1024


def ledger_with(**fields: object) -> Ledger:
    return a_ledger(carried=Carried.model_validate({"created": 1.0, **fields}))


def test_ten_thousand_archived_steps_fit_into_an_answer_that_says_what_it_leaves_out() -> None:
    lines = [StepLine(n, f"s{n}", ("look",) * 8, "ж" * 40) for n in range(1, 10_001)]
    first, *rest = readable.completed_steps(ledger_with(steps=10_000, lines=pack(lines)))
    assert len(canonical([first, *rest])) < MOST
    assert first == {"not_shown": 10_000 - len(rest)}
    assert (rest[-1]["n"], rest[-1]["output"]) == (10_000, "ж" * 40)
    assert len(rest) > 3_000


def test_thousands_of_queued_steps_are_shown_from_the_first_as_far_as_they_fit() -> None:
    queue = tuple(TaskStep(step_id=f"s{n}", input="x" * 1000) for n in range(2500))
    *found, last = readable.upcoming_steps(ledger_with(queue=queue))
    assert len(canonical(found)) < MOST
    assert found[0]["step"] == "s0"
    assert last == {"not_shown": 2500 - len(found)}


def test_a_long_text_is_cut_and_its_length_is_said() -> None:
    [step] = readable.upcoming_steps(ledger_with(queue=(TaskStep(step_id="s1", input="x" * 5000),)))
    assert step["input"] == "x" * 1000 + "… [5000 characters]"


# ---- what a closing task hands over within its process: to be taken once, and only if it fits


def noted() -> Ledger:
    made = a_ledger()
    made.described(Described(snapshot="x"))
    made.note("feedback", now=2.0, text="go on")
    return made


def test_a_page_is_taken_once_by_its_own_run_and_not_for_another_ledger() -> None:
    ledger = noted()
    keep_last_page(ledger, "t", "run")
    assert take_last_page("t", "another", ledger.log.chain) is None
    page = there(take_last_page("t", "run", ledger.log.chain))
    assert page.entries == tuple(ledger.log.entries)
    assert page.ledger.length == len(ledger.log.entries) > 0
    assert page.task == ledger.task()
    assert take_last_page("t", "run", ledger.log.chain) is None
    keep_last_page(ledger, "t", "run")
    ledger.note("feedback", now=3.0, text="and on")
    assert take_last_page("t", "run", ledger.log.chain) is None


def test_of_too_many_pages_the_oldest_are_dropped() -> None:
    ledger = noted()
    for n in range(MOST_PAGES + 1):
        keep_last_page(ledger, f"t{n}", "run")
    assert take_last_page("t0", "run", ledger.log.chain) is None
    assert all(take_last_page(f"t{n}", "run", ledger.log.chain) for n in range(1, MOST_PAGES + 1))


# ---- labels and details for Temporal's UI


@pytest.mark.parametrize(
    ("arguments", "label"),
    [
        ('{"a": 121, "b": 3}', "multiply {a: 121, b: 3}"),
        ("{}", "multiply"),
        ("", "multiply"),
        ("[1, 2]", "multiply [1, 2]"),
        ("not JSON", "multiply not JSON"),
        ('{"a": {"b": [1]}}', 'multiply {a: {"b":[1]}}'),
        ('{"a": "two\\nlines"}', "multiply {a: two lines}"),
        ('{"a": "' + "x" * 5000, "multiply" + ' {"a": "' + "x" * 43 + "…"),
    ],
)
def test_a_call_is_labelled_with_its_arguments_on_one_short_line(
    arguments: str, label: str
) -> None:
    assert call_label(ToolCall(id="c", name="multiply", arguments=arguments)) == label


def test_secrets_are_in_no_label_and_no_title(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "very-secret-value-123"
    monkeypatch.setenv("MY_SERVICE_TOKEN", secret)
    call = ToolCall(
        id="c", name="log_in", arguments=f'{{"with": "{secret}", "password": "abc12345x"}}'
    )
    assert call_label(call) == "log_in {with: [redacted], password: [redacted]}"
    asked = f"Log in with {secret}, and then look at everything that there is in the account"
    assert secret not in title_of("a", asked) + str(details_of("a", asked))


def test_the_title_and_details_of_a_task_show_its_agent_and_input() -> None:
    assert (title_of("sums", "What is 2 + 2?"), details_of("sums", "What is 2 + 2?")) == (
        "sums: What is 2 + 2?",
        None,
    )
    assert details_of("sums", "What\nis it?") == "**Agent** `sums`\n\n> What\n> is it?"


def test_the_details_of_a_task_show_the_newest_steps_each_with_its_own_output() -> None:
    ledger = a_ledger()
    for n in range(1, STEPS_SHOWN + 3):
        ledger.begin(RunRequest(), now=2.0)
        answer = ModelAnswer(message=assistant(f"answer {n}"))
        result = StepResult(output=f"answer {n}", adds=("j0",), next=(TaskStep(),))
        ledger.advanced(ledger.last_opened, Advanced(answer=answer, result=result))
        ledger.finish(ledger.last_opened, now=3.0)
        shown = [line for line in details(ledger, "running").splitlines() if line.startswith("- ")]
        first = max(1, n - STEPS_SHOWN + 1)
        assert shown == [f"- s{k}: `answer {k}`" for k in range(first, n + 1)]


# ---- what a parent knows of its children, and how a call of an agent reads: the pure parts

PLACE = (0, 2, 1, 3)


def test_a_child_is_named_by_the_place_of_its_call_and_once() -> None:
    taken: dict[str, ChildState] = {}
    names: list[str] = []
    for _ in range(3):
        names.append(child_id("t", PLACE, taken))
        taken[names[-1]] = ChildState(place=PLACE, left=True)
    assert names == ["t~0.2.1.3", "t~0.2.1.3.2", "t~0.2.1.3.3"]


def test_a_report_from_before_the_newest_saying_is_dropped_unless_the_child_has_ended() -> None:
    child = ChildState(place=PLACE, said=2, told=True, status="needs_attention")
    assert child.after(ChildReport(id="c", status="needs_attention", heard=1)) is child
    heard = child.after(ChildReport(id="c", status="running", heard=2))
    assert (heard.status, heard.told) == ("running", False)
    ended = child.after(ChildReport(id="c", status="abandoned", closed=True, heard=0))
    assert ended.status == "abandoned"
    assert ended.after(ChildReport(id="c", status="running", heard=9)) is ended


def test_the_cost_of_a_child_is_the_tasks_but_its_turns_are_not() -> None:
    ledger = Ledger(TaskInput(head=TaskHead(agent="a"), input="q"), task_id="t", now=0)
    ledger.begin(RunRequest(), now=0)
    call = ToolCall(id="c1", name="helper", arguments="{}")
    answer = ModelAnswer(
        message=Message(role="assistant", calls=(call,)), usage=Usage(input_tokens=5)
    )
    ledger.advanced(1, Advanced(result=None, request="r", answer=answer, calls=(call,), asked="r2"))
    cost = Usage(requests=4, input_tokens=40)
    ledger.put_child("t~0.1.0.0", ChildState(place=(0, 1, 0, 0), status="answered", usage=cost))
    assert ledger.calls.tool_input(1, 0).child == "t~0.1.0.0"
    ledger.calls.outcome(1, 0, Outcome(content="x"))
    costs = ledger.s.costs
    assert (costs.usage.requests, costs.usage.input_tokens, costs.turns) == (5, 45, 1)
    assert ledger.at(1).outcomes[0].child == "t~0.1.0.0"
    before = ledger.queue.before()
    assert (before.usage, before.turns) == (Usage(), 0)
    ledger.calls.hand_back(1)
    assert (ledger.queue.before().usage, ledger.queue.before().turns) == (Usage(), 0)


def test_structured_input_is_plain_json_unless_there_is_something_to_say_of_it() -> None:
    schema = {"properties": {"a": {"type": "integer"}, "b": {"description": "The b."}}}
    assert summary_of({"properties": {"a": {"type": "integer"}}}) == ""
    assert summary_of({"description": "All.", **schema}) == "All.\n- b (any): The b."
    assert described({"a": 1}, None, "") == '{"a": 1}'
    summary = described({"a": 1}, None, summary_of(schema))
    assert "Input Schema Summary:\n\n- b (any): The b." in summary
    shown = described({"a": 1}, schema, "")
    assert "Input JSON Schema:" in shown
    assert '"integer"' in shown


@dataclass
class Pair:
    """Two numbers."""

    a: int
    b: int


def test_agents_of_tools_are_found_and_the_tool_says_what_it_is() -> None:
    low = Agent(name="low")
    nested = low.as_tool(parameters=Pair, needs_approval=True)
    agent = Agent(name="top", tools=[nested])
    assert agent.nested() == (low,)
    assert agent.team() == ()
    policy = agent.snapshot("m").policies["low"]
    assert (policy.agent, policy.needs_approval, policy.repeatable) == ("low", "yes", True)
    assert nested.parse('{"a": 1, "b": 2}') == {"a": 1, "b": 2}


def test_a_task_refuses_an_agent_as_a_tool_with_a_session_of_its_own() -> None:
    with pytest.raises(UserError, match="used where it is called outside of a task"):
        Agent(name="low").as_tool(session=SQLiteSession("s")).spec()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"on_stream": "no"}, "on_stream must be callable"),
        ({"on_stream_max_pending_events": 0}, "must be a positive integer"),
        ({"on_stream_max_pending_events": "9"}, "must be a positive integer or None; it was '9'"),
        ({"on_stream_max_pending_events": True}, "must be a positive integer"),
        ({"hooks": print}, "is not a RunHooks"),
        ({"parameters": 3}, "not an argument type"),
    ],
)
def test_options_of_the_nested_run_that_cannot_be_used_are_refused(
    options: dict[str, Any], text: str
) -> None:
    with pytest.raises(UserError, match=text):
        Agent(name="low").as_tool(**options)
