"""The governor of one provider and key: a workflow that answers asks for leases.

It has no timers: while no worker asks, nothing happens. A lease needs no end of its own.
"""

from __future__ import annotations

from temporalio import workflow

from holdfast.engine.converter import Opening
from holdfast.serving.governor.shares import Ask, Lease, Shares

QUEUE = "hf-governor-1"
"""Task queue of all governors of a namespace, and the begin of their ids. Where new code could not
go on with the histories of old code, the number grows: each version then has its own governors."""

TENANTS = "hf-tenants-1"
"""Task queue and id of the governor that counts the days of a namespace's tenants; likewise. Worker
processes without budgets of tenants do not poll the queue."""

MOST_ANSWERS = 1000
"""Answers of one run: the server allows 2,000 updates."""


@workflow.defn(name="Governor", sandboxed=False)
class Governor(Opening):
    """Leases shares of one provider's time to worker processes."""

    takes = Shares

    @workflow.init
    def __init__(self, shares: Shares) -> None:
        """Begin with nothing leased, or go on after continue-as-new."""
        self._shares = shares
        self._answers = 0

    @workflow.run
    async def run(self, shares: Shares) -> None:
        """Answer until it continues as new."""
        del shares
        await workflow.wait_condition(self._rolls)
        self._shares.forget_days(workflow.time())
        workflow.continue_as_new(self._shares)

    def _rolls(self) -> bool:
        return (
            self._answers >= MOST_ANSWERS or workflow.info().is_continue_as_new_suggested()
        ) and workflow.all_handlers_finished()

    @workflow.update
    def lease(self, ask: Ask) -> Lease:
        """Lease a worker what it may have."""
        self._answers += 1
        return self._shares.answer(ask, workflow.time())

    @workflow.query
    def shares(self) -> Shares:
        """Show what is known."""
        return self._shares
