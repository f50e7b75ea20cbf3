"""Search attributes and memo of a task, by which lists show it without a query."""

from __future__ import annotations

from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeUpdate

from holdfast.engine.search_attributes import (
    APPROVALS_MEMO,
    HF_APPROVALS,
    HF_STATUS,
    SEAL_MEMO,
)
from holdfast.task import approvals
from holdfast.task.data.seal import Seal
from holdfast.task.ledger.ledger import Ledger
from holdfast.values.steps import TaskStatus

MOST_CARDS = 20
"""Most approvals of a task that lists show; a query returns all. Each change of these adds all of
them to the history."""


def keep_seal(seal: Seal) -> None:
    """Put the digests of a closed task's record into the memo."""
    workflow.upsert_memo({SEAL_MEMO: seal.wire()})


def publish(ledger: Ledger, status: TaskStatus) -> None:
    """Publish status and open approvals, if they have changed: one event for each that has."""
    s, open_now = ledger.s, approvals.pending(ledger)
    shown = open_now[:MOST_CARDS]
    ids, count = tuple(approval.id for approval in shown), len(open_now)
    if (status, ids, count) == (s.published, s.published_approvals, s.published_count):
        return
    updates: list[SearchAttributeUpdate[Any]] = [HF_STATUS.value_set(status)]
    if count != s.published_count:
        updates += [HF_APPROVALS.value_set(count)]
    workflow.upsert_search_attributes(updates)  # pyright: ignore[reportUnknownMemberType]  temporalio's types
    if ids != s.published_approvals:
        workflow.upsert_memo({APPROVALS_MEMO: [approvals.card(each) for each in shown]})
    ledger.change(published=status, published_approvals=ids, published_count=count)
