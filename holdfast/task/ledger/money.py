"""A budget in money: what is spent, what is reserved for calls in flight, and what is left.

Money is reserved when a call is scheduled, so that calls side by side cannot spend the same cent,
and settled when its answer is recorded. An undo gives nothing back: what was spent stays spent.
"""

from __future__ import annotations

import json
from decimal import ROUND_DOWN, ROUND_UP, Decimal, InvalidOperation

from holdfast.errors import InvalidArgumentError
from holdfast.task.data.agent_snapshot import policy_of
from holdfast.task.ledger.ledger import Ledger
from holdfast.values.base import Json
from holdfast.values.checks import gate
from holdfast.values.money import MOST_DOLLARS, NOTHING, as_written, dollars, plain

CENT = Decimal("0.01")
_PLACES = Decimal(1).scaleb(-12)
"""Shares are rounded to this, so that they have an end."""


def settled(ledger: Ledger) -> Decimal:
    """Return what counts as spent: known costs, and the most that lost calls can have cost."""
    return ledger.spent.paid + ledger.lost_dollars


def count_lost(ledger: Ledger, dollars: Decimal) -> None:
    """Count what lost attempts of a model call can have cost at most."""
    if dollars:
        ledger.change(lost=ledger.s.lost + dollars)


def free(ledger: Ledger) -> Decimal:
    """Return what is neither spent nor reserved; nothing without a budget in money."""
    limit = ledger.max_dollars
    return NOTHING if limit is None else max(limit - _taken(ledger), NOTHING)


def _taken(ledger: Ledger) -> Decimal:
    """Return what is spent or reserved."""
    calls = sum(ledger.reserved.values(), settled(ledger))
    return sum((child.reserves for child in ledger.s.children.values()), calls)


def allowance(ledger: Ledger, n: int) -> Decimal:
    """Return how much of the free money a step's model call may reserve.

    Open steps share it evenly. A step whose last share was too small gets what it needs, if there
    is as much.

    Args:
        ledger: The task.
        n: The step.
    """
    left = free(ledger)
    others = sum(1 for c in ledger.s.opens if c.n != n and c.n not in ledger.asking)
    share = left / (1 + others) if others else left
    needs = ledger.needs.get(n, NOTHING)
    return plain((needs if share < needs <= left else share).quantize(_PLACES, rounding=ROUND_DOWN))


def child_share(ledger: Ledger, n: int) -> Decimal:
    """Return how much of the free money a child task of a step gets.

    The calls of a step without an outcome that are calls of agents share it evenly; the step itself
    goes on when they are over, with what they have left.

    Args:
        ledger: The task.
        n: The step.
    """
    current, described = ledger.at(n), ledger.s.described
    policies = described.rules(current.open.step.agent).policies if described is not None else {}
    # Calls whose children have begun hold their shares already (`free` leaves them out).
    waiting = sum(
        1
        for i, call in enumerate(current.calls)
        if i not in current.outcomes
        and (policy := policy_of(policies, call)) is not None
        and policy.agent
        and not ledger.child(n, i)
    )
    return plain((free(ledger) / max(waiting, 1)).quantize(_PLACES, rounding=ROUND_DOWN))


def proposal(ledger: Ledger, needs: Decimal) -> dict[str, Json]:
    """Return the arguments of an approval that raises the budget: the first amount once more.

    Args:
        ledger: The task.
        needs: What the next call can cost at most.
    """
    budget = ledger.given.budget
    given = budget.max_dollars if budget is not None else None
    once_more = (ledger.max_dollars or NOTHING) + (given or NOTHING)
    raised = max(once_more, least(ledger, needs)).quantize(CENT, rounding=ROUND_UP)
    return {"max_dollars": as_written(raised)}


def least(ledger: Ledger, needs: Decimal) -> Decimal:
    """Return the smallest budget that lets a call be made next to what is spent and reserved."""
    return _taken(ledger) + needs


def asked_for(ledger: Ledger, needs: Decimal) -> str:
    """Return the text of an approval that raises the budget."""
    limit, spent = ledger.max_dollars or NOTHING, settled(ledger)
    proposed = Decimal(str(proposal(ledger, needs)["max_dollars"]))
    return (
        f"The budget of {dollars(limit)} is used up: {dollars(spent)} is spent, and the next model"
        f" call may cost {dollars(needs)}. approve: raise the budget to {dollars(proposed)}, or to"
        " another amount; reject: finish now"
    )


def raise_budget(ledger: Ledger, arguments: str) -> str:
    """Raise the budget as a person decided; return why it is refused, or empty.

    Args:
        ledger: The task.
        arguments: JSON of an object with `max_dollars`.
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
    limit = ledger.max_dollars or NOTHING
    if amount <= limit:
        return f"The budget is {dollars(limit)}: raise it to more than that."
    if amount > MOST_DOLLARS:
        return f"A budget may be raised to at most {dollars(MOST_DOLLARS)}."
    own = ledger.own_dollars or NOTHING
    ledger.change(max_dollars=plain(own + amount - limit))
    return ""
