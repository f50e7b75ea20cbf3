"""What lists see of a task without asking it: search attributes and memo, set on changes only."""

from __future__ import annotations

from temporalio import workflow
from temporalio.common import SearchAttributeKey

from holdfast import approvals
from holdfast.ledger import Ledger
from holdfast.seal import MEMO, Seal
from holdfast.steps import TaskStatus

HF_STATUS = SearchAttributeKey.for_keyword("HfStatus")
HF_APPROVALS = SearchAttributeKey.for_int("HfApprovals")
MEMO_KEY = "approvals"


def keep_seal(seal: Seal) -> None:
    """Keep the digests of what was stored of a task with its closed run."""
    workflow.upsert_memo({MEMO: seal.wire()})


def publish(ledger: Ledger, status: TaskStatus) -> None:
    """Publish status and open approvals, if they have changed: one event for each that has."""
    open_now = approvals.pending(ledger)
    ids = ",".join(approval.id.rpartition(":")[2] for approval in open_now)
    if status != ledger.s.published or ids != ledger.s.published_approvals:
        updates = [HF_STATUS.value_set(status)]
        if ids != ledger.s.published_approvals:
            workflow.upsert_search_attributes(  # pyright: ignore[reportUnknownMemberType]  temporalio's types
                [*updates, HF_APPROVALS.value_set(len(open_now))]
            )
            workflow.upsert_memo({MEMO_KEY: [approvals.card(each) for each in open_now]})
        else:
            workflow.upsert_search_attributes(updates)  # pyright: ignore[reportUnknownMemberType]  temporalio's types
        ledger.change(published=status, published_approvals=ids)
