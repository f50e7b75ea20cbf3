"""What a task has cost and may cost: a part of its ledger.

Money is reserved when a call is scheduled, so that calls side by side cannot spend the same cent,
and settled when its answer is recorded. An undo gives nothing back: what was spent stays spent.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from decimal import ROUND_DOWN, ROUND_UP, Decimal, InvalidOperation
from typing import Literal

from holdfast.errors import InvalidArgumentError
from holdfast.task.data.head import policy_of
from holdfast.task.ledger.ledger_state import LedgerState
from holdfast.values.base import Json
from holdfast.values.checks import gate
from holdfast.values.messages import MOST_DOLLARS, NOTHING, Usage, as_written, dollars, plain
from holdfast.values.settings import Budget

CENT = Decimal("0.01")
_PLACES = Decimal(1).scaleb(-12)
"""Shares are rounded to this, so that they have an end."""


class Money:
    """Counts what a task costs, and shares out what is left of its budget.

    What it carries is `Costs`. The rest is of this run of the workflow: a task continues as new
    only when no model call is in progress.

    Attributes:
        asking: Steps in progress that may be making a model call right now.
        reserved: Money that is reserved for model calls whose answers are not recorded yet.
        needs: Step to what its model call can cost at most, when its share was too little.
    """

    def __init__(self, ledger: LedgerState) -> None:
        """Count for this task."""
        self.asking: set[int] = set()
        self.reserved: dict[object, Decimal] = {}
        self.needs: dict[int, Decimal] = {}
        self._ledger = ledger
        self._s = ledger.s

    def paid(self, usage: Usage) -> None:
        """Count a model call whose answer has arrived."""
        costs = self._s.costs
        costs.turns += 1
        # Twice: an undo restores what counts for the budget, and never what was spent.
        costs.usage += usage
        costs.spent += usage

    def forget_children(self, gone: Collection[str]) -> None:
        """Drop the child tasks of undone calls; their cost stays in `spent`."""
        costs, children = self._s.costs, self._s.children
        # No await: a child that is dropped and not counted would be money nobody has spent.
        for child in map(children.__getitem__, gone):
            costs.spent += Usage() if child.counted else child.usage
            costs.raised += child.raised
            costs.lost += child.lost
        self._s.children = {id: child for id, child in children.items() if id not in gone}

    @property
    def spent(self) -> Usage:
        """Cost of the task in all, also of undone and failed work.

        That is every model call whose answer has arrived (of undone steps, of steps that were
        started again, of steps that failed, answers that a guardrail then blocked), and the cost of
        its child tasks, counted likewise. Unknown, and not counted, are calls that were cut off
        before their answer, and what tools and guardrails spend by clients of their own.
        """
        asked = (child.usage for child in self._s.children.values() if not child.counted)
        return sum(asked, self._s.costs.spent)

    @property
    def unsettled(self) -> dict[str, Usage]:
        """The child tasks that may cost more than `spent` has of them, with what it has of each."""
        children = self._s.children.items()
        return {
            name: child.usage
            for name, child in children
            if child.unsettled or not (child.closed or child.is_over)
        }

    @property
    def usage(self) -> Usage:
        """What counts for the budget: an undo restores it.

        It is the cost of the steps of the present branch, and the cost so far of the child tasks
        of open calls.
        """
        # The cost of a child whose call has its outcome is in `costs.usage` already.
        open_calls = (
            child.usage
            for child in self._s.children.values()
            if not child.left and self._is_open(*child.place)
        )
        return sum(open_calls, self._s.costs.usage)

    def _is_open(self, branch: int, n: int, batch: int, i: int) -> bool:
        """Whether a call is still in the ledger and has no outcome yet."""
        current = self._ledger.find(n)
        if current is None or branch != self._s.branch:
            return False
        return batch == current.batch and i not in current.outcomes

    @property
    def budget(self) -> Budget | None:
        """The task's limits, with the money that people have added."""
        budget = self._ledger.given.budget
        if budget is None or self.limit == budget.max_dollars:
            return budget
        return budget.model_copy(update={"max_dollars": self.limit})

    @property
    def policy(self) -> Literal["ask", "finish", "fail"]:
        """What happens once the budget in money is used up."""
        given = self._ledger.given
        return given.on_dollars or (given.budget.on_exceeded if given.budget else "ask")

    @property
    def _given(self) -> Decimal | None:
        """The budget in money that the task began with; None for none."""
        budget = self._ledger.given.budget
        return None if budget is None else budget.max_dollars

    @property
    def limit(self) -> Decimal | None:
        """The budget in money as it is now; None for none."""
        own = self._own
        if own is None:
            return None
        children = self._s.children.values()
        return sum((child.raised for child in children), own + self._s.costs.raised)

    @property
    def _own(self) -> Decimal | None:
        """The task's own budget in money, without what people have added in child tasks."""
        raised = self._s.costs.max_dollars
        return self._given if raised is None else raised

    @property
    def raised(self) -> Decimal:
        """By how much people have raised the budget in money, in this task and its children."""
        given = self._given
        return NOTHING if given is None else (self.limit or NOTHING) - given

    @property
    def lost(self) -> Decimal:
        """The most that lost calls can have cost, in this task and its children."""
        return sum((child.lost for child in self._s.children.values()), self._s.costs.lost)

    def exceeded(self, *, now: float, n: int = 0) -> str:
        """Say which part of the budget is used up, or empty.

        Args:
            now: Time, seconds since the epoch.
            n: The step that asks; calls that other steps may be making count as made.
        """
        budget, s = self._ledger.given.budget, self._s
        if budget is None:
            return ""
        turns = s.costs.turns + len(self.asking - {n})
        if budget.max_turns is not None and turns >= budget.max_turns:
            return f"max_turns={budget.max_turns}"
        if budget.max_tokens is not None and self.usage.total_tokens >= budget.max_tokens:
            return f"max_tokens={budget.max_tokens}"
        if budget.max_seconds is not None and now - s.created >= budget.max_seconds:
            return f"max_seconds={budget.max_seconds:g}"
        return ""

    def tokens(self, n: int) -> int:
        """Return how many tokens a step's next model call may use; 0 for any number."""
        budget = self._ledger.given.budget
        if budget is None or budget.max_tokens is None:
            return 0
        # Steps that ask at the same time share what is left, so together they stay within it.
        left = budget.max_tokens - self.usage.total_tokens
        return max(1, left // (1 + len(self.asking - {n})))

    @property
    def settled(self) -> Decimal:
        """What counts as spent: known costs, and the most that lost calls can have cost."""
        return self.spent.paid + self.lost

    @property
    def _taken(self) -> Decimal:
        """What is spent or reserved."""
        calls = sum(self.reserved.values(), self.settled)
        return sum((child.reserves for child in self._s.children.values()), calls)

    @property
    def free(self) -> Decimal:
        """What is neither spent nor reserved; nothing without a budget in money."""
        limit = self.limit
        return NOTHING if limit is None else max(limit - self._taken, NOTHING)

    def allowance(self, n: int) -> Decimal:
        """Return how much of the free money a step's model call may reserve.

        Open steps share it evenly. A step whose last share was too small gets what it needs, if
        there is as much.
        """
        left = self.free
        others = sum(1 for c in self._s.opens if c.n != n and c.n not in self.asking)
        share = left / (1 + others) if others else left
        needs = self.needs.get(n, NOTHING)
        share = needs if share < needs <= left else share
        return plain(share.quantize(_PLACES, rounding=ROUND_DOWN))

    def child_share(self, n: int) -> Decimal:
        """Return how much of the free money a child task of a step gets.

        The calls of a step without an outcome that are calls of agents share it evenly; the step
        itself goes on when they are over, with what they have left.
        """
        ledger, current = self._ledger, self._ledger.at(n)
        described, agent = ledger.s.described, current.open.step.agent
        policies = described.rules(agent).policies if described is not None else {}
        # Calls whose children have begun hold their shares already (`free` leaves them out).
        waiting = sum(
            1
            for i, call in enumerate(current.calls)
            if i not in current.outcomes
            and (policy := policy_of(policies, call)) is not None
            and policy.agent
            and not ledger.child(n, i)
        )
        return plain((self.free / max(waiting, 1)).quantize(_PLACES, rounding=ROUND_DOWN))

    def proposal(self, needs: Decimal) -> dict[str, Json]:
        """Return the arguments of an approval that raises the budget: the first amount once more.

        Args:
            needs: What the next call can cost at most.
        """
        once_more = (self.limit or NOTHING) + (self._given or NOTHING)
        raised = max(once_more, self._taken + needs).quantize(CENT, rounding=ROUND_UP)
        return {"max_dollars": as_written(raised)}

    def asked_for(self, needs: Decimal) -> str:
        """Return the text of an approval that raises the budget."""
        limit, spent = self.limit or NOTHING, self.settled
        proposed = Decimal(str(self.proposal(needs)["max_dollars"]))
        return (
            f"The budget of {dollars(limit)} is used up: {dollars(spent)} is spent, and the next"
            f" model call may cost {dollars(needs)}. approve: raise the budget to"
            f" {dollars(proposed)}, or to another amount; reject: finish now"
        )

    def past_day(self) -> dict[str, Json]:
        """Return the arguments of an approval to go past the tenant's day: as much once more."""
        most = self.settled + max(self.settled, Decimal(1))
        return {"max_dollars": as_written(most.quantize(CENT, rounding=ROUND_UP))}

    def raise_budget(self, arguments: str, *, is_of_day: bool = False) -> str:
        """Raise the budget as a person decided; return why it is refused, or empty.

        Args:
            arguments: JSON of an object with `max_dollars`.
            is_of_day: Whether it is what the task may cost past its tenant's day.
        """
        try:
            gate.read(arguments)
            given = json.loads(arguments, parse_float=Decimal)
            amount = Decimal(str(given["max_dollars"]))
            is_amount = amount.is_finite() and len(given) == 1
        except (ValueError, TypeError, KeyError, InvalidOperation, InvalidArgumentError):
            is_amount, amount = False, NOTHING
        if not is_amount:
            return 'A budget is raised by {"max_dollars": "AMOUNT"}, in US dollars.'
        limit = self.settled if is_of_day else self.limit or NOTHING
        if amount <= limit:
            what = "The task has cost" if is_of_day else "The budget is"
            return f"{what} {dollars(limit)}: raise it to more than that."
        if amount > MOST_DOLLARS:
            return f"A budget may be raised to at most {dollars(MOST_DOLLARS)}."
        if is_of_day:
            self._s.costs.past_day = plain(amount)
            return ""
        self._s.costs.max_dollars = plain((self._own or NOTHING) + amount - limit)
        return ""
