"""Old defects of the workflow code, put back one at a time: random schedules find each of them.

Each is as the code was before it was mended. `says` is what the simulator says of it; without the
defect the same schedules pass.
"""

import dataclasses
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple
from unittest import mock

import pytest

from holdfast.task.data.failures import Failure
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.ledger.ledger_state import LedgerState
from holdfast.task.ledger.queue import Upcoming
from holdfast.task.people import approvals, decisions
from holdfast.task.requests.phase import Ending
from holdfast.task.tool_calls import Call
from holdfast.values.runs.status import TaskStatus
from holdfast.workflows.activity_calls import now, quick
from holdfast.workflows.children.children import Children
from holdfast.workflows.children.reports import Reporter
from holdfast.workflows.tools.tool_calls import ToolCalls
from tests.simulation.generate import schedule_of
from tests.simulation.play import play
from tests.support.scale import EXHAUSTIVE

MOST_SEEDS = 1000
"""Seeds of which one finds each defect, whatever the generator is like."""


class Patch(NamedTuple):
    """A name that is given its old value."""

    owner: Any
    name: str
    value: Any


@dataclasses.dataclass
class Defect:
    """An old defect.

    Attributes:
        patches: What puts it back.
        seeds: Schedules of which one finds it, in `make test`.
        says: What the simulator says then.
    """

    patches: list[Patch]
    seeds: range
    says: str


async def check_and_raise(self: ToolCalls, call: Call) -> None:
    """Check edited arguments; a check that fails stops the step, and the approval stays."""
    ledger, approval = vars(self)["_ledger"], call.approval
    given = ledger.calls.tool_input(call.n, call.i, call.effective)
    refused = await quick(ledger, "check", given, str)
    if approval is not None and not call.is_left:
        decisions.checked(ledger, approval, refused, now=now())


def waits_for_checks(self: LedgerState) -> TaskStatus:
    """Count an approval whose edit is checked as one that waits for a person."""
    if any(approval.status == "checking" for approval in self.s.approvals):
        return "waiting"
    return status_of(self)


def end_is_dropped(self: Ending, failure: Failure, *, now: float, pause: float) -> Failure:
    """Forget the accepted end when closing fails."""
    found = ending_failed(self, failure, now=now, pause=pause)
    vars(self)["_ledger"].s.closing = None
    return found


def ask_of_the_known(ledger: Ledger, n: int, i: int, kind: Any, **more: Any) -> Any:
    """Ask nobody about a call that may have taken effect: it is made again."""
    return None if kind == "unknown" else ask(ledger, n, i, kind, **more)


def latest_of_any_kind(ledger: Ledger, n: int, i: int, kind: str | None = None) -> Any:
    """Take a question about an undo for one about a call."""
    found = ledger.asked.at(ledger.s.branch, n, i)
    return next((each for each in found if kind in (None, each.kind)), None)


def keep_questions(_: Ledger) -> None:
    """Drop none of the questions of an undo that has ended."""


def follow_up(self: Upcoming, *, is_over: bool = False) -> None:
    """Let the answer stand, whatever was said while the model made it."""
    if vars(self)["_s"].followups or is_over:
        follow_up_of(self, is_over=True)


def nobody(_: object) -> frozenset[str]:
    """Name none of those whose end nobody reports."""
    return frozenset()


ask = approvals.ask
ending_failed = Ending.failed
follow_up_of = Upcoming.follow_up
status_of: Callable[[LedgerState], TaskStatus] = vars(LedgerState)["status"].fget

DEFECTS = {
    "an edit that cannot be checked leaves an approval that nobody can decide": Defect(
        [
            Patch(ToolCalls, "_check", check_and_raise),
            Patch(LedgerState, "status", property(waits_for_checks)),
        ],
        range(97, 98),
        "nobody can move t: waiting",
    ),
    "an accepted end is forgotten when closing fails": Defect(
        [Patch(Ending, "failed", end_is_dropped)],
        range(7, 8),
        "was to be abandoned, and now goes on",
    ),
    "a call of unknown outcome is made again without asking": Defect(
        [Patch(approvals, "ask", ask_of_the_known)], range(40, 41), "was done 2 times"
    ),
    "the questions of an undo outlast it": Defect(
        [
            Patch(approvals, "drop_undo", keep_questions),
            Patch(approvals, "latest", latest_of_any_kind),
        ],
        range(116, 117),
        "keeps a question that is over",
    ),
    "a nested task does not notice that its calling task was ended": Defect(
        [Patch(Reporter, "awaits_parent", nobody)],
        range(73, 74),
        "has not noticed that its parent t has ended",
    ),
    "what is said during the last model call is lost": Defect(
        [Patch(Upcoming, "follow_up", follow_up)], range(560, 561), "has read what was said"
    ),
    "the end of a nested task is not noticed after a rollover": Defect(
        [Patch(Children, "unfollowed", nobody)], range(470, 471), "has not noticed that its child"
    ),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_an_old_defect_is_found(name: str) -> None:
    defect = DEFECTS[name]
    with ExitStack() as planted:
        for each in defect.patches:
            planted.enter_context(mock.patch.object(*each))
        seed = first_that_finds(defect)
    assert seed >= 0, "no seed finds it; HOLDFAST_EXHAUSTIVE=1 looks at more of them"
    assert not play(schedule_of(seed)).violation


def first_that_finds(defect: Defect) -> int:
    """Return the first seed whose schedule finds a defect, or -1."""
    seeds = range(MOST_SEEDS) if EXHAUSTIVE else defect.seeds
    return next((s for s in seeds if defect.says in play(schedule_of(s)).violation), -1)
