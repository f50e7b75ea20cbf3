"""Workflows that erase: what a person asks for, and what a rule of retention says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ChildWorkflowError, WorkflowAlreadyStartedError

from holdfast.task.data.wire import Erasure, Retention

ERASES: dict[str, Any] = {
    "start_to_close_timeout": timedelta(hours=6),
    "heartbeat_timeout": timedelta(seconds=30),
}


@workflow.defn(name="Erasure", sandboxed=False)
class ErasureRun:
    """Erases tasks and sessions: it goes on until nothing is found."""

    @workflow.run
    async def run(self, given: Erasure) -> str:
        """Erase; return the digest of the certificate."""
        erased: str = await workflow.execute_activity("erase", given, result_type=str, **ERASES)
        return erased


@workflow.defn(name="Retention", sandboxed=False)
class RetentionRun:
    """Erases the tasks of an agent that have been closed for long, one after the other."""

    @workflow.run
    async def run(self, rule: Retention) -> int:
        """Erase a batch, and continue as new while there is more; return how many are erased."""
        due: list[tuple[float, str]] = await workflow.execute_activity(
            "expired", rule, result_type=list[tuple[float, str]], **ERASES
        )
        erased = 0
        for _, each in due:
            planned: list[Erasure] = await workflow.execute_activity(
                "plan_expired", args=(rule, each), result_type=list[Erasure], **ERASES
            )
            if not planned:  # held, or in use; it is looked at again the next time
                continue
            # A workflow of its own, so that a task which is half erased is never left like that.
            try:
                await workflow.execute_child_workflow(
                    "Erasure",
                    planned[0],
                    id=f"{each}~erasure",
                    id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                    parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                )
            except (ChildWorkflowError, WorkflowAlreadyStartedError) as error:
                workflow.logger.warning("Task %r is not erased: %s", each, error)
                continue
            erased += 1
            # What is erased costs the archive and the server work that open tasks need, too.
            await workflow.sleep(timedelta(minutes=1) / rule.rate)
        total = rule.erased + erased
        if len(due) >= rule.batch:
            workflow.continue_as_new(rule.model_copy(update={"erased": total, "after": due[-1]}))
        return total
