"""The ledger of a task that closes, for the activity that stores it, if that is in this process.

To ask the task by a query costs the server a round trip and the worker a workflow activation. A
worker process that runs both needs none. Elsewhere, at a further attempt, or where workflows run in
a sandbox that has modules of its own, there is no page here, and the activity asks the task.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict

from holdfast.task.data.closing import EntriesPage, EntriesRequest
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.queries.pages import entries_page
from holdfast.values.base import ChainRef

MOST_PAGES = 256
"""Most pages that are kept; those of the oldest tasks are dropped."""

_lock = threading.Lock()
_pages: OrderedDict[tuple[str, str], EntriesPage] = OrderedDict()


def hand_over(ledger: Ledger, task_id: str, run_id: str) -> None:
    """Keep all entries of a task that closes, its open steps, and its description."""
    asked = EntriesRequest(skip=len(ledger.entries), opens=True, task=True)
    page = entries_page(ledger, asked).model_copy(update={"entries": tuple(ledger.entries)})
    with _lock:
        _pages[task_id, run_id] = page
        while len(_pages) > MOST_PAGES:
            _pages.popitem(last=False)


def take(task_id: str, run_id: str, ledger: ChainRef) -> EntriesPage | None:
    """Return what a run of a task has handed over, once; None when it ends with another ledger.

    The description has a state of its own: code of the user's gets it, and may change it.
    """
    with _lock:
        page = _pages.pop((task_id, run_id), None)
    if page is None or page.task is None or page.ledger != ledger:
        return None
    state = copy.deepcopy(page.task.extra_state)
    return page.model_copy(update={"task": page.task.model_copy(update={"extra_state": state})})


def drop(task_id: str, run_id: str) -> None:
    """Forget what a run of a task has handed over, if no one has taken it."""
    with _lock:
        _pages.pop((task_id, run_id), None)
