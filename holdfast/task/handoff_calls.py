"""Calls of handoffs as a task sees them: which agent a call names, and whether it got the task."""

from __future__ import annotations

import json
from collections.abc import Mapping

from holdfast.task.data.agent_snapshot import ToolPolicy, policy_of
from holdfast.values.messages import Message, ToolCall

IGNORED = "Multiple handoffs detected, ignoring this one."
"""Result of every handoff of a response but the first, as the Agents SDK words it."""


def transfer_message(agent: str) -> str:
    """Return the result of the call by which the agent of this name gets the task."""
    return json.dumps({"assistant": agent})


def called_handoff(call: ToolCall, policies: Mapping[str, ToolPolicy]) -> str:
    """Return the agent that a call wants to hand the task to; empty for a call of a tool.

    Args:
        call: The call.
        policies: The policies of the agent that made it: those of the snapshot of the step's agent.
    """
    policy = policy_of(policies, call)
    return policy.handoff if policy is not None else ""


def handed_to(call: ToolCall, result: Message, policies: Mapping[str, ToolPolicy]) -> str:
    """Return the agent that a call has handed the task to; empty if it has not.

    Args:
        call: The call.
        result: The message that answers it.
        policies: The policies of the agent that made it.
    """
    # Read from the text, because a transcript has only messages and no field for this.
    given_up = result.is_error or result.text == IGNORED
    return "" if given_up else called_handoff(call, policies)
