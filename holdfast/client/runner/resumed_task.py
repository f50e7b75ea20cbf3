"""A run that goes on with a task: its checks, the settings that are new, the state's decisions.

Decisions on one call are sent before standing ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any, cast, get_args

from holdfast.agents.agent import Agent
from holdfast.agents.run_config import RunConfig
from holdfast.agents.runs.state import RunState
from holdfast.agents.runs.state_form import Decision
from holdfast.agents.runs.teams import changed_places, is_apart
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.client.caller_sessions.store import CallerStore
from holdfast.client.runner.input import RunCall
from holdfast.errors import (
    CommandRefusedError,
    InvalidArgumentError,
    TaskClosedError,
    TaskNotFoundError,
    UserError,
)
from holdfast.reading.runs.recorded import Recorded, read_snapshot
from holdfast.task.data.calls import Approval
from holdfast.task.data.head import AgentSnapshot, RunChange, RunSetting
from holdfast.task.data.records import Entry, EventRecord
from holdfast.values.checks.gate import is_object
from holdfast.values.checks.ids import task_of
from holdfast.values.code.code_refs import forget, hold, take_back
from holdfast.values.runs.status import CLOSED
from holdfast.values.text.logs import log
from holdfast.values.text.shown import time_shown


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
        raise UserError(
            f"Task {task.task_id!r} began with agent {task.agent!r}; {agent.name!r} knows"
            f" {', '.join(map(repr, names))} only. Run the state with the agent it began with."
        )
    await _check_roles(engine, call, before)


async def _check_roles(engine: AgentRunner, call: RunCall, before: Recorded) -> None:
    """Refuse to go on with agents that share a name, if they may have changed places.

    Raises:
        UserError: One may differ from the agent that the task began with under its name.
    """
    if not is_apart(call.agent) or before.task.status in CLOSED:
        return
    began = await read_snapshot(engine.reader, before.head)
    known = {} if began is None else {each.name: each for each in (began, *began.team)}
    agents = (call.agent, *call.agent.team()) if known else ()
    shared = {each.name for each in agents if each.shared_name}
    shared |= {name for name, each in known.items() if each.shared}
    for agent in agents:
        if _may_be_another(agent, known.get(agent.name), shared):
            msg, remedy = changed_places(agent.name, "Nothing was changed.")
            raise UserError(msg, remedy=remedy)


def _may_be_another(agent: Agent, began: AgentSnapshot | None, shared: AbstractSet[str]) -> bool:
    """Whether an agent may differ from the one that a task began with under its name.

    An agent with a name of its own may be edited, but must not lead to others that share a name.

    Args:
        agent: The agent.
        began: The task's first agent of this name; None if it had no such agent.
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
        raise UserError(
            f"Task {call.task_id!r} has {f'session {known}' if known else 'no session'}, and keeps"
            f" it: a state cannot be run in session"
            f" {given if isinstance(given, str) else given.name!r}. Leave session= out."
        )


SETTINGS: tuple[RunSetting, ...] = get_args(RunSetting)


def settings_given(given: Mapping[str, Any]) -> tuple[RunSetting, ...]:
    """Return which settings the arguments of a run give: the others are to stay as they are.

    Args:
        given: The arguments. A `run_config` that is a dict gives its keys, also those with a
            default value; a RunConfig gives the fields that differ from their defaults.
    """
    config: object = given.get("run_config")
    names: set[str] = set() if given.get("error_handlers") is None else {"error_handlers"}
    if isinstance(config, Mapping):
        names |= {str(name) for name in cast("Mapping[object, object]", config)}
    elif isinstance(config, RunConfig):
        usual = RunConfig()
        every = (each.name for each in fields(RunConfig))
        names |= {name for name in every if getattr(config, name) != getattr(usual, name)}
    return tuple(name for name in SETTINGS if name in names)


def change_of(call: RunCall, before: Recorded) -> RunChange | None:
    """Return the settings of a call that its task does not have yet; None if it has them all.

    The code of the others is released: the task keeps its own.

    Raises:
        UserError: A filter of handoffs is given to a run whose conversation the provider keeps.
    """
    is_over = before.task.status in CLOSED
    names = () if is_over else call.settings
    change = RunChange.between(before.head, call.head, names)
    kept = before.head.run.kept
    if kept is not None and change.run.handoff_filter:
        raise UserError(
            f"Task {before.task.task_id!r} has its conversation kept by the provider, which has in"
            " it already what handoff_input_filter would take out. Leave it out."
        )
    forget((Counter(call.head.run.code) - Counter(change.run.code)).elements())
    return change if change.names else None


def replaced_code(change: RunChange, before: Recorded, after: Recorded) -> set[str]:
    """Return the references to code in whose place the task has other code by a change."""
    return {*RunChange.of(before.head, change.names).run.code} - {*after.head.run.code}


async def give_settings(engine: AgentRunner, state: RunState, change: RunChange, by: str) -> None:
    """Send changed settings, with their code held for the task.

    That is released where the task did not take them. A call that is cut off may have given them.

    Raises:
        CommandRefusedError: The task refuses them.
    """
    hold(state.task_id, change.run.code)
    try:
        await _send(engine, state, change, by)
    except (CommandRefusedError, InvalidArgumentError):
        take_back(state.task_id, change.run.code)
        raise


async def _ends(engine: AgentRunner, task_id: str) -> bool:
    """Whether the end of a task was accepted: running it closes it, and tells of its outcome."""
    if (await engine.reader.task(task_id)).status in CLOSED:
        return True
    entries = await engine.reader.entries(task_id)
    return any(each.event is not None and each.event.kind == "closed" for each in entries)


async def _send(engine: AgentRunner, state: RunState, change: RunChange, by: str) -> None:
    """Send changed settings, before the decisions of the state: these set off what needs them.

    A nested run that the state decides on gets them directly, because the decision could arrive
    before its parent has handed them on.

    Raises:
        CommandRefusedError: The task refuses them.
    """
    try:
        await engine.change_run(state.task_id, change, by)
    except TaskClosedError:  # it has ended meanwhile: its outcome follows
        return
    except CommandRefusedError:
        if await _ends(engine, state.task_id):  # though it may not be closed yet
            return
        raise
    decided = {task_of(decision.approval) for decision in state.decisions}
    change = change.inherited
    for task_id in sorted(decided - {state.task_id}) if change.names else ():
        with suppress(CommandRefusedError, TaskClosedError, TaskNotFoundError):
            await engine.change_run(task_id, change, by)  # one with settings of its own refuses


@dataclass(frozen=True, kw_only=True)
class _Settled:
    """How an approval was settled, by the ledger of its task.

    Attributes:
        verb: "approve", "reject" or "respond"; empty when it was withdrawn.
        by: Who decided; empty when it expired.
        at: When, seconds since the epoch.
        always: Whether the decision holds for later calls of the tool as well.
        edited: Whether the arguments were edited.
    """

    verb: str
    by: str = ""
    at: float = 0.0
    always: bool = False
    edited: bool = False

    def agrees_with(self, decision: Decision) -> bool:
        """Whether a decision of a state has the same effect."""
        same = self.verb == decision.verb and not self.edited
        return same and (self.always or not decision.always)

    @property
    def in_words(self) -> str:
        """The decision, for the text of an error."""
        match self.verb:
            case "approve":
                how = "approved with other arguments" if self.edited else "approved"
                done = how if self.always else f"{how} for this one call"
            case "reject":
                done = "rejected" if self.always or self.by else "rejected, without a decision"
            case "respond":
                done = "given a result"
            case _:
                return "withdrawn: its step was undone, or its task ended"
        when = time_shown(self.at)
        return f"{done} by {self.by} at {when}" if self.by else f"{done} at {when}"


async def checked_decisions(
    engine: AgentRunner, state: RunState, by: str, *, is_over: bool
) -> list[tuple[Approval, Decision]]:
    """Return the decisions of a state that must be sent, each with what it decides.

    An equal decision that was made before, here or elsewhere, is not sent again.

    Args:
        engine: The engine.
        state: The state.
        by: Who decides.
        is_over: Whether the run's task is closed: its outcome then explains withdrawn approvals.

    Raises:
        CommandRefusedError: A call was decided otherwise before. Nothing was sent then.
    """
    decisions = _in_order(state.decisions)
    asked = await engine.pending_approvals(state.task_id) if decisions else []
    waiting = {approval.id: approval for approval in asked}
    gone = [decision for decision in decisions if decision.approval not in waiting]
    settled = await _settled(engine, gone)
    for decision in gone:
        found = settled.get(decision.approval)
        withdrawn = found is None or not found.verb
        if not (is_over and withdrawn) and not (found and found.agrees_with(decision)):
            raise await _refused(engine, decision, found, by)
    return [(waiting[each.approval], each) for each in decisions if each.approval in waiting]


def _in_order(decisions: Sequence[Decision]) -> list[Decision]:
    """Order decisions: those on one call, then for each tool the last standing one."""
    standing = {_scope(each): each for each in decisions if each.always}
    last = list(standing.values())
    exact = [each.model_copy(update={"always": False}) for each in decisions if each not in last]
    return [*exact, *last]


def _scope(decision: Decision) -> tuple[str, str]:
    """Return the calls for which a standing decision holds: (task, tool)."""
    return task_of(decision.approval), decision.tool


async def send_decision(
    engine: AgentRunner, approval: Approval, decision: Decision, by: str
) -> None:
    """Send one decision on a call that waited when the approvals were read.

    Raises:
        CommandRefusedError: It was decided otherwise, or has changed since it was shown.
    """
    try:
        await _command(engine, approval, decision, by)
    except (TaskClosedError, TaskNotFoundError):
        return  # the run's outcome says why
    except CommandRefusedError as error:
        task_id = task_of(approval.id)
        if any(each.id == approval.id for each in await engine.pending_approvals(task_id)):
            raise
        found = (await _settled(engine, [decision])).get(approval.id)
        if found is None or not found.agrees_with(decision):
            raise CommandRefusedError(_words(decision, found)) from error


async def _command(engine: AgentRunner, approval: Approval, decision: Decision, by: str) -> None:
    if decision.digest:
        approval = approval.model_copy(update={"digest": decision.digest})
    if decision.verb == "approve":
        await engine.approve(approval, by, always=decision.always)
    else:
        message, always = decision.message, decision.always
        await engine.reject(approval, by, "", message=message, always=always)


async def _refused(
    engine: AgentRunner, decision: Decision, found: _Settled | None, by: str
) -> CommandRefusedError:
    """Send a decision that the task will refuse, so that its audit has it; return the error."""
    text = f"{_words(decision, found)} Nothing that the state decides was sent."
    gone = Approval(id=decision.approval, kind="tool", n=0, i=0, branch=0, asked=0.0)
    with suppress(CommandRefusedError, TaskClosedError, TaskNotFoundError):
        await _command(engine, gone, decision, by)
    return CommandRefusedError(text)


def _words(decision: Decision, found: _Settled | None) -> str:
    wanted = f"{decision.verb} it{' and all later calls' if decision.always else ''}"
    what = f"{decision.tool} ({decision.approval!r})" if decision.tool else repr(decision.approval)
    how = found.in_words if found is not None else "never asked about"
    return (
        f"The decision on {what} was refused: it was {how}, and the state says to {wanted}. The"
        " first decision counts; RunState.of(task_id) goes on without another decision."
    )


async def _settled(engine: AgentRunner, decisions: Iterable[Decision]) -> dict[str, _Settled]:
    """Read how the approvals of decisions were settled, by id."""
    found: dict[str, _Settled] = {}
    for task_id in {task_of(decision.approval) for decision in decisions}:
        with suppress(TaskNotFoundError):
            found |= _fold(await engine.reader.entries(task_id))
    return found


def _fold(entries: Iterable[Entry]) -> dict[str, _Settled]:
    """Fold a ledger: the approvals of a task that are settled, by id."""
    # Events only: a happening that is a command has no more than the event, and steps say nothing
    # of how an approval was settled.
    found: dict[str, _Settled] = {}
    for event in (entry.event for entry in entries if entry.event is not None):
        said: object = event.body.get("arguments")
        about = str(event.body.get("id", ""))
        match event.kind:
            case "command" if is_object(said) and "approval" in said:
                found[str(said["approval"])] = _of_command(event, said)
            case "standing":
                verb = str(event.body.get("verb", ""))
                found[about] = _Settled(verb=verb, by=event.by, at=event.at, always=True)
            case "expired":
                found[about] = _Settled(verb="reject", at=event.at)
            case "withdrawn":
                found[about] = _Settled(verb="", at=event.at)
            case "vote":  # others must approve as well
                found.pop(str(said["approval"]) if is_object(said) else "", None)
            case "refused" if isinstance(said, str):  # edited arguments that did not fit
                found.pop(about, None)
            case _:
                pass
    return found


def _of_command(event: EventRecord, said: Mapping[str, object]) -> _Settled:
    return _Settled(
        verb=str(event.body.get("verb", "")),
        by=event.by,
        at=event.at,
        always=said.get("always") is True,
        edited=said.get("arguments") is not None,
    )
