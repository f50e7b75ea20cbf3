"""One call of `Runner.run`, as its arguments were checked."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from holdfast.agents.agent import Agent
from holdfast.agents.hooks import RunHooksBase
from holdfast.agents.run_config import RunConfig
from holdfast.agents.runs.item_helpers import RunInput
from holdfast.agents.runs.results import RunData
from holdfast.agents.runs.state import RunState
from holdfast.agents.runs.state_context import Deserializer
from holdfast.agents.tools.context import ToolContext
from holdfast.client.agent_runner.sessions import Session
from holdfast.client.caller_sessions.store import CallerStore
from holdfast.client.runner.input import Call
from holdfast.task.data.head import RunChange, RunSetting, TaskHead
from holdfast.values.base import Json
from holdfast.values.code.context_data import CallersContext
from holdfast.values.runs.run_context import Origin
from holdfast.values.settings import Budget
from holdfast.values.text.logs import log

RUNNER = "Runner"
"""Recorded as who acts when `by` is not given."""


class Reviver:
    """Makes the context object of a resumed run of the recorded data, as its state was told to.

    The data are what the run has made of its context by then, so the object is made again when they
    have changed: only the deserializer knows how an object of its own is brought up to date.
    """

    def __init__(self, deserializer: Deserializer, invoke: Call) -> None:
        """Use a deserializer.

        Args:
            deserializer: Makes the object of its data.
            invoke: Calls the caller's functions.
        """
        self._deserializer = deserializer
        self._invoke = invoke
        self._of: Json = None
        self._made: Any = None

    async def of(self, data: Json) -> Any:
        """Return the context object of these data; None without any."""
        if data is None:
            return None
        if data != self._of:
            given = copy.deepcopy(data)  # the deserializer may change what it gets, or keep it
            self._made = await self._invoke(self._deserializer, given)
            self._of = data
        return self._made

    async def complete(self, data: RunData) -> None:
        """Put the context object into what was read of a run, instead of its data.

        The data stay if the deserializer fails: what the run has come to must not be lost with it.
        """
        wrapper = data.context_wrapper
        recorded = wrapper.context
        try:
            wrapper.context = await self.of(recorded)
        except Exception:
            log.exception("The context_deserializer of run %s failed", data.task_id)
        wrapper.origin = Origin(recorded, self._deserializer)


def reviver_of(given: RunInput | RunState, context: Any, invoke: Call) -> Reviver | None:
    """Return what makes the context object of a resumed run.

    Args:
        given: The input, or the state of the run.
        context: The caller's context object: nothing need be made where there is one.
        invoke: Calls the caller's functions.
    """
    if context is not None or not isinstance(given, RunState) or given.deserializer is None:
        return None
    return Reviver(given.deserializer, invoke)


@dataclass(frozen=True, kw_only=True)
class RunCall:
    """One call of `Runner.run`, checked: what its task begins with, and what stays in this process.

    Attributes:
        agent: The agent that it begins with, or that was given with the state of a run.
        known_by: The agent that was given. A run that goes on from one with its answer begins with
            the agent that has answered, which need not know those before it.
        given: The input, or the state of a run to resume.
        task_id: Id of the task.
        exist_ok: Whether the same task may exist already.
        head: Its head; without the input and what the engine adds to it until the task begins.
        budget: Its limits.
        config: The run's settings, for what this process does with them.
        settings: Which of them a state is given with: its run gets these.
        change: Those of them that its task did not have.
        context: The caller's context.
        session: Session.
        hooks: Called with what the run does.
        by: Name recorded with the decisions of a state.
        invoke: Calls the caller's functions.
        tool_call: The call of an agent as a tool that makes the run, outside of a task.
        reviver: Makes the context object of a resumed run, where none was given.
    """

    agent: Agent
    known_by: Agent
    given: RunInput | RunState
    task_id: str
    exist_ok: bool
    head: TaskHead
    budget: Budget | None
    config: RunConfig
    context: CallersContext
    session: str | Session | CallerStore | None
    hooks: RunHooksBase[Any, Any] | None
    by: str
    invoke: Call
    tool_call: ToolContext[Any, Any] | None = None
    reviver: Reviver | None = None
    settings: tuple[RunSetting, ...] = ()
    change: RunChange | None = None

    @property
    def input(self) -> RunInput | None:
        """The input; None for a resumed run, whose task has it."""
        return None if isinstance(self.given, RunState) else self.given
