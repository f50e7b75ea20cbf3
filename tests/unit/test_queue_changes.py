"""The queue and what waits beside it as a ledger records them, beside a model that keeps all."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.models.base import ModelAnswer
from holdfast.task.data.commands import Command, RunRequest
from holdfast.task.data.head import TaskHead
from holdfast.task.data.records import Entry, ForkOf, SegmentRef, StepRecord, StepResult
from holdfast.task.data.state import Carried, TaskInput
from holdfast.task.data.undo import QueueChange, UndoRequest, UndoState
from holdfast.task.data.wire import Advanced
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.ledger.queue import STEP_ID, pending, waiting
from holdfast.task.requests.command_effects import obey
from holdfast.task.undo import (
    active_steps,
    departure,
    finish_undo,
    leave_open_steps,
    leave_step,
    undoable,
)
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import extend
from holdfast.values.messages import assistant
from holdfast.values.runs.verbs import Verb
from holdfast.values.steps import TaskStep
from tests.support.scale import times

STEPS = st.builds(
    TaskStep,
    step_id=st.sampled_from("abcdef"),
    step_state=st.sampled_from([{}, {"k": 1}, {"k": True}, {"k": 1.0}]),
)
QUEUES = st.lists(STEPS, max_size=8)


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


def pictured(ledger: Ledger) -> str:
    """Return the queue, all that waits beside it, and the state, as if no step were open."""
    s = ledger.s
    queue = wires(pending(s.opens, s.queue))
    return json.dumps([queue, waiting(s).wire(), s.extra_state, s.transcript, s.done])


class Whole:
    """A task, and what its steps found and left in whole, as the ledger does not keep it.

    Attributes:
        found: What each step of the branch found.
        left: The queue that each step of the branch left.
        alone: What the step in progress found, if it is alone.
    """

    def __init__(self) -> None:
        self.given = TaskInput(head=TaskHead(agent="a"), input="q")
        self.ledger = Ledger(self.given, task_id="t", now=1.0)
        self.archive: list[Entry] = []
        self.found: list[str] = []
        self.left: list[list[Any]] = []
        self.alone = ""
        self.serial = 0

    @property
    def path(self) -> list[StepRecord]:
        return active_steps([*self.archive, *self.ledger.log.entries])

    def begin(self, at: int, text: str | None) -> None:
        ready = self.ledger.queue.ready()
        if ready:
            if not self.ledger.s.opens:
                self.alone = pictured(self.ledger)
            step = ready[at % len(ready)]
            self.ledger.begin(RunRequest(step=step.step_id, input=text), now=2.0)

    def finish(
        self, at: int, count: int, *, takes_place: bool, last: bool = False, over: bool = False
    ) -> None:
        """Complete an open step; `over` says that the budget ends it."""
        opens = self.ledger.s.opens
        if not opens:
            return
        current = opens[at % len(opens)]
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
        result = StepResult(
            output=key,
            echo=False,
            adds=(assistant(f"from {key}"),),
            calls=(),
            next=tuple(following),
            last=last,
            patch={"set": {key: len(current.open.state)}},
        )
        answer = ModelAnswer(message=assistant("said"))
        got = Advanced(request="r", answer=answer, result=result)
        assert self.ledger.advanced(current.n, got) is None
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

    def undo(self, to: int) -> None:
        steps = [undoable(record) for record in self.path]
        to %= len(steps) + 1
        opens = self.ledger.s.opens
        if to < len(steps):
            wanted = self.found[to]
        elif len(opens) == 1 and opens[0].alone:
            wanted = self.alone
        else:
            wanted = pictured(self.ledger)
        leave_open_steps(self.ledger, now=6.0)
        for target in reversed(steps[to:]):
            leave_step(self.ledger, target)
        assert pictured(self.ledger) == wanted
        self.ledger.s.undo = UndoState(asked=UndoRequest(to=to))
        finish_undo(self.ledger, (), now=7.0)
        del self.found[to:], self.left[to:]

    def check(self) -> None:
        """Check what always holds."""
        s, path = self.ledger.s, self.path
        assert [record.n for record in path] == list(range(1, s.steps + 1))
        messages = [message for record in path for message in record.adds]
        assert s.transcript == (len(messages), extend("", messages))
        ids = [step.step_id for step in self.ledger.queue.upcoming()]
        assert len(ids) == len({*ids})
        done = {record.step.step_id for record in path}
        assert all(set(each.open.step.prev_steps) <= done for each in s.opens)
        state: dict[str, Any] = {}
        for record in path:
            state = merge_patch.apply(state, record.patch)
        assert state == s.extra_state

    def fork(self, at: int, text: str | None) -> None:
        """Go on with a fork of one of the steps."""
        path = self.path
        if not path or self.ledger.s.opens:
            return
        path = path[: at % len(path) + 1]
        state = departure(
            path,
            {},
            SegmentRef(sha256="y"),
            fork=ForkOf(task="t", n=len(path)),
            text=text,
            feedback=None,
        )
        if text is None:
            assert wires(state.queue) == self.left[len(path) - 1]
        self.archive = [through_json(Entry(step=record)) for record in path]
        del self.found[len(path) :], self.left[len(path) :]
        self.go_on(state)


KINDS = ["begin", "begin", "finish", "finish", "last", "edit_step", "drop_step", "carry", "undo"]
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from([*KINDS, "fork", "next_model_call", "queued"]),
        st.integers(0, 9),
        st.integers(0, 4),
    ),
    max_size=40,
)


@given(ACTIONS)
@settings(max_examples=times(60, 200), deadline=None)
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
