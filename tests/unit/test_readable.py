"""Answers of queries stay below what the server takes, whatever a task holds."""

from holdfast.task.data.head import TaskHead
from holdfast.task.data.state import Carried, TaskInput
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.ledger.recording import StepLine, pack
from holdfast.task.queries import readable
from holdfast.values.base import canonical
from holdfast.values.steps import TaskStep

MOST = 1024 * 1024


def ledger_with(**fields: object) -> Ledger:
    carried = Carried.model_validate({"created": 1.0, **fields})
    given = TaskInput(head=TaskHead(agent="a"), input="q", carried=carried)
    return Ledger(given, task_id="t", now=1.0)


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
