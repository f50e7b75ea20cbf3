"""Hooks: methods of the user's that are called at events of an agent, or of a run."""

from __future__ import annotations

from typing import Any, Generic

from typing_extensions import TypeVar

from holdfast.errors import WrongTypeError
from holdfast.values.runs.run_context import AgentHookContext, ContextT, RunContextWrapper
from holdfast.values.text.shown import shown

AgentT = TypeVar("AgentT", default=Any)


class _ModelHooks(Generic[ContextT, AgentT]):
    async def on_llm_start(
        self,
        context: RunContextWrapper[ContextT],
        agent: AgentT,
        system_prompt: str | None,
        input_items: list[Any],
    ) -> None:
        """The model is about to be called."""

    async def on_llm_end(
        self, context: RunContextWrapper[ContextT], agent: AgentT, response: Any
    ) -> None:
        """The model has answered; `response` is a ModelResponse."""


class AgentHooksBase(_ModelHooks[ContextT, AgentT]):
    """Hooks of one agent, called in the worker process that runs it. Override any of them.

    Each method is called at least once per event, and again when a worker process is lost before
    the activity's result was recorded. A method that raises stops the step, and the task waits;
    answers and effects before it are kept.
    """

    async def on_start(self, context: AgentHookContext[ContextT], agent: AgentT) -> None:
        """The agent takes over: the run begins with it, or was handed to it. Not once per turn."""

    async def on_end(self, context: AgentHookContext[ContextT], agent: AgentT, output: Any) -> None:
        """The agent has made the final output."""

    async def on_handoff(
        self, context: RunContextWrapper[ContextT], agent: AgentT, source: Any
    ) -> None:
        """The run is handed over from `source`, which has these hooks, to `agent`."""

    async def on_tool_start(self, context: Any, agent: AgentT, tool: Any) -> None:
        """A tool is about to be run: approved, and let through by its guardrails.

        `context` is the tool's own ToolContext, here and in `on_tool_end`: changes that hooks make
        in it are recorded with the tool's changes.
        """

    async def on_tool_end(self, context: Any, agent: AgentT, tool: Any, result: Any) -> None:
        """A tool was run; `result` is its return value, or a guardrail's message in its place."""


class AgentHooks(AgentHooksBase[ContextT, Any]):
    """Hooks of one agent: an AgentHooksBase."""


class RunHooksBase(_ModelHooks[ContextT, AgentT]):
    """Hooks of a run, called in the process that called `Runner.run`. Override any of them.

    The events are read from the run's record, so they include steps that run in other processes.
    """

    async def on_agent_start(self, context: AgentHookContext[ContextT], agent: AgentT) -> None:
        """An agent takes over: the run begins with it, or was handed to it."""

    async def on_agent_end(
        self, context: AgentHookContext[ContextT], agent: AgentT, output: Any
    ) -> None:
        """An agent has made the final output."""

    async def on_handoff(
        self, context: RunContextWrapper[ContextT], from_agent: AgentT, to_agent: AgentT
    ) -> None:
        """The run is handed over."""

    async def on_tool_start(
        self, context: RunContextWrapper[ContextT], agent: AgentT, tool: Any
    ) -> None:
        """A tool is run."""

    async def on_tool_end(
        self, context: RunContextWrapper[ContextT], agent: AgentT, tool: Any, result: Any
    ) -> None:
        """A tool was run."""


class RunHooks(RunHooksBase[ContextT, Any]):
    """Hooks of a run: a RunHooksBase."""


def check_run_hooks(hooks: Any) -> None:
    """Refuse anything but RunHooks or None.

    Raises:
        WrongTypeError: They are AgentHooks, or another object.
    """
    if hooks is None or isinstance(hooks, RunHooksBase):
        return
    given = type(hooks).__name__
    if isinstance(hooks, AgentHooksBase):
        raise WrongTypeError(
            f"Run hooks must be instances of RunHooks: {given} is an AgentHooks. Give it to its"
            " agent, Agent(hooks=...)."
        )
    msg = f"hooks={shown(hooks)} ({given}) is not a RunHooks. Pass an object of a subclass of it."
    raise WrongTypeError(msg)


def check_agent_hooks(agent: str, hooks: Any) -> None:
    """Refuse anything but AgentHooks or None.

    Raises:
        WrongTypeError: They are RunHooks, or another object.
    """
    if hooks is None or isinstance(hooks, AgentHooksBase):
        return
    msg = (
        f"hooks={shown(hooks)} of agent {agent!r} ({type(hooks).__name__}) is not an AgentHooks."
        + (
            " Hooks of a run go to Runner.run(hooks=...)."
            if isinstance(hooks, RunHooksBase)
            else ""
        )
    )
    raise WrongTypeError(msg)
