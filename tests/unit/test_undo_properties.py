"""Random lives of a task on the pure ledger: an undo is exact, and all is a fold of the records."""

import copy
import json
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.models.base import ModelAnswer
from holdfast.reading.audit.audit import audit_events, verify
from holdfast.task.data.calls import Outcome
from holdfast.task.data.commands import Command, RunRequest
from holdfast.task.data.failures import Failure
from holdfast.task.data.head import TaskHead, ToolPolicy
from holdfast.task.data.records import Entry, SegmentRef, StepResult
from holdfast.task.data.state import Carried, Described, TaskInput
from holdfast.task.data.undo import Undoable, UndoRequest, UndoState
from holdfast.task.data.wire import Advanced
from holdfast.task.happenings import StepEnded, StepLeft, happenings
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.ledger.recording import usage_of
from holdfast.task.requests.command_effects import obey
from holdfast.task.undo import (
    active_messages,
    active_steps,
    effects_of_open,
    finish_undo,
    leave_open_steps,
    leave_step,
    path_to,
    to_undo,
    undoable,
)
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import Json
from holdfast.values.messages import NOTHING, ToolCall, Usage, assistant
from holdfast.values.runs.verbs import Verb
from holdfast.values.steps import TaskStep
from tests.support.scale import times

POLICIES = {
    "look": ToolPolicy(effect="read"),
    "book": ToolPolicy(effect="reversible", has_undo=True),
}
WORDS = st.sampled_from(["alpha", "beta", "gamma", "delta"])
VALUES = st.one_of(st.integers(0, 3), WORDS, st.lists(st.integers(0, 3), max_size=3))
STATES = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


GROWS = {
    *("branch", "approval_serial", "marks", "undo_notes", "path", "spent", "residue", "segment"),
    *("ledger", "automatic", "receipts", "paused", "paused_after", "seen", "approvals", "notes"),
    *("failure", "lines", "answer"),
}
"""What an undo does not bring back: the audit, and what the undo itself adds."""


def picture(ledger: Ledger) -> dict[str, Any]:
    """Return what undo must restore byte for byte: all but the audit and what undo itself adds."""
    wire: dict[str, Any] = ledger.s.wire()
    notes = [n.text for n in ledger.s.notes if "were undone" not in n.text]
    return {**{k: v for k, v in wire.items() if k not in GROWS}, "notes": notes}


class Life(RuleBasedStateMachine):
    """One task, driven as the workflow drives it."""

    @initialize(state=STATES)
    def create(self, state: dict[str, Json]) -> None:
        self.clock = 1.0
        given = copy.deepcopy(state)
        self.given = TaskInput(head=TaskHead(agent="a"), input="q", extra_state=given)
        self.ledger = Ledger(self.given, task_id="t", now=self.clock)
        self.ledger.described(Described(snapshot="s", policies=POLICIES))
        self.archive: list[Entry] = []
        self.pictures: list[dict[str, Any]] = []
        self.opened: dict[str, Any] | None = None
        self.further: tuple[str, dict[str, Any]] | None = None
        self.paid = Usage()

    # ---- helpers

    def tick(self) -> float:
        self.clock += 1
        return self.clock

    @property
    def current(self) -> Any:
        return self.ledger.find(self.ledger.last_opened)

    @property
    def entries(self) -> list[Entry]:
        return [*self.archive, *self.ledger.log.entries]

    def command(self, verb: Verb, **body: Json) -> None:
        sent = Command(id="", verb=verb, by="ann", body=body)
        assert not obey(self.ledger, sent, now=self.tick())

    # ---- a step's life

    @precondition(lambda self: self.current is None and self.ledger.s.queue)
    @rule(pick=st.integers(0, 5))
    def begin(self, pick: int) -> None:
        self.opened = picture(self.ledger)
        queue = self.ledger.s.queue
        step = queue[pick % len(queue)]
        if self.further is not None and self.further[0] == step.step_id:
            # Notes, and inputs that wait for the answer, may have come since.
            same = {k: self.opened[k] for k in ("notes", "followups") if k in self.opened}
            known = {k: v for k, v in self.further[1].items() if k not in ("notes", "followups")}
            self.opened = known | same
        self.further = None
        self.ledger.begin(RunRequest(step=step.step_id), now=self.tick())

    @precondition(
        lambda self: (
            self.current is not None and self.current.result is None and not self.current.failure
        )
    )
    @rule(
        names=st.lists(st.sampled_from(["look", "book"]), max_size=3),
        text=WORDS,
        following=st.lists(st.none() | WORDS, max_size=2),
        last=st.booleans(),
        state=STATES,
        tokens=st.integers(0, 9),
        cost=st.none() | st.decimals(0, 9, places=7),
    )
    def answer(
        self,
        *,
        names: list[str],
        text: str,
        following: list[str | None],
        last: bool,
        state: dict[str, Json],
        tokens: int,
        cost: Decimal | None = None,
    ) -> None:
        calls = tuple(
            ToolCall(id=f"k{self.clock}.{i}", name=name, arguments=json.dumps({"n": i}))
            for i, name in enumerate(names)
        )
        message = assistant(text, calls=calls)
        usage = Usage(output_tokens=tokens, paid=cost or NOTHING, priced=int(cost is not None))
        answer = ModelAnswer(message=message, usage=usage)
        opened = self.current.open
        notes = tuple(f"n{i}" for i in range(len(opened.notes)))
        first = () if opened.step.input is None else ("input",)
        result = StepResult(
            adds=(*notes, *first, f"j{len(self.current.journal)}"),
            calls=calls,
            next=() if last else tuple(TaskStep(input=each) for each in following),
            last=last,
            patch=merge_patch.diff(self.current.open.state, state),
        )
        self.ledger.advanced(
            self.ledger.last_opened, Advanced(request="r", answer=answer, result=result)
        )
        self.paid += answer.usage.model_copy(update={"requests": 1})

    @precondition(lambda self: self.current is not None and self.current.result is not None)
    @rule(failed=st.booleans(), data=st.data())
    def call(self, failed: bool, data: st.DataObject) -> None:
        ready = self.ledger.calls.missing(self.ledger.last_opened)
        if not ready:
            return
        i = data.draw(st.sampled_from(sorted(ready)))
        status: Any = "failed" if failed else "done"
        self.ledger.calls.outcome(
            self.ledger.last_opened, i, Outcome(content=f"did {i}", status=status, is_error=failed)
        )

    @precondition(
        lambda self: (
            self.current is not None
            and self.current.result is not None
            and not self.ledger.calls.missing(self.ledger.last_opened)
            and not self.current.failure
        )
    )
    @rule()
    def finish(self) -> None:
        assert self.opened is not None
        self.ledger.finish(self.ledger.last_opened, now=self.tick())
        self.pictures.append(self.opened)
        self.opened = None

    @precondition(
        lambda self: self.ledger.s.answered and not self.ledger.s.queue and self.current is None
    )
    @rule(text=WORDS)
    def ask_further(self, text: str) -> None:
        before = picture(self.ledger)
        self.ledger.queue.ask_further(RunRequest(input=text))
        self.further = (self.ledger.s.queue[-1].step_id, before)

    @precondition(lambda self: self.current is not None and not self.current.failure)
    @rule()
    def fail(self) -> None:
        self.ledger.fail(Failure(type="E", message="m"), now=self.tick())
        assert self.ledger.status in ("needs_attention", "waiting")

    @precondition(lambda self: self.current is not None and self.current.failure)
    @rule(restart=st.booleans())
    def retry(self, *, restart: bool) -> None:
        self.ledger.retry(self.ledger.last_opened, RunRequest(restart=restart), now=self.tick())

    # ---- people

    @rule(text=WORDS, queued=st.booleans())
    def feedback(self, text: str, queued: bool) -> None:
        when = "queued" if queued else "next_model_call"
        self.command("feedback", text=text, when=when)

    @precondition(lambda self: self.ledger.s.queue)
    @rule(pick=st.integers(0, 5), text=WORDS)
    def edit(self, pick: int, text: str) -> None:
        queue = self.ledger.s.queue
        self.command("edit_step", step=queue[pick % len(queue)].step_id, input=text)

    @precondition(lambda self: self.ledger.s.queue)
    @rule(pick=st.integers(0, 5))
    def drop(self, pick: int) -> None:
        queue = self.ledger.s.queue
        self.command("drop_step", step=queue[pick % len(queue)].step_id)

    # ---- crash and replay

    @rule()
    def carry(self) -> None:
        """Continue as new: everything goes through JSON, the entries to the archive."""
        entries = self.ledger.log.entries
        segment = SegmentRef(sha256="x", start=len(self.archive), entries=len(entries))
        self.archive += [through_json(entry) for entry in entries]
        self.ledger.archived(segment)
        assert self.ledger.log.entries == []
        carried = Carried.model_validate_json(json.dumps(self.ledger.carried().wire()))
        assert carried == self.ledger.carried()
        given = self.given.model_copy(update={"carried": carried, "extra_state": {}})
        self.ledger = Ledger(given, task_id="t", now=self.tick())

    # ---- undo

    @precondition(
        lambda self: not self.ledger.s.answered or self.ledger.s.steps or self.current is not None
    )
    @rule(
        back=st.integers(1, 3),
        by=st.sampled_from(["", "ben"]),
        reason=st.sampled_from(["", "wrong"]),
    )
    def undo(self, *, back: int, by: str, reason: str) -> None:
        steps = self.ledger.s.steps
        if self.current is None and not steps:
            return
        to = max(steps + (1 if self.current is not None else 0) - back, 0)
        targets: list[Undoable] = [
            undoable(record) for record in active_steps(self.entries) if record.n > to
        ]
        if self.current is not None:
            targets.append(
                Undoable(
                    n=self.current.n,
                    key=self.current.n,
                    step=self.current.open.step,
                    before=self.current.before,
                    effects=effects_of_open(self.current, ()),
                )
            )
        asked = UndoRequest(to=to, by=by, reason=reason)
        state = UndoState(asked=asked, done=self.ledger.s.undone_effects)
        for target in reversed(targets):
            for _, effect in to_undo(target, POLICIES, state):
                assert (effect.call.name, effect.status) == ("book", "done")
        known, branch = picture_before(self, to), self.ledger.s.branch
        if self.current is not None:
            leave_open_steps(self.ledger, now=self.tick())
        for target in reversed(targets):
            if target.n <= self.ledger.s.steps:
                leave_step(self.ledger, target)
        self.ledger.s.undo = state
        finish_undo(self.ledger, (), now=self.tick())
        assert picture(self.ledger) == known, "undo is the identity on everything but the audit"
        assert self.ledger.s.branch == branch + 1
        assert "were undone" in self.ledger.s.notes[-1].text
        del self.pictures[to:]
        self.opened = self.further = None

    # ---- always

    @invariant()
    def folds_agree_with_the_state(self) -> None:
        s, entries = self.ledger.s, self.entries
        active, said = active_steps(entries), active_messages(entries)
        assert s.costs.usage.requests == s.costs.turns
        assert s.steps == len(active) == len(self.pictures)
        assert s.transcript.length == len(said)
        assert len({step.step_id for step in s.queue}) == len(s.queue)
        if self.current is not None:
            assert self.current.n == s.steps + 1
        assert said[self.ledger.base :] == self.ledger.messages
        assert self.ledger.base <= len(said)
        assert verify(entries) == []
        records = [entry.step for entry in entries if entry.step is not None]
        for record in records[-3:]:
            path = path_to(entries, record)
            assert path[-1] is record
            assert [each.n for each in path] == list(range(1, record.n + 1))
        if active:
            assert path_to(entries, active[-1]) == active
            if s.answered:
                assert self.ledger.answer == active[-1].output
            assert records[-1].branch <= self.ledger.s.branch

    @invariant()
    def all_that_was_paid_counts(self) -> None:
        """Whatever was undone or started anew; the records of all steps add up to it, too."""
        assert self.ledger.money.spent == self.ledger.task().usage == self.paid
        assert self.ledger.task().branch_usage == self.ledger.s.costs.usage
        ended = [
            each for each in happenings(self.entries) if isinstance(each, StepEnded | StepLeft)
        ]
        going = usage_of(self.current.journal) if self.current is not None else Usage()
        assert sum((each.body.usage for each in ended), going) == self.paid

    @invariant()
    def the_audit_only_grows(self) -> None:
        events = audit_events(self.entries)
        kinds = [event.kind for event in events]
        assert kinds.count("step") == sum(bool(e.step or e.left) for e in self.entries)
        assert kinds[0] == "created"


def picture_before(life: Life, to: int) -> dict[str, Any]:
    if to < len(life.pictures):
        return life.pictures[to]
    assert life.opened is not None
    return life.opened


def through_json(entry: Entry) -> Entry:
    return Entry.model_validate_json(json.dumps(entry.wire()))


Life.TestCase.settings = settings(
    max_examples=times(60, 300),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


TestLife = Life.TestCase


# ---- what the search has found


def begun() -> Life:
    life = Life()
    life.create(state={})
    return life


def step(life: Life, *, last: bool = False) -> None:
    life.begin(pick=0)
    life.answer(names=[], text="alpha", following=[None], last=last, state={}, tokens=1)
    life.finish()


def notes(life: Life) -> list[str]:
    return [note.text for note in life.ledger.s.notes]


def holds(life: Life) -> None:
    life.folds_agree_with_the_state()
    life.all_that_was_paid_counts()
    life.the_audit_only_grows()


def test_the_undo_of_an_open_step_leaves_no_note_beside_that_of_an_undo_that_goes_further() -> None:
    life = begun()
    step(life)
    life.begin(pick=0)
    life.undo(back=1, by="", reason="")
    holds(life)
    life.undo(back=1, by="", reason="")
    assert notes(life) == ["Steps after number 0 were undone."]
    holds(life)


def test_the_reason_of_an_undo_is_told_also_after_one_that_goes_further() -> None:
    life = begun()
    step(life)
    life.begin(pick=0)
    life.undo(back=1, by="ben", reason="wrong")
    life.undo(back=1, by="", reason="")
    assert [note.splitlines()[0] for note in notes(life)] == [
        "Steps after number 1 were undone by ben.",
        "Steps after number 0 were undone.",
    ]
    holds(life)


def test_the_undo_of_a_follow_up_leaves_the_task_as_the_answer_left_it() -> None:
    life = begun()
    step(life, last=True)
    for done in (False, True):
        life.ask_further(text="beta")
        life.begin(pick=0)
        if done:
            life.answer(names=[], text="gamma", following=[], last=True, state={}, tokens=1)
            life.finish()
            life.carry()
        life.undo(back=1, by="", reason="")
        assert life.ledger.s.answered
        assert not life.ledger.s.queue
        holds(life)


def test_the_way_to_a_step_leaves_out_what_was_undone_before_it() -> None:
    life = begun()
    for _ in range(2):
        step(life)
        holds(life)
        life.undo(back=1, by="", reason="")
    step(life)
    holds(life)
