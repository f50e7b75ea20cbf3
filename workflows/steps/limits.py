"""Steps that want a model call which the task's budget has no room for."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Literal

from temporalio import workflow

from holdfast.task.data.failures import KIND, Failure
from holdfast.task.ledger import money
from holdfast.task.people import approvals
from holdfast.values.messages import ToolCall
from holdfast.values.money import NOTHING, as_written
from holdfast.workflows.activity_calls import now
from holdfast.workflows.core import Core, Work

Policy = Literal["ask", "finish", "fail"]


class Limits:
    """Applies the budget's policy."""

    def __init__(self, core: Core, fail: Callable[[Failure, int, Work], Awaitable[None]]) -> None:
        """Drive this task; with `fail` a step fails, unless a handler of the run answers for it."""
        self._core = core
        self._fail = fail

    async def find_money(self, n: int, needs: Decimal, work: Work) -> None:
        """Handle a model call for which too little money was reserved.

        Args:
            n: The step.
            needs: What the call can cost at most.
            work: The unit of work that this is part of.
        """
        ledger = self._core.ledger
        # Looked at now, not when the call was reserved for: siblings have paid or given back since.
        if needs <= money.free(ledger):  # its share was too small
            ledger.needs[n] = needs
        elif ledger.asking:
            await self.wait_for_siblings()
        else:
            text = f"max_dollars={as_written(ledger.max_dollars or NOTHING)}"
            await self.exceeded(n, work, text, needs=needs)

    async def wait_for_siblings(self) -> None:
        """Wait until the activity of another step, which may use up the budget, has ended.

        If it makes no model call after all, the budget has room for this step's.
        """
        core = self._core
        asking = frozenset(core.ledger.asking)
        if asking:  # else it has ended already
            await workflow.wait_condition(lambda: not asking <= core.ledger.asking)

    def policy(self, *, for_money: bool) -> Policy:
        """Return what is to happen when the budget is used up."""
        budget = self._core.given.budget
        if for_money:
            return self._core.ledger.money_policy
        return budget.on_exceeded if budget is not None else "ask"

    async def exceeded(
        self, n: int, work: Work, what: str, *, needs: Decimal | None = None
    ) -> None:
        """Handle a step that wants a model call beyond the budget, by the budget's policy.

        Args:
            n: The step.
            work: The unit of work that this is part of.
            what: The part of the budget that is used up.
            needs: What the call can cost at most, when that part is the money.
        """
        core = self._core
        budget = core.given.budget
        policy = self.policy(for_money=needs is not None)
        if needs is not None and core.ledger.at(n).limit == "finish":
            policy = "fail"  # the money does not suffice for the last answer either
        core.ledger.note("limit", now=now(), text=what, body={"policy": policy})
        match policy:
            case "finish":
                core.ledger.finish_early(n)
            case "fail":
                turns = budget.max_turns if budget is not None else None
                text = f"Max turns ({turns}) exceeded" if "turns" in what else f"Budget: {what}"
                failure = Failure(type="MaxTurnsExceeded", message=text, data={KIND: "max_turns"})
                await self._fail(failure, n, work)
            case "ask" if needs is not None:
                arguments = json.dumps(money.proposal(core.ledger, needs))
                call = ToolCall(id="", name="", arguments=arguments)
                text = money.asked_for(core.ledger, needs)
                approvals.ask(core.ledger, n, -1, "limit", now=now(), text=text, call=call)
            case "ask":
                text = f"The budget is used up ({what}). approve: one more call; reject: finish now"
                approvals.ask(core.ledger, n, -1, "limit", now=now(), text=text)
