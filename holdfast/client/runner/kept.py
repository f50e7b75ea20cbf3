"""Runs whose conversation the provider keeps: what fits them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.agents.agent import Agent
from holdfast.agents.run_config import RunConfig
from holdfast.errors import UserError
from holdfast.task.data.head import KeptConversation
from holdfast.values.text.logs import log
from holdfast.values.text.shown import shown


def kept_conversation(
    agent: Agent, config: RunConfig, given: Mapping[str, Any], *, has_session: bool
) -> KeptConversation | None:
    """Return where the provider keeps the conversation of a run; None when it does not.

    Args:
        agent: The agent that the run starts with.
        config: The run's settings.
        given: The arguments of the run.
        has_session: Whether the run has a session.

    Raises:
        UserError: An argument is no text, two of them exclude each other, or the run has a session
            or a handoff filter, which would need the conversation to be sent whole.
    """
    ids = {name: given.get(name) or "" for name in ("conversation_id", "previous_response_id")}
    for name, value in ids.items():
        if not isinstance(value, str):
            msg = f"{name} must be a text, as the provider gave it; it was {shown(value)}."
            raise UserError(msg)
    named = [name for name in (*ids, "auto_previous_response_id") if given.get(name)]
    if not named:
        return None
    if ids["conversation_id"] and len(named) > 1:
        msg = f"{named[0]} and {named[1]} exclude each other: give one of them."
        raise UserError(msg)
    if has_session:
        msg = (
            f"Session persistence and {named[0]} exclude each other: either the session gives the"
            " model what was said before, or the provider does. Leave one of them out."
        )
        raise UserError(msg)
    team = (agent, *agent.team())
    handoffs = [each for member in team for each in member.made_handoffs]
    if config.handoff_input_filter or any(each.input_filter for each in handoffs):
        msg = (
            "Server-managed conversations do not support handoff input filters: with"
            f" {named[0]} the provider has the conversation already, so no filter can take anything"
            " out of it."
        )
        raise UserError(msg)
    if config.nest_handoff_history or any(each.nest_handoff_history for each in handoffs):
        log.warning(
            "Runs with %s do not support nest_handoff_history, which is ignored: the provider has"
            " the conversation already.",
            named[0],
        )
    return KeptConversation(**ids)
