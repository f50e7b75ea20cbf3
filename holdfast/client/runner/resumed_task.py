"""The checks of a task before a run goes on with it."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from holdfast.agents.agent import Agent
from holdfast.agents.agent_base import shared_name
from holdfast.agents.runs.teams import changed_places, is_apart
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.client.caller_sessions.store import CallerStore
from holdfast.client.runner.run_call import RunCall
from holdfast.errors import UserError
from holdfast.reading.runs.recorded import Recorded, read_snapshot
from holdfast.task.data.agent_snapshot import AgentSnapshot
from holdfast.values.runs.status import CLOSED
from holdfast.values.text.logs import log


async def check_resumable(engine: AgentRunner, call: RunCall, before: Recorded) -> None:
    """Refuse to go on with another task, session or agent than those of the state.

    Args:
        engine: Serves the run.
        call: The run.
        before: The task.

    Raises:
        UserError: One of them differs, or agents that share a name may have changed places.
    """
    task, agent = before.task, call.agent
    if call.task_id != task.task_id:
        msg = f"The state is of task {task.task_id!r}; it cannot be run as {call.task_id!r}."
        raise UserError(msg)
    _check_same_session(engine, call, before)
    names = [each.name for each in (agent, *agent.team())]
    if task.agent not in names:
        msg = (
            f"Task {task.task_id!r} began with agent {task.agent!r}; {agent.name!r} knows"
            f" {', '.join(map(repr, names))} only. Run the state with the agent it began with."
        )
        raise UserError(msg)
    await _check_roles(engine, call, before)


async def _check_roles(engine: AgentRunner, call: RunCall, before: Recorded) -> None:
    """Refuse to go on with agents that share a name, if they may have changed places.

    Raises:
        UserError: One may be another than that which the task began with under its name.
    """
    if not is_apart(call.agent) or before.task.status in CLOSED:
        return
    began = await read_snapshot(engine.reader, before.head)
    known = {} if began is None else {each.name: each for each in (began, *began.team)}
    agents = (call.agent, *call.agent.team()) if known else ()
    shared = {each.name for each in agents if shared_name(each)}
    shared |= {name for name, each in known.items() if each.shared}
    for agent in agents:
        if _may_be_another(agent, known.get(agent.name), shared):
            msg, remedy = changed_places(agent.name, "Nothing was changed.")
            raise UserError(msg, remedy=remedy)


def _may_be_another(agent: Agent, began: AgentSnapshot | None, shared: AbstractSet[str]) -> bool:
    """Whether an agent may be another one than that which a task began with under its name.

    One whose name is its own may be edited, but must not lead to others of those that share one.

    Args:
        agent: The agent.
        began: The one that the task began with; None if it had none of this name.
        shared: The names in the task of agents that share one.
    """
    if began is None:
        return agent.name in shared
    now = agent.snapshot(began.model)
    if agent.name in shared:
        return not now.has_role_of(began)
    both = now.leads.keys() & began.leads.keys()
    pairs = ({now.leads[name], began.leads[name]} for name in both)
    return any(len(pair) > 1 and pair & shared for pair in pairs)


def _check_same_session(engine: AgentRunner, call: RunCall, before: Recorded) -> None:
    """Refuse to go on with a task in another session than its own.

    Raises:
        UserError: It has another, or none.
    """
    ref, own, given = before.head.session, before.head.caller_session, call.session
    if given is None:
        if own is not None:
            text = "Task %r keeps its turn for session %r of its caller until a run has session= it"
            log.warning(text, call.task_id, own.id)
        return
    if isinstance(given, CallerStore):
        is_same = own is not None and (not own.id or not given.name or own.id == given.name)
    else:
        is_same = ref is not None and engine.session(given).id == ref.id
    if not is_same:
        known = repr(ref.name) if ref is not None else own and f"{own.id!r} of its caller"
        msg = (
            f"Task {call.task_id!r} has {f'session {known}' if known else 'no session'}, and keeps"
            f" it: a state cannot be run in session"
            f" {given if isinstance(given, str) else given.name!r}. Leave session= out."
        )
        raise UserError(msg)
