"""Steps that wait for each other: circles are found, and links that cannot be kept named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.task.ledger.queue import problem
from holdfast.values.steps import TaskStep


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
