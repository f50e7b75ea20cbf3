"""The agents of a worker process, by name, and the snapshots that running tasks began with.

A snapshot and the rules of its steps are what a task must know of its agent before its first step.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from holdfast.activities.data.cache import Cache
from holdfast.agents.agent import Agent
from holdfast.agents.guardrails import guard_rule
from holdfast.agents.hosted.tools import servers_of
from holdfast.agents.nesting.agent_tool import AgentTool
from holdfast.agents.runs.teams import changed_places, has_servers, reachable
from holdfast.agents.tools.decorator import Tool
from holdfast.archive.archive import Archive
from holdfast.archive.bytestore import CONTENTS_SCOPE, writing_for
from holdfast.errors import AgentNotFoundError, NotFoundError, UserError
from holdfast.models import resolve_model
from holdfast.models.base import AMONG, Model
from holdfast.models.prices import Prices
from holdfast.task.data.head import AgentSnapshot, TaskHead
from holdfast.task.data.state import AgentRules, Described, known_head
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import Json
from holdfast.values.code import context_data as context_object
from holdfast.values.code.code_refs import LOCAL, known, look_up, refer
from holdfast.values.code.user_calls import invoke
from holdfast.values.text.logs import log
from holdfast.workers.base import AgentWorker

MOST_LENT = 1000
"""Agents of runs that are kept by their names, teams included."""


class Registry:
    """Agents that this process can run.

    Attributes:
        prices: What models cost, if this process records that.
        notifies: Whether this process has notifiers, see `AgentRunner.local`.
    """

    def __init__(
        self,
        agents: Iterable[Agent],
        archive: Archive,
        snapshots: dict[str, AgentSnapshot] | None = None,
        *,
        prices: Prices | None = None,
        notifies: bool = False,
        lazy: bool = False,
    ) -> None:
        """Register agents.

        Args:
            agents: The agents.
            archive: Has their snapshots.
            snapshots: The known snapshots by digest; new ones are added.
            prices: See above.
            notifies: See above.
            lazy: Whether to look for the agents that they can reach only when one is wanted. A
                run's registry is made for each step and call, and few of them want another agent.

        Raises:
            UserError: Two agents have one name, among these or the agents that they hand over to or
                call as tools.
        """
        self.prices = prices
        self.notifies = notifies
        self._archive = archive
        self._agents: dict[str, Agent] = {}
        self._lent: dict[str, None] = {}
        self._named: dict[str, Any] = {}
        self.replaced: list[Agent] = []
        self._snapshots = {} if snapshots is None else snapshots
        self._unread = tuple(agents)
        if not lazy:
            self._read()

    def _read(self) -> None:
        """Register the given agents, and the agents that they can reach, unless that is done.

        Raises:
            UserError: Two of them have one name.
        """
        if not self._unread:
            return
        reachable(self._unread)
        for agent in self._unread:
            self._add(agent, lent=False)
        self._unread = ()

    def _found(self, name: str) -> Agent | None:
        for agent in self._unread:
            if agent.name == name:
                return agent
        self._read()
        return self._agents.get(name)

    def lend(self, agent: Agent) -> None:
        """Serve the agent of a run, and its team; the newest one that was lent is served.

        Raises:
            UserError: A different agent of this name is always served here, or two of its team
                have one name.
        """
        reachable([agent])
        self._add(agent, lent=True)
        for name in list(self._lent)[: max(len(self._lent) - MOST_LENT, 0)]:
            self._drop(name)

    def follow(self, newer: Registry) -> None:
        """Serve the agents of a newer registry of this process in place of those of their names."""
        newer._read()
        self._agents |= newer._agents
        self._named |= newer._named
        self.prices, self.notifies = newer.prices, newer.notifies

    @property
    def agents(self) -> Iterable[Agent]:
        """The agents that are served."""
        return self._agents.values()

    def _drop(self, name: str) -> None:
        """Drop a lent agent by name; runs in progress keep the object itself, see `of`."""
        del self._lent[name]
        agent = self._agents.pop(name)
        for tool in agent.made_tools:
            for part in _code_of(tool):
                self._named.pop(f"{LOCAL}:{name}.{tool.qualified_name}:{part}", None)

    def _add(self, agent: Agent, *, lent: bool) -> None:
        name = agent.name
        served = self._agents.get(name)
        if served is not None and served is not agent and name not in self._lent:
            if live(served) != live(agent):
                raise UserError(
                    f"Two different agents are named {name!r} in this process. A name is an"
                    " agent's identity for its tasks: rename one of them."
                )
            if lent:
                return
        if lent and (served is None or name in self._lent):
            self._lent.pop(name, None)
            self._lent[name] = None  # the newest
        if served is not None and served is not agent and served.mcp_servers:
            self.replaced.append(served)
        self._agents[name] = agent
        for tool in agent.made_tools:
            for part, thing in _code_of(tool).items():
                self._named[f"{LOCAL}:{name}.{tool.qualified_name}:{part}"] = thing
        for other in (*agent.team(), *agent.nested()):
            if self._agents.get(other.name) is not other:
                self._add(other, lent=lent)

    def of(self, head: TaskHead) -> Registry:
        """Return the registry for a task: that of the objects with which its run was started.

        Only the process that started the run has them, and only until the run is over; else the
        agents of their names are served.
        """
        first = known(head.run.agent) if head.run.agent else None
        if first is None:
            return self
        return type(self)(
            [first],
            self._archive,
            self._snapshots,
            prices=self.prices,
            notifies=self.notifies,
            lazy=True,
        )

    def refer(self, thing: Any) -> str:
        """Return a reference to a function, by which other processes can find it."""
        self._read()
        named = (ref for ref, other in self._named.items() if other is thing)
        return next(named, None) or refer(thing)

    def code(self, ref: str) -> Any:
        """Return the code that a run brought along by reference.

        Raises:
            NotFoundError: It cannot be found in the modules of the agents that are served here.
        """
        self._read()
        if ref in self._named:
            return self._named[ref]
        modules = set[str]().union(*map(_modules_of, self._agents.values()))
        return look_up(ref, modules | {"holdfast.agents.handoffs.filters"})

    def load_context(self, head: TaskHead, data: Json) -> Any:
        """Make a run's context object of JSON data."""
        ref = head.run.context
        kind = context_object.kind_of(self.code(ref)) if ref else None
        return context_object.load(data, kind)

    def context(self, head: TaskHead, state: dict[str, Json]) -> Any:
        """Return the context object of a task's run, as its state holds it: a copy of its own."""
        return self.load_context(head, merge_patch.plain(state.get(context_object.KEY)))

    @property
    def names(self) -> list[str]:
        """Names of the agents, sorted."""
        self._read()
        return sorted(self._agents)

    def agent(self, name: str, began: AgentSnapshot | None = None) -> Agent:
        """Return the agent of this name.

        Args:
            name: The name.
            began: The agent that the task began with, and its team, where the agent is about to
                act for the task.

        Raises:
            AgentNotFoundError: This process has none; or it shares its author's name with another
                agent of the run, and is not declared as the one that the task began with.
        """
        found = self._found(name) if self._unread else self._agents.get(name)
        if found is None:
            msg = (
                f"The task wants agent {name!r}, but this worker process serves:"
                f" {', '.join(self.names) or 'none'}. The task waits, nothing is lost."
            )
            remedy = "Pass the agent to the worker process and restart it."
            raise AgentNotFoundError(msg, remedy=remedy)
        role = None if began is None else began.of(name)
        if role is not None and (role.shared or found.shared_name):
            _check_role(found, role)
        return found

    async def publish(self, name: str) -> AgentSnapshot:
        """Put the agent's snapshot into the archive and return it.

        Raises:
            MCPConnectionError: One of its MCP servers cannot be reached now.
            UserError: Two tools have one name.
        """
        snapshot = await _with_servers(self.agent(name))
        if snapshot.digest not in self._snapshots:
            with writing_for(CONTENTS_SCOPE):  # all tasks of the agent have it
                await self._archive.aput(snapshot.data)
            self._snapshots[snapshot.digest] = snapshot
        return snapshot

    async def snapshot(self, sha256: str) -> AgentSnapshot:
        """Return the snapshot of this digest, as it was when a task began with it."""
        known = self._snapshots.get(sha256)
        if known is None:
            known = AgentSnapshot.model_validate_json(await self._archive.aget(sha256))
            self._snapshots[sha256] = known
        return known

    async def model_of_run(
        self, agent: Agent, snapshot: AgentSnapshot, head: TaskHead, _limit: str = ""
    ) -> Model:
        """Return the model that answers for an agent in a task, as its run wants it.

        Raises:
            NotFoundError: The run's Model or model provider is not known in this process; or as
                for `model`.
        """
        if head.run.model:
            return resolve_model(self.code(head.run.model))
        named = agent.model is None or isinstance(agent.model, str | tuple)
        if head.run.model_provider and (head.model or named):
            provider = self.code(head.run.model_provider)
            made = [
                await invoke(provider.get_model, each) if isinstance(each, str | None) else each
                for each in _several(head.model or agent.model)
            ]
            return resolve_model(made)
        return self.model(agent, snapshot, head.model)

    def model(self, agent: Agent, snapshot: AgentSnapshot, override: str) -> Model:
        """Return the model that answers for this agent in a task: the one it began with.

        Args:
            agent: The agent as it is now.
            snapshot: The agent as the task knows it.
            override: Model name that the task was created with, or empty.

        Raises:
            NotFoundError: The agent has another Model object now, and the earlier one cannot be
                made of its name alone.
        """
        if override:
            return resolve_model(override.split(AMONG) if AMONG in override else override)
        now = resolve_model(agent.model)
        if now.name == snapshot.model:
            return now
        if isinstance(agent.model, tuple) or AMONG in snapshot.model:  # one was added, or taken out
            known = {resolve_model(each).name: each for each in _several(agent.model)}
            return resolve_model([known.get(each, each) for each in _several(snapshot.model)])
        if agent.model is None or isinstance(agent.model, str):
            return resolve_model(_like(agent.model, snapshot.model))
        msg = (
            f"The task began with model {snapshot.model!r} of agent {agent.name!r}, but this worker"
            f" process has model {now.name!r} for it. The task waits, nothing is lost."
        )
        remedy = (
            f"Give agent {agent.name!r} a model named {snapshot.model!r} again, restart the worker"
            " process and run the step again; or fork the task, which begins with the agent as it"
            " is now."
        )
        raise NotFoundError(msg, remedy=remedy)


def _check_role(agent: Agent, began: AgentSnapshot) -> None:
    """Refuse an agent that may have changed places with another one of its name.

    What it is declared as shows it.

    Raises:
        AgentNotFoundError: It is declared otherwise than the one that the task began with.
    """
    if agent.snapshot(began.model).has_role_of(began):
        return
    msg, remedy = changed_places(began.name, "The task waits, nothing is lost.")
    raise AgentNotFoundError(msg, remedy=remedy)


def _code_of(tool: Tool) -> dict[str, Any]:
    """Return the code of an agent that is a tool, by reference, for its child tasks."""
    return tool.code if isinstance(tool, AgentTool) else {}


def _modules_of(agent: Agent) -> set[str]:
    """List the modules with an agent's code: a run's references may name functions of these."""
    code = [
        *(getattr(tool, "__wrapped__", tool.on_invoke_tool) for tool in agent.made_tools),
        *(thing for tool in agent.made_tools for thing in _code_of(tool).values()),
        *(guardrail.guardrail_function for guardrail in agent.input_guardrails),
        *(guardrail.guardrail_function for guardrail in agent.output_guardrails),
        *(each.code for each in agent.made_handoffs),
        *(each.input_filter for each in agent.made_handoffs),
        agent.instructions,
        agent.tool_use_behavior,
        agent.prompt,
        *(server.on_approval_request for server in servers_of(agent.hosted_tools)),
    ]
    parts = [type(agent.worker), type(agent.hooks), *(thing for thing in code if callable(thing))]
    modules = {getattr(part, "__module__", None) for part in parts}
    return {name for name in modules if name and name.partition(".")[0] not in _SKIPPED}


_SKIPPED = sys.stdlib_module_names | {"holdfast"}
"""Packages to skip when looking for the user's modules: `functools`, because of `partial`, ..."""


def _several(given: Any) -> Sequence[Any]:
    """Return each of several models, or of their names."""
    if isinstance(given, tuple):
        return cast("Sequence[Any]", given)
    return given.split(AMONG) if isinstance(given, str) else (given,)


def _like(setting: str | None, name: str) -> str:
    """Name a model for the API that a setting names: a snapshot keeps the provider's name only."""
    api, colon, _ = (setting or "").partition(":")
    return f"{api}:{name}" if colon and api in ("chat", "responses") else name


async def _with_servers(agent: Agent) -> AgentSnapshot:
    """Describe an agent and its team as they are now, with the tools of their MCP servers."""
    having = [each for each in (agent, *agent.team()) if each.mcp_servers]
    if not having:
        return live(agent)
    # Subclasses may have the Agents SDK's signature, in which the context has no default.
    listed = await asyncio.gather(*(each.get_mcp_tools(None) for each in having))
    return live(agent, {each.name: tools for each, tools in zip(having, listed, strict=True)})


def live(agent: Agent, served: Mapping[str, Sequence[Tool]] | None = None) -> AgentSnapshot:
    """Describe an agent and its team as they are now.

    Args:
        agent: The agent.
        served: Name of an agent to the tools of its MCP servers.
    """
    tools = served or {}
    first, *others = [
        each.snapshot(resolve_model(each.model).name, tools.get(each.name, ()))
        for each in (agent, *agent.team())
    ]
    return first.model_copy(update={"team": tuple(others)}) if others else first


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
        None where only the activity can find it out. Also when it fails: it fails in the activity
        as well, and the task waits with the error for a fix.
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
        (head.session is not None and (head.session.queues or not head.session.unread))
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
    model = head.model or snapshot.model
    several = 1 + model.count(AMONG)  # each may use up its time
    return {
        "model": model,
        "policies": snapshot.policies,
        "timeout": settings.seconds_per_attempt * several,
        "attempts": settings.attempts,
        "parallel": worker.max_parallel,
        "guards": snapshot.guards,
    }
