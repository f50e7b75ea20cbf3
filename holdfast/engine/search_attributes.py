"""What Temporal's visibility store keeps of tasks: search attributes, memo keys, and queries."""

from __future__ import annotations

import re

from temporalio.common import SearchAttributeKey

HF_STATUS = SearchAttributeKey.for_keyword("HfStatus")
"""The task's status."""

HF_AGENT = SearchAttributeKey.for_keyword("HfAgent")
"""The agent that the task began with."""

HF_APPROVALS = SearchAttributeKey.for_int("HfApprovals")
"""How many approvals of the task are open."""

SEARCH_ATTRIBUTES = {HF_STATUS.name: "Keyword", HF_APPROVALS.name: "Int", HF_AGENT.name: "Keyword"}
"""All of them, with their types: lists and the inbox read these, never a query per task."""

INPUT_MEMO = "input"
"""Key in the memo: the beginning of the task's input."""

CREATED_MEMO = "created"
"""Key in the memo: when the task was created, in seconds since 1970."""

APPROVALS_MEMO = "approvals"
"""Key in the memo: the oldest open approvals, as `approvals.card` makes them."""

SEAL_MEMO = "seal"
"""Key in the memo of a closed run: the digests of what was stored of the task."""

AGENT_TASK = "AgentTask"
"""Type of the workflow that a task is."""

TASKS = f"WorkflowType = '{AGENT_TASK}'"
"""Query for all runs of all tasks."""

OPEN_TASKS = f"{TASKS} AND ExecutionStatus = 'Running'"
"""Query for the tasks that are open."""


def is_(name: str, value: str, *, negated: bool = False) -> str:
    """Return what a query says of an attribute, to be put behind other conditions.

    Servers differ in how they read quotes and backslashes, and some read none of them: of such a
    value, what stands before them is asked for. Compare what is found with the value.

    Args:
        name: The attribute.
        value: What it is to be.
        negated: What it is not to be; nothing is said then of a value with quotes.
    """
    if _plain(value) != value:
        return "" if negated else begins(name, value)
    return f" AND {name} {'!=' if negated else '='} '{value}'"


def begins(name: str, value: str) -> str:
    """Return what a query says of the beginning of an attribute; see `is_`."""
    plain = _plain(value)
    return f" AND {name} STARTS_WITH '{plain}'" if plain else ""


def _plain(value: str) -> str:
    return re.split(r"[\"'`\\]", value, maxsplit=1)[0]
