"""Runs whose conversation the provider keeps: what fits them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.agents.agent import Agent
from holdfast.agents.nesting.agent_tool import AgentTool
from holdfast.agents.run_config import RunConfig
from holdfast.agents.runs.teams import reachable
from holdfast.errors import UserError
from holdfast.task.data.head import KeptConversation
from holdfast.values.text.logs import log
from holdfast.values.text.shown import shown

IDS = ("conversation_id", "previous_response_id")


def kept_conversation(
    agent: Agent, config: RunConfig, given: Mapping[str, Any], *, has_session: bool, begins: bool
) -> KeptConversation | None:
    """Return where the provider keeps the conversation of a run; None when it does not.

    Args:
        agent: The agent that the run starts with.
        config: The run's settings.
        given: The arguments of the run.
        has_session: Whether the run has a session.
        begins: Whether it begins; one that goes on does so with what it began with.

    Raises:
        UserError: An argument is not text, or the run has a session,
            a handoff filter or a guardrail of its output, which would need the conversation to be
            here. An agent as a tool whose conversation is kept has such a guardrail.
    """
    if begins:
        _check_tools(agent, config)
    ids = {name: given.get(name) or "" for name in IDS}
    for name, value in ids.items():
        if not isinstance(value, str):
            msg = f"{name} must be a text, as the provider gave it; it was {shown(value)}."
            raise UserError(msg)
    named = [name for name in (*ids, "auto_previous_response_id") if given.get(name)]
    if not named:
        return None
    if ids["conversation_id"] and ids["previous_response_id"]:
        text = "%s is not used: the run goes on with conversation %r, which has its own order"
        log.warning(text, named[1], ids["conversation_id"])
        ids["previous_response_id"] = ""
    if has_session:
        msg = (
            f"Session persistence and {named[0]} exclude each other: either the session gives the"
            " model what was said before, or the provider does. Leave one of them out."
        )
        raise UserError(msg)
    if begins:
        _refuse_output_guardrails(agent, config, named[0])
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


def _refuse_output_guardrails(agent: Agent, config: RunConfig, name: str) -> None:
    """Refuse guardrails of an output that the provider would keep, whatever they say of it.

    Args:
        agent: The agent that the run starts with; the others that it may end with are looked at,
            too, so that nothing is paid for first.
        config: The run's settings.
        name: The argument by which the provider keeps the conversation.

    Raises:
        UserError: There is one.
    """
    guarded = [each.name for each in (agent, *agent.team()) if each.output_guardrails]
    if config.output_guardrails:
        whose = "RunConfig(output_guardrails=)"
    elif guarded:
        whose = f"the output_guardrails of agent {guarded[0]!r}"
    else:
        return
    msg = (
        f"Output guardrails cannot be combined with {name}: an output that they stop stays in the"
        f" server-managed conversation history, where the model reads it in the next turn. This run"
        f" has {whose}."
    )
    remedy = f"Leave them out, or {name}: with session= in its place Holdfast keeps the history."
    raise UserError(msg, remedy=remedy)


def _check_tools(agent: Agent, config: RunConfig) -> None:
    """Refuse the same of agents as tools, whose runs have the settings of this one by default."""
    tools = (tool for each in reachable([agent]) for tool in each.made_tools)
    for tool in tools:
        if not isinstance(tool, AgentTool) or not isinstance(tool.agent, Agent):
            continue
        named = next((name for name in IDS if tool.options.get(name)), None)
        if named is not None:
            _refuse_output_guardrails(tool.agent, tool.run_config or config, f"as_tool({named}=)")
