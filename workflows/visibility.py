"""What lists see of a task without asking it: search attributes and memo, set on changes only."""

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
"""Most approvals of a task that lists show; the task itself tells of all. Each change of these is
in history with all of them."""


def keep_seal(seal: Seal) -> None:
    """Keep the digests of what was stored of a task with its closed run."""
    workflow.upsert_memo({SEAL_MEMO: seal.wire()})


def publish(ledger: Ledger, status: TaskStatus) -> None:
    """Publish status and open approvals, if they have changed: one event for each that has."""
    s, open_now = ledger.s, approvals.pending(ledger)
    shown = open_now[:MOST_CARDS]
    ids = ",".join(approval.id.rpartition(":")[2] for approval in shown)
    count, _, shown_before = s.published_approvals.rpartition(":")
    now_open = f"{len(open_now)}:{ids}" if open_now else ""
    if status == s.published and now_open == s.published_approvals:
        return
    updates: list[SearchAttributeUpdate[Any]] = [HF_STATUS.value_set(status)]
    if (count or "0") != str(len(open_now)):
        updates += [HF_APPROVALS.value_set(len(open_now))]
    workflow.upsert_search_attributes(updates)  # pyright: ignore[reportUnknownMemberType]  temporalio's types
    if ids != shown_before:
        workflow.upsert_memo({APPROVALS_MEMO: [approvals.card(each) for each in shown]})
    ledger.change(published=status, published_approvals=now_open)
