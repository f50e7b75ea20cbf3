"""What a closing task hands over within its process: to be taken once, and only if it fits."""

from holdfast.task.data.head import TaskHead
from holdfast.task.data.state import Described, TaskInput
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.queries.pages import MOST_PAGES, keep_last_page, take_last_page


def a_ledger() -> Ledger:
    made = Ledger(TaskInput(head=TaskHead(agent="a"), input="q"), task_id="t", now=1.0)
    made.described(Described(snapshot="x"))
    made.note("feedback", now=2.0, text="go on")
    return made


def test_a_page_is_taken_once_by_its_own_run() -> None:
    ledger = a_ledger()
    keep_last_page(ledger, "t", "run")
    assert take_last_page("t", "another", ledger.log.chain) is None
    page = take_last_page("t", "run", ledger.log.chain)
    assert page is not None
    assert page.entries == tuple(ledger.log.entries)
    assert page.ledger.length == len(ledger.log.entries) > 0
    assert page.task == ledger.task()
    assert take_last_page("t", "run", ledger.log.chain) is None


def test_a_page_of_another_ledger_is_not_taken() -> None:
    ledger = a_ledger()
    keep_last_page(ledger, "t", "run")
    ledger.note("feedback", now=3.0, text="and on")
    assert take_last_page("t", "run", ledger.log.chain) is None


def test_of_too_many_pages_the_oldest_are_dropped() -> None:
    ledger = a_ledger()
    for n in range(MOST_PAGES + 1):
        keep_last_page(ledger, f"t{n}", "run")
    assert take_last_page("t0", "run", ledger.log.chain) is None
    assert all(take_last_page(f"t{n}", "run", ledger.log.chain) for n in range(1, MOST_PAGES + 1))
