"""Property: however steps run side by side, an undo brings back what there was."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.models.base import ModelAnswer
from holdfast.task.data.commands import RunRequest
from holdfast.task.data.head import TaskHead
from holdfast.task.data.records import StepResult
from holdfast.task.data.state import TaskInput
from holdfast.task.data.undo import UndoRequest, UndoState
from holdfast.task.data.wire import Advanced
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.ledger.queue import found_by, problem
from holdfast.task.undo import active_steps, finish_undo, leave_open_steps, leave_step, undoable
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import extend
from holdfast.values.messages import Usage, assistant
from holdfast.values.steps import TaskStep

HEAD = TaskHead(agent="a")


class Machine:
    """A ledger whose steps run side by side, in any order.

    Attributes:
        ledger: The ledger.
        pictures: What there was, as if no step were open, before each step was completed.
    """

    def __init__(self) -> None:
        self.ledger = Ledger(TaskInput(head=HEAD, input="q"), task_id="t", now=1.0)
        self.pictures: list[dict[str, Any]] = []
        self.serial = 0

    def begin(self, at: int) -> None:
        ready = self.ledger.queue.ready()
        if ready:
            step = ready[at % len(ready)]
            self.ledger.begin(RunRequest(step=step.step_id), now=2.0)

    def ask(self, at: int, *, over: bool) -> None:
        """Let an open step have a model's answer, perhaps the last that the budget allows."""
        opens = self.ledger.s.opens
        if not opens:
            return
        n = opens[at % len(opens)].n
        if over:
            self.ledger.at(n).limit = "finish"
        message = assistant(f"answer {self.ledger.s.costs.turns}")
        answer = ModelAnswer(message=message, usage=Usage(input_tokens=3))
        self.ledger.advanced(n, Advanced(result=None, request="r", answer=answer))

    def finish(self, at: int, children: list[list[int]], *, last: bool) -> None:
        """Complete an open step, which queues others that wait for queued, open or new ones."""
        opens = self.ledger.s.opens
        if not opens:
            return
        current = opens[at % len(opens)]
        names = [f"n{self.serial + k}" for k in range(len(children))]
        known = [s.step_id for s in self.ledger.queue.upcoming()] + [current.open.step.step_id]
        self.serial += len(children)
        steps = tuple(
            TaskStep(
                step_id=name,
                prev_steps=tuple({[*known, *names[:k]][w % (len(known) + k)]: 1 for w in waits}),
            )
            for k, (name, waits) in enumerate(zip(names, children, strict=True))
        )
        key = current.open.step.step_id
        result = StepResult(
            output=key,
            echo=False,
            adds=(assistant(f"from {key}"),),
            calls=(),
            next=steps,
            last=last,
            patch={"set": {key: len(current.open.state)}},
        )
        assert self.ledger.advanced(current.n, Advanced(result=result)) is None
        self.pictures.append(picture(self.ledger))
        self.ledger.finish(current.n, now=3.0)

    def undo(self, to: int) -> None:
        """Undo steps as the workflow does; compare with what there was."""
        ledger = self.ledger
        steps = [undoable(record) for record in active_steps(ledger.log.entries)]
        to = to % (len(steps) + 1)
        known = self.pictures[to] if to < len(steps) else picture(ledger)
        leave_open_steps(ledger, now=0)
        for target in reversed(steps[to:]):
            leave_step(ledger, target)
        found = picture(ledger)
        assert {**found, "turns": known["turns"]} == known
        ledger.s.undo = UndoState(asked=UndoRequest(to=to))
        finish_undo(ledger, (), now=4.0)
        ledger.s.notes = ()
        del self.pictures[to:]

    def check(self) -> None:
        """Check what always holds."""
        s = self.ledger.s
        records = active_steps(self.ledger.log.entries)
        assert [record.n for record in records] == list(range(1, s.steps + 1))
        assert len({c.n for c in s.opens} | {0}) == len(s.opens) + 1
        messages = [message for record in records for message in record.adds]
        assert messages == self.ledger.messages
        assert s.transcript.digest == extend("", messages)
        ids = [step.step_id for step in self.ledger.queue.upcoming()]
        assert len(ids) == len(set(ids))
        done = {record.step.step_id for record in records}
        for step in (current.open.step for current in s.opens):
            assert set(step.prev_steps) <= done
        ended = {record.step.step_id for record in records if any(e.last for e in record.journal)}
        for step in self.ledger.queue.upcoming():
            assert not step.is_join or bool(step.step_state) == bool(ended & {*step.prev_steps})
        state: dict[str, Any] = {}
        for record in records:
            state = merge_patch.apply(state, record.patch)
        assert state == s.extra_state


def picture(ledger: Ledger) -> dict[str, Any]:
    """Tell what there is, as if no step were open."""
    s = ledger.s
    alone = len(s.opens) == 1 and s.opens[0].alone
    before = s.opens[0].before if alone else ledger.queue.before()
    return {
        "queue": [step.wire() for step in found_by(before.found, ledger.queue.recorded)],
        "state": s.extra_state,
        "transcript": before.transcript,
        "turns": before.turns,
        "waiting": before.waiting.forward(ledger.queue.found),
        "done": s.done,
    }


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "begin", "begin", "ask", "finish", "finish", "undo"]),
        st.integers(0, 9),
        st.lists(st.lists(st.integers(0, 9), max_size=2), max_size=3),
        st.sampled_from([False, False, False, True]),
    ),
    max_size=40,
)


@given(ACTIONS)
def test_steps_side_by_side_are_undone_exactly(
    actions: list[tuple[str, int, list[list[int]], bool]],
) -> None:
    machine = Machine()
    for kind, at, children, last in actions:
        match kind:
            case "begin":
                machine.begin(at)
            case "ask":
                machine.ask(at, over=last)
            case "finish":
                machine.finish(at, children, last=last)
            case _:
                machine.undo(at)
        machine.check()


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
    found = problem(steps, queue=(), opened=(), known=())
    assert ("wait for each other" in found) == bool(left)


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
