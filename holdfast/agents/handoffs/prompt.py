"""Words for the instructions of agents that hand tasks over to each other."""

from __future__ import annotations

RECOMMENDED_PROMPT_PREFIX = (
    "# How you work\n"
    "You are one of several agents that share a conversation. Each agent has its own instructions"
    " and tools, and can pass the conversation on to another agent by a handoff: a function whose"
    " name usually begins with `transfer_to_`. Handoffs happen unseen: do not announce, explain or"
    " mention them when you talk to the user."
)
"""Explains handoffs to a model; put it before an agent's own instructions."""


def prompt_with_handoff_instructions(prompt: str) -> str:
    """Return an agent's instructions with the explanation of handoffs before them."""
    return f"{RECOMMENDED_PROMPT_PREFIX}\n\n{prompt}"
