"""What a task must know of its agent before its first step: its snapshot, and rules for steps."""

from __future__ import annotations

from typing import Any

from holdfast.activities.data.cache import Cache
from holdfast.activities.data.registry import Registry
from holdfast.agents.agent import Agent
from holdfast.agents.guardrails import guard_rule
from holdfast.agents.runs.teams import has_servers
from holdfast.task.data.agent_snapshot import AgentSnapshot
from holdfast.task.data.head import TaskHead
from holdfast.task.data.state import AgentRules, Described, known_head
from holdfast.values.text.logs import log
from holdfast.workers.base import AgentWorker


async def published(registry: Registry, head: TaskHead) -> Described:
    """Put the snapshot of a task's agent into the archive; return it with the rules of its team.

    Raises:
        AgentNotFoundError: This process does not have the agent.
        MCPConnectionError: One of its MCP servers cannot be reached now.
        UserError: Two tools have one name.
    """
    registry = registry.of(head)
    snapshot = await registry.publish(head.agent)
    team = {each.name: _rules(registry, each, head) for each in snapshot.team}
    refs = (*head.run.input_guardrails, *head.run.output_guardrails)
    return Described(
        **_rules(registry, snapshot, head),
        snapshot=snapshot.digest,
        team={name: AgentRules(**rules) for name, rules in team.items()},
        run_guards=tuple(guard_rule(registry.code(ref), ref) for ref in refs),
        notifies=registry.notifies,
    )


async def described_ahead(registry: Registry, cache: Cache, head: TaskHead) -> Described | None:
    """Find out what a new task must know of its agent before it is started.

    That spares the task an activity, where the process that starts it serves its agent.

    Returns:
        None where only the activity can find it out. Also when it fails: it fails in the activity,
        too, and the task waits with the error for a fix.
    """
    try:
        if _needs_activity(registry, head):
            return None
        described = await published(registry, head)
    except Exception:
        log.debug("Agent %r is described in its task", head.agent, exc_info=True)
        return None
    cache.know(known_head(head, described))
    return described


def _needs_activity(registry: Registry, head: TaskHead) -> bool:
    """Whether only an activity of the task can find all of it out, not who creates the task.

    It asks the agent's MCP servers for their tools, the session for its commits, and an AgentWorker
    that has a first step of its own for that.
    """
    agent = registry.of(head).agent(head.agent)
    return (
        (head.session is not None and not head.session.unread)
        or makes_first_step(agent)
        or has_servers(agent)
    )


def makes_first_step(agent: Agent) -> bool:
    """Whether an agent's AgentWorker has a first step of its own; the task makes the usual one."""
    return type(agent.made_worker).initialize_step is not AgentWorker.initialize_step


def _rules(registry: Registry, snapshot: AgentSnapshot, head: TaskHead) -> dict[str, Any]:
    """Say what the task must know of one agent."""
    settings = snapshot.settings_in(head)
    worker = registry.agent(snapshot.name).made_worker
    return {
        "model": head.model or snapshot.model,
        "policies": snapshot.policies,
        "timeout": settings.seconds_per_attempt,
        "attempts": settings.attempts,
        "parallel": worker.max_parallel,
        "guards": snapshot.guards,
    }
