"""Settings that are given with the state of a run: which of them are new, and how it gets them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from typing import Any, cast, get_args

from holdfast.agents.run_config import RunConfig
from holdfast.agents.runs.state import RunState
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.client.runner.run_call import RunCall
from holdfast.errors import (
    CommandRefusedError,
    InvalidArgumentError,
    TaskClosedError,
    TaskNotFoundError,
    UserError,
)
from holdfast.reading.runs.recorded import Recorded
from holdfast.task.data.head import RunChange, RunSetting
from holdfast.values.code.code_refs import forget, hold, take_back
from holdfast.values.runs.status import CLOSED

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

    The code of the others is released: the task keeps that which it has.

    Raises:
        UserError: A filter of handoffs is given to a run whose conversation the provider keeps.
    """
    is_over = before.task.status in CLOSED
    names = () if is_over else call.settings
    change = RunChange.between(before.head, call.head, names)
    kept = before.head.run.kept
    if kept is not None and change.run.handoff_filter:
        msg = (
            f"Task {before.task.task_id!r} has its conversation kept by the provider, which has in"
            " it already what handoff_input_filter would take out. Leave it out."
        )
        raise UserError(msg)
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

    A nested run that the state decides on gets them from here, too, because the decision could
    arrive before its parent has handed them on.

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
    decided = {decision.approval.rpartition(":")[0] for decision in state.decisions}
    change = change.inherited
    for task_id in sorted(decided - {state.task_id}) if change.names else ():
        with suppress(CommandRefusedError, TaskClosedError, TaskNotFoundError):
            await engine.change_run(task_id, change, by)  # one with settings of its own refuses
