"""Decisions for later calls in a session: activities that bring them to it, or ask for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from temporalio import activity
from temporalio.client import WorkflowQueryRejectedError
from temporalio.common import QueryRejectCondition
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.failures import typed_failures
from holdfast.archive.session_commits import send_rule
from holdfast.engine.search_attributes import HF_RULES
from holdfast.task.data.agent_snapshot import ToolPolicy, policy_of
from holdfast.task.data.calls import StandingRule
from holdfast.task.data.head import TaskHead
from holdfast.task.data.wire import KeepInput, RecallInput
from holdfast.values.messages import ToolCall

LOOK_TIMEOUT = timedelta(seconds=3)


@activity.defn(name="keep_rule")
async def keep_rule(given: KeepInput) -> None:
    """Give a session a rule, and begin it if need be; a rule that it has changes nothing.

    One that was revoked on its way ends there.
    """
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


async def has_no_rules(
    head: TaskHead, calls: Sequence[ToolCall], policies: Mapping[str, ToolPolicy]
) -> bool:
    """Whether the task's session certainly has no decision for later calls, for calls to be asked.

    The server says so by itself: it needs no worker process that has the session, and a step's
    activity can look where the answer of its model has asked for such calls. A session that has
    news to take is not certain to have none.

    Args:
        head: The task's head.
        calls: The calls.
        policies: Tool name to its rules.
    """
    found = (policy_of(policies, call) for call in calls)
    if head.session is None or all(each is None or each.needs_approval == "no" for each in found):
        return False
    try:
        session = activity.client().get_workflow_handle(head.session.id)
        described = await session.describe(rpc_timeout=LOOK_TIMEOUT)
    except RPCError as error:
        return error.status is RPCStatusCode.NOT_FOUND
    if described.raw_description.HasField("pending_workflow_task"):
        return False
    return not described.typed_search_attributes.get(HF_RULES)
