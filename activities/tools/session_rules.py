"""The activities that bring a task's session decisions for later calls, and ask for them."""

from __future__ import annotations

from temporalio import activity
from temporalio.client import WorkflowQueryRejectedError
from temporalio.common import QueryRejectCondition
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.failures import typed_failures
from holdfast.archive.session_commits import send_rule
from holdfast.task.data.calls import StandingRule
from holdfast.task.data.wire import KeepInput, RecallInput


@activity.defn(name="keep_rule")
async def keep_rule(given: KeepInput) -> None:
    """Give a session a rule, and begin it if need be; a rule that it has changes nothing."""
    session, queue = given.session, given.session.queue or activity.info().task_queue
    with typed_failures():
        await send_rule(activity.client(), session.id, queue, given.rule)


@activity.defn(name="session_rules")
async def session_rules(wanted: RecallInput) -> list[StandingRule]:
    """List the rules of a session for the calls of one agent's tool, oldest first."""
    handle = activity.client().get_workflow_handle(wanted.session)
    with typed_failures():
        try:
            found = await handle.query(
                "standing_rules",
                result_type=list[StandingRule],
                reject_condition=QueryRejectCondition.NOT_OPEN,
            )
        except WorkflowQueryRejectedError:  # ended by an operator: nobody could revoke its rules
            return []
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:  # nothing has begun it yet
                return []
            raise
    return [rule for rule in found if (rule.tool, rule.agent) == (wanted.tool, wanted.agent)]
