"""Tasks in Temporal's visibility store: search attributes, memo keys, and queries."""

from __future__ import annotations

import re

from temporalio.common import SearchAttributeKey

HF_STATUS = SearchAttributeKey.for_keyword("HfStatus")
"""The task's status."""

HF_AGENT = SearchAttributeKey.for_keyword("HfAgent")
"""The agent that the task began with."""

HF_APPROVALS = SearchAttributeKey.for_int("HfApprovals")
"""Number of the task's open approvals."""

HF_RULES = SearchAttributeKey.for_int("HfRules")
"""Number of the decisions for later calls that a task, or a session, has."""

HF_TENANT = SearchAttributeKey.for_keyword("HfTenant")
"""Whose a task or a schedule is; missing for no one's."""

SEARCH_ATTRIBUTES = {
    HF_STATUS.name: "Keyword",
    HF_APPROVALS.name: "Int",
    HF_AGENT.name: "Keyword",
    HF_RULES.name: "Int",
    HF_TENANT.name: "Keyword",
}
"""All search attributes with their types. Lists and the inbox read these and the memo, so that they
need no query per task."""

INPUT_MEMO = "input"
"""Key in the memo: the beginning of the task's input."""

CREATED_MEMO = "created"
"""Key in the memo: when the task was created, in seconds since 1970."""

ORIGIN_MEMO = "from"
"""Key in the memo of a fork: id of the task that it departs from, and the number of the step."""

APPROVALS_MEMO = "approvals"
"""Key in the memo: the oldest open approvals, as `approvals.card` makes them."""

SNAPSHOT_MEMO = "agent"
"""Key in the memo of a task that waits for a person: digest of the agent's snapshot in the archive,
so that what a call means is known while no worker process is up."""

SEAL_MEMO = "seal"
"""Key in the failure of a closed run, or its memo: the digests of the task's stored data."""

AGENT_TASK = "AgentTask"
"""Workflow type of a task."""

SESSION = "Session"
"""Workflow type of a session."""

SESSIONS = f"WorkflowType = '{SESSION}'"
"""Query for all runs of all sessions."""

VERSION = "TemporalWorkerDeploymentVersion"
"""Temporal's attribute: deployment and build, `NAME:ID`, of the worker that decided last."""

BEHAVIOUR = "TemporalWorkflowVersioningBehavior"
"""Temporal's attribute: whether a workflow may go on with another build."""

PINNED = f"{BEHAVIOUR} = 'Pinned'"
"""Query for what ends with the build that it began with."""

SPLIT = "A query brought a part of this workflow task"
"""How the failure of a workflow task begins that comes again as a whole; a query that fails with it
gets this text alone."""

TASKS = f"WorkflowType = '{AGENT_TASK}'"
"""Query for all runs of all tasks."""

OPEN_TASKS = f"{TASKS} AND ExecutionStatus = 'Running'"
"""Query for the tasks that are open."""


def is_(name: str, value: str, *, negated: bool = False) -> str:
    """Return a query's condition on an attribute, to be appended to other conditions.

    Servers differ in how they read quotes and backslashes, and some refuse them. For a value with
    such characters, the condition covers only the part before the first of them, so compare the
    attribute of each result with the value.

    Args:
        name: The attribute.
        value: The value.
        negated: Whether the attribute must not have the value; the condition is then empty for a
            value with such characters.
    """
    if _plain(value) != value:
        return "" if negated else begins(name, value)
    return f" AND {name} {'!=' if negated else '='} '{value}'"


def begins(name: str, value: str) -> str:
    """Return a query's condition on the beginning of an attribute; see `is_`."""
    plain = _plain(value)
    return f" AND {name} STARTS_WITH '{plain}'" if plain else ""


def _plain(value: str) -> str:
    return re.split(r"[\"'`\\]", value, maxsplit=1)[0]
