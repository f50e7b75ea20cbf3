"""Random lives of a task on the pure ledger: an undo is exact, and all is a fold of the records."""

import json
from decimal import Decimal
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.models.base import ModelAnswer
from holdfast.reading.audit.audit import audit_events, verify
from holdfast.task.data.calls import Outcome
from holdfast.task.data.children import ChildState
from holdfast.task.data.commands import Command, RunRequest
from holdfast.task.data.failures import Failure
from holdfast.task.data.head import TaskHead, ToolPolicy
from holdfast.task.data.records import Entry, ForkOf, SegmentRef, StepRecord, StepResult
from holdfast.task.data.state import Carried, Described, TaskInput
from holdfast.task.data.undo import Obstacle, QueueChange, UndoRequest, UndoState
from holdfast.task.data.wire import Advanced
from holdfast.task.happenings import StepEnded, StepLeft, happenings
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.ledger.queue import STEP_ID, pending, waiting
from holdfast.task.ledger.recording import usage_of
from holdfast.task.people import approvals
from holdfast.task.requests.command_effects import obey
from holdfast.task.undo import (
    active_steps,
    departure,
    effects_of_open,
    finish_undo,
    leave_open_steps,
    leave_step,
    path_to,
    to_undo,
    undoable,
)
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import extend
from holdfast.values.messages import ToolCall, Usage, assistant
from holdfast.values.runs.verbs import Verb
from holdfast.values.steps import TaskStep
from holdfast.workflows.children.children import ChildUndos
from holdfast.workflows.undo.undo import run_undo
from tests.support.scale import times

STEPS = st.builds(
    TaskStep,
    step_id=st.sampled_from("abcdef"),
    step_state=st.sampled_from([{}, {"k": 1}, {"k": True}, {"k": 1.0}]),
)
QUEUES = st.lists(STEPS, max_size=8)
POLICIES = {
    "look": ToolPolicy(effect="read"),
    "book": ToolPolicy(effect="reversible", has_undo=True),
}
GROWS = {
    *("branch", "approval_serial", "marks", "undo_notes", "path", "spent", "residue", "segment"),
    *("ledger", "automatic", "receipts", "paused", "paused_after", "seen", "approvals", "notes"),
    *("failure", "lines", "answer", "log", "since", "waits_since"),
}
"""What an undo does not bring back: the audit, what the undo adds, and how the queue is kept."""


def wires(queue: Any) -> list[Any]:
    return [step.wire() for step in queue]


def through_json(entry: Entry) -> Entry:
    return Entry.model_validate_json(json.dumps(entry.wire()))


@given(QUEUES, QUEUES)
def test_a_change_leads_from_one_queue_to_the_other_and_back(
    old: list[TaskStep], new: list[TaskStep]
) -> None:
    change = QueueChange.between(old, new, STEP_ID)
    change = type(change).model_validate_json(json.dumps(change.wire()))
    assert json.dumps(wires(change.forward(old))) == json.dumps(wires(new))
    assert json.dumps(wires(change.backward(new))) == json.dumps(wires(old))


def pictured(ledger: Ledger) -> list[str]:
    """Return the queue, all that waits beside it, and the state, as if no step were open.

    While none is, all else that an undo brings back comes before it.
    """
    s = ledger.s
    queue = wires(pending(s.opens, s.queue))
    short = json.dumps([queue, waiting(s).wire(), s.extra_state, s.transcript, s.done])
    if s.opens:
        return [short]
    return [json.dumps({k: v for k, v in s.wire().items() if k not in GROWS}), short]


def state_after(path: list[StepRecord]) -> dict[str, Any]:
    state: dict[str, Any] = {}
    for record in path:
        state = merge_patch.apply(state, record.patch)
    return state


class Whole:
    """A task, and what its steps found and left in whole, as the ledger does not keep it.

    Attributes:
        found: What each step of the branch found.
        left: The queue that each step of the branch left.
        alone: What the step in progress found, if it is alone.
        further: The follow-up that a request has queued, and what the task was before.
        paid: What all model calls have cost.
        shared: The part of it that another task has paid, which this one departs from.
        dropped: Steps that people have dropped: no other waits for them any more.
    """

    def __init__(self) -> None:
        self.given = TaskInput(head=TaskHead(agent="a"), input="q")
        self.ledger = Ledger(self.given, task_id="t", now=1.0)
        self.ledger.described(Described(snapshot="s", policies=POLICIES))
        self.archive: list[Entry] = []
        self.found: list[list[str]] = []
        self.left: list[list[Any]] = []
        self.alone: list[str] = []
        self.further: tuple[str, list[str]] = ("", [])
        self.paid, self.shared = Usage(), Usage()
        self.serial = 0
        self.dropped: set[str] = set()

    @property
    def entries(self) -> list[Entry]:
        return [*self.archive, *self.ledger.log.entries]

    @property
    def path(self) -> list[StepRecord]:
        return active_steps(self.entries)

    def begin(self, at: int, text: str | None) -> None:
        ready = self.ledger.queue.ready()
        if ready:
            if not self.ledger.s.opens:
                self.alone = pictured(self.ledger)
            step = ready[at % len(ready)]
            if step.step_id == self.further[0]:
                self.alone = self.further[1]
            self.further = ("", [])
            self.ledger.begin(RunRequest(step=step.step_id, input=text), now=2.0)

    def ask_further(self) -> None:
        """Ask a task that has answered for more."""
        s = self.ledger.s
        if s.answered and not s.queue and not s.opens:
            before = pictured(self.ledger)
            self.ledger.queue.ask_further(RunRequest(input="further"))
            self.further = (s.queue[-1].step_id, before)

    def fail(self, at: int) -> None:
        """Have a step in progress fail; it is tried again when it ends."""
        if opens := self.ledger.s.opens:
            failure = Failure(type="E", message="m")
            self.ledger.fail(failure, now=2.0, n=opens[at % len(opens)].n)
            assert self.ledger.status in ("needs_attention", "waiting", "running")

    def finish(
        self, at: int, count: int, *, takes_place: bool, last: bool = False, over: bool = False
    ) -> None:
        """Complete an open step; `over` says that the budget ends it."""
        opens = self.ledger.s.opens
        if not opens:
            return
        current = opens[at % len(opens)]
        if current.failure:
            self.ledger.retry(current.n, RunRequest(restart=bool(at % 2)), now=2.0)
            current = self.ledger.at(current.n)
        if over:
            current.limit = "finish"
        unready = [step for step in self.ledger.s.queue if not step.is_ready]
        self.serial += count
        known = [each.step_id for each in self.ledger.queue.upcoming()]
        # Every other step waits: for a step that is queued or open, or for the one before it.
        following = list[TaskStep]()
        for k in range(count):
            step_id, before = f"n{self.serial - k}", (*known, *(f.step_id for f in following))
            waits = (before[(at + k) % len(before)],) if k % 2 and before else ()
            ready = bool((at + k) % 3)
            following.append(TaskStep(step_id=step_id, prev_steps=waits, is_ready=ready))
        if takes_place and unready:
            following.append(unready[at % len(unready)].model_copy(update={"is_ready": True}))
        key = current.open.step.step_id
        calls = tuple(
            ToolCall(id=f"{key}.{i}", name=name, arguments="{}")
            for i, name in enumerate(("book", "look", "book")[: at % 4])
        )
        result = StepResult(
            output=key,
            echo=False,
            adds=(assistant(f"from {key}"),),
            calls=calls,
            next=tuple(following),
            last=last,
            patch={"set": {key: len(current.open.state)}},
        )
        usage = Usage(output_tokens=at, paid=Decimal(count) / 10**7, priced=count % 2)
        answer = ModelAnswer(message=assistant("said"), usage=usage)
        got = Advanced(request="r", answer=answer, result=result)
        assert self.ledger.advanced(current.n, got) is None
        self.paid += usage.model_copy(update={"requests": 1})
        for i in self.ledger.calls.missing(current.n):
            status: Any = "failed" if i == 2 else "done"
            outcome = Outcome(content="did", status=status, is_error=i == 2)
            self.ledger.calls.outcome(current.n, i, outcome)
        self.found.append(self.alone if current.alone else pictured(self.ledger))
        waited = len(self.ledger.s.followups)
        self.ledger.finish(current.n, now=3.0)
        left = wires(pending(self.ledger.s.opens, self.ledger.s.queue))
        # What was asked of the task meanwhile enters its queue now, and is none of a fork's.
        self.left.append(left[: len(left) - waited + len(self.ledger.s.followups)])

    def say(self, text: str, when: str) -> None:
        """Give feedback for the next model call, or a follow-up."""
        body = {"text": text, "when": when}
        assert not obey(self.ledger, Command(id="c", verb="feedback", by="", body=body), now=4.0)

    def command(self, verb: Verb, at: int) -> None:
        queue = self.ledger.s.queue
        if queue:
            step = queue[at % len(queue)].step_id
            self.dropped |= {step} if verb == "drop_step" else set()
            body = {"step": step, "input": f"edited {at}"}
            assert not obey(self.ledger, Command(id="c", verb=verb, by="", body=body), now=4.0)

    def carry(self) -> None:
        entries = [through_json(entry) for entry in self.ledger.log.entries]
        segment = SegmentRef(sha256="x", start=len(self.archive), entries=len(entries))
        self.archive += entries
        self.ledger.archived(segment)
        self.go_on(self.ledger.carried())

    def go_on(self, state: Carried) -> None:
        carried = Carried.model_validate_json(json.dumps(state.wire()))
        self.ledger = Ledger(
            self.given.model_copy(update={"carried": carried}), task_id="t", now=5.0
        )

    def undo(self, to: int, by: str = "", reason: str = "") -> None:
        steps = [undoable(record) for record in self.path]
        to %= len(steps) + 1
        opens = self.ledger.s.opens
        if to < len(steps):
            wanted = self.found[to]
        elif len(opens) == 1 and opens[0].alone:
            wanted = self.alone
        else:
            wanted = pictured(self.ledger)
        state = UndoState(asked=UndoRequest(to=to, by=by, reason=reason))
        effects = [effect for each in steps[to:] for _, effect in to_undo(each, POLICIES, state)]
        open_effects = [effect for each in opens for effect in effects_of_open(each, ())]
        assert all((e.call.name, e.status) == ("book", "done") for e in effects)
        assert {e.status for e in open_effects} <= {"done", "failed"}
        branch = self.ledger.s.branch
        leave_open_steps(self.ledger, now=6.0)
        for target in reversed(steps[to:]):
            leave_step(self.ledger, target)
        if self.further[0]:  # not begun: the queue has it in place of what was before
            wanted = wanted[-1:]
        assert pictured(self.ledger)[-len(wanted) :] == wanted
        self.ledger.s.undo = state
        finish_undo(self.ledger, (), now=7.0)
        assert self.ledger.s.branch == branch + 1
        assert "were undone" in self.ledger.s.notes[-1].text
        del self.found[to:], self.left[to:]
        self.further = ("", [])

    def check(self) -> None:
        """Check what always holds."""
        s, path, entries = self.ledger.s, self.path, self.entries
        assert [record.n for record in path] == list(range(1, s.steps + 1))
        messages = [message for record in path for message in record.adds]
        assert s.transcript == (len(messages), extend("", messages))
        assert messages[self.ledger.base :] == self.ledger.messages
        ids = [step.step_id for step in self.ledger.queue.upcoming()]
        assert len(ids) == len({*ids})
        done = {record.step.step_id for record in path}
        assert all(set(each.open.step.prev_steps) <= done | self.dropped for each in s.opens)
        assert state_after(path) == s.extra_state
        if s.answered:
            assert self.ledger.answer == path[-1].output
        self.check_costs()
        if s.fork is None:
            assert verify(entries) == []
            kinds = [event.kind for event in audit_events(entries)]
            assert kinds.count("step") == sum(bool(e.step or e.left) for e in entries)
            assert kinds[0] == "created"
            for record in [entry.step for entry in entries if entry.step is not None][-3:]:
                way = path_to(entries, record)
                assert way[-1] is record
                assert [each.n for each in way] == list(range(1, record.n + 1))
                assert record.branch <= s.branch

    def check_costs(self) -> None:
        """Whatever was undone or begun anew was paid; the records of all steps add up to it."""
        s = self.ledger.s
        assert self.ledger.money.spent == self.ledger.task().usage == self.paid
        assert self.ledger.task().branch_usage == s.costs.usage
        assert s.costs.usage.requests == s.costs.turns
        ended = [e for e in happenings(self.entries) if isinstance(e, StepEnded | StepLeft)]
        going = sum((usage_of(each.journal) for each in s.opens), Usage())
        assert sum((each.body.usage for each in ended), going) == self.shared + self.paid

    def fork(self, at: int, text: str | None) -> None:
        """Go on with a fork of one of the steps."""
        path = self.path
        if not path or self.ledger.s.opens:
            return
        path = path[: at % len(path) + 1]
        state = departure(
            path,
            state_after(path),
            SegmentRef(sha256="y"),
            fork=ForkOf(task="t", n=len(path)),
            text=text,
            feedback=None,
        )
        if text is None:
            assert wires(state.queue) == self.left[len(path) - 1]
        self.archive = [through_json(Entry(step=record)) for record in path]
        ended = [e for e in happenings(self.archive) if isinstance(e, StepEnded)]
        self.paid, self.shared = Usage(), sum((each.body.usage for each in ended), Usage())
        self.further = ("", [])
        self.found = [found[-1:] for found in self.found[: len(path)]]  # it has a head of its own
        del self.left[len(path) :]
        self.go_on(state)


KINDS = ["begin", "begin", "finish", "finish", "last", "edit_step", "drop_step", "carry", "undo"]
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from([*KINDS, "fork", "next_model_call", "queued", "fail", "further"]),
        st.integers(0, 9),
        st.integers(0, 4),
    ),
    max_size=40,
)


@given(ACTIONS)
@settings(
    max_examples=times(200, 4000), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
def test_undos_and_forks_bring_back_whole_queues_and_all_that_waited(
    actions: list[tuple[str, int, int]],
) -> None:
    whole = Whole()
    for kind, at, count in actions:
        match kind:
            case "begin":
                whole.begin(at, "other" if count == 4 else None)
            case "finish":
                whole.finish(at, count, takes_place=count > 1)
            case "last":
                whole.finish(at, 0, takes_place=False, last=True, over=count > 2)
            case "next_model_call" | "queued":
                whole.say(f"said {at % 3}", kind)
            case "edit_step" | "drop_step":
                whole.command(kind, at)
            case "carry":
                whole.carry()
            case "fail":
                whole.fail(at)
            case "further":
                whole.ask_further()
            case "fork":
                whole.fork(at, "asked" if count == 4 else None)
            case _:
                whole.undo(at)
        whole.check()
    whole.undo(0)


@pytest.mark.parametrize("queued", [0, 200])
def test_a_step_costs_the_same_however_many_are_queued(queued: int) -> None:
    whole = Whole()
    whole.begin(0, None)
    whole.finish(1, queued + 30, takes_place=False)
    sizes: list[int] = []
    for _ in range(10):
        whole.begin(0, None)
        whole.finish(0, 0, takes_place=False)
        newest = whole.ledger.log.entries[-1]
        sizes.append(len(json.dumps(newest.wire())))
    assert max(sizes) < 1500
    assert all(undoable(record).before.found is None for record in whole.path[1:])


# ---- what the search has found


def step(whole: Whole, *, last: bool = False) -> None:
    whole.begin(0, None)
    whole.finish(0, 0 if last else 1, takes_place=False, last=last)
    whole.check()


def notes(whole: Whole) -> list[str]:
    return [note.text for note in whole.ledger.s.notes]


def test_the_undo_of_an_open_step_leaves_no_note_beside_that_of_an_undo_that_goes_further() -> None:
    whole = Whole()
    step(whole)
    whole.begin(0, None)
    for to in (1, 0):
        whole.undo(to)
        whole.check()
    assert notes(whole) == ["Steps after number 0 were undone."]


def test_the_reason_of_an_undo_is_told_also_after_one_that_goes_further() -> None:
    whole = Whole()
    step(whole)
    whole.begin(0, None)
    whole.undo(1, by="ben", reason="wrong")
    whole.undo(0)
    assert [note.splitlines()[0] for note in notes(whole)] == [
        "Steps after number 1 were undone by ben.",
        "Steps after number 0 were undone.",
    ]
    whole.check()


def test_the_undo_of_a_follow_up_leaves_the_task_as_the_answer_left_it() -> None:
    whole = Whole()
    step(whole, last=True)
    for done in (False, True):
        whole.ask_further()
        whole.begin(0, None)
        if done:
            whole.finish(0, 0, takes_place=False, last=True)
            whole.carry()
        whole.undo(1)
        assert whole.ledger.s.answered
        assert not whole.ledger.s.queue
        whole.check()


def test_the_way_to_a_step_leaves_out_what_was_undone_before_it() -> None:
    whole = Whole()
    for _ in range(2):
        step(whole)
        whole.undo(0)
    step(whole)


# ---- an undo that ends before it begins, and the questions that it has asked by then

CALL = ToolCall(id="k1", name="book", arguments="{}")


class InTheWay:
    """Children that stand in the way of an undo."""

    def recall(self, _targets: Any) -> None:
        """Have none in the archive."""

    def of(self, _targets: Any) -> list[Any]:
        """Have no call of the steps that are to be undone."""
        return []

    def all_of(self, _targets: Any) -> list[Any]:
        """Have no call of the steps that are left."""
        return []

    def forget(self, _targets: Any) -> None:
        """Know nothing to forget."""

    async def stop(self, _names: Any) -> list[Obstacle]:
        """Say what stands in the way, one of them unknown."""
        return [Obstacle(text="task 'c' is closed"), Obstacle(text="odd words", is_unknown=True)]


def undoing(**fields: Any) -> Ledger:
    """Make a task with an undo in progress, which has asked about its call."""
    ledger = Ledger(TaskInput(head=TaskHead(agent="a"), input="q"), task_id="t", now=1.0)
    ledger.described(Described(snapshot="s"))
    ledger.s.undo = UndoState(asked=UndoRequest(to=0), **fields)
    approvals.ask(ledger, 1, 0, "undo", now=2.0, call=CALL)
    return ledger


async def end(ledger: Ledger) -> str:
    """Take the undo to its end; return why it was refused, or empty."""
    ledger.put_child("c", ChildState(place=(0, 1, 0, 0), closed=True))
    failure = await run_undo(ledger, cast("ChildUndos", InTheWay()))
    assert ledger.s.undo is None
    return failure.message if failure is not None else ""


async def test_a_refused_undo_leaves_no_question() -> None:
    ledger = undoing()
    said = await end(ledger)
    assert "Undone before it: nothing. In the way:\n- task 'c' is closed\n- odd words\n" in said
    assert approvals.pending(ledger) == []


async def test_what_is_to_be_checked_after_an_undo_is_what_is_unknown_whatever_its_words_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.workflows.undo.undo.now", lambda: 3.0)
    ledger = Ledger(TaskInput(head=TaskHead(agent="a"), input="q"), task_id="t", now=1.0)
    ledger.described(Described(snapshot="s"))
    ledger.s.undo = UndoState(asked=UndoRequest(to=0, residue="keep"))
    assert await end(ledger) == ""
    events = [entry.event for entry in ledger.log.entries if entry.event is not None]
    [undone] = [event for event in events if event.kind == "undone"]
    assert undone.body["remains"] == ["task 'c' is closed", "odd words"]
    assert undone.body["check"] == ["odd words"]


async def test_an_undo_that_is_refused_half_way_tells_what_it_has_undone() -> None:
    ledger = undoing(done=("0.1.0.1",), undone=("book({})",))
    assert "Undone before it: book({})." in await end(ledger)
    assert ledger.s.undone_effects == ("0.1.0.1",)
    assert any("book({})" in note.text for note in ledger.s.notes)


def test_a_question_about_an_undo_is_none_about_a_call_at_the_same_place() -> None:
    ledger = undoing()
    assert approvals.latest(ledger, 1, 0) is None
    assert approvals.latest(ledger, 1, 0, "undo") is not None
    asked = approvals.ask(ledger, 1, 0, "tool", now=3.0, call=CALL)
    approvals.ask(ledger, 1, 0, "undo", now=4.0, call=CALL)
    assert approvals.latest(ledger, 1, 0) == asked
