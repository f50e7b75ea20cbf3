"""Model requests of a step: their settings, their tool choice, and the digest that names them."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.models.base import ModelRequest
from holdfast.task.data.agent_snapshot import AgentSnapshot
from holdfast.task.data.head import TaskHead
from holdfast.values.base import Json, canonical, digest
from holdfast.values.hash_chain import ChainRef
from holdfast.values.messages import Message, system
from holdfast.values.settings import ModelSettings
from holdfast.values.steps import HistoryRef

LAST_CALL = system(
    "The budget of this task is used up. Answer now, without tools: say what is known, what is"
    " missing, and that the budget ended the work."
)
"""Message of the last call that the budget allows."""


def settings_within(agent: AgentSnapshot, head: TaskHead, tokens: int) -> ModelSettings:
    """Return the agent's settings, with no more output tokens than the budget has left.

    Args:
        agent: The agent.
        head: The task's head, whose settings lie over the agent's.
        tokens: Output tokens that are left; 0 for no limit.
    """
    settings = agent.settings.resolve(head.settings)
    if not tokens:
        return settings
    most = min(tokens, settings.max_tokens or tokens)
    return settings.model_copy(update={"max_tokens": most})


def own_choice(agent: AgentSnapshot, head: TaskHead, *, used_tools: bool) -> str | None:
    """Return the tool choice of an agent's settings, for as long as it stands."""
    if used_tools and not agent.keeps_tool_choice:
        return None
    return agent.settings.resolve(head.settings).tool_choice


def request_digest(
    request: ModelRequest,
    *,
    agent: AgentSnapshot,
    head: TaskHead,
    at: ChainRef | None,
    view: HistoryRef | None,
    adds: Sequence[Message],
) -> str:
    """Digest of all that decides the answer to a request.

    The transcript enters by the digest of its chain, so that the cost of a call does not grow with
    the conversation; messages that the AgentWorker chose itself enter whole.

    Args:
        request: The request.
        agent: The agent, whose instructions and tools are not repeated.
        head: The task's head.
        at: The transcript before the step; None when the AgentWorker chose the messages.
        view: The conversation that a handoff made, if one did.
        adds: Messages that the step has added.
    """
    asked: dict[str, Json] = {
        "agent": head.snapshot,
        "model": request.model,
        "choice": request.tool_choice,
        "messages": [m.wire() for m in (request.messages if at is None else adds)],
    }
    if at is not None:
        asked["at"] = at.digest
    if at is not None and view is not None:
        asked["history"] = view.wire()
    if request.instructions != agent.instructions:
        asked["instructions"] = request.instructions
    if request.tools != agent.tools:
        asked["tools"] = [tool.wire() for tool in request.tools]
    if request.output is not None:
        asked["output"] = request.output.wire()
    return digest(canonical(asked))[:16]
