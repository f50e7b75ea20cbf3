"""Hooks: being told what a run, or an agent, does."""

from __future__ import annotations

from typing import Any, Generic

from holdfast.values.run_context import AgentHookContext, ContextT, RunContextWrapper
from holdfast.values.text.shown import shown


class AgentHooks(Generic[ContextT]):
    """Told what one agent does, in the worker process that does it. Override what is of interest.

    Each method is called at least once for what it tells of: once more when a worker is lost before
    what came next was recorded. A method that raises stops the step, and the task waits; what was
    paid for or done before it is kept.
    """

    async def on_start(self, context: AgentHookContext[ContextT], agent: Any) -> None:
        """The agent takes over: the run begins with it, or was handed to it. Not told per turn."""

    async def on_end(self, context: AgentHookContext[ContextT], agent: Any, output: Any) -> None:
        """The agent has given the final output."""

    async def on_handoff(
        self, context: RunContextWrapper[ContextT], agent: Any, source: Any
    ) -> None:
        """The run is handed over: `source` has these hooks, `agent` goes on."""

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        """A tool is about to be run: approved, and let through by its guardrails.

        `context` is the tool's own ToolContext, here and in `on_tool_end`: what hooks change in it
        goes back with the tool's changes.
        """

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        """A tool was run; `result` is what it returned, or what a guardrail put in its place."""

    async def on_llm_start(
        self,
        context: RunContextWrapper[ContextT],
        agent: Any,
        system_prompt: str | None,
        input_items: list[Any],
    ) -> None:
        """The model is about to be asked."""

    async def on_llm_end(
        self, context: RunContextWrapper[ContextT], agent: Any, response: Any
    ) -> None:
        """The model has answered; `response` is a ModelAnswer."""


class RunHooks(Generic[ContextT]):
    """Told what a run does, in the process that called `Runner.run`. Override what is of interest.

    They are told from the run's record, so they hear of a run that a worker process does elsewhere.
    """

    async def on_agent_start(self, context: AgentHookContext[ContextT], agent: Any) -> None:
        """An agent takes over: the run begins with it, or was handed to it."""

    async def on_agent_end(
        self, context: AgentHookContext[ContextT], agent: Any, output: Any
    ) -> None:
        """An agent has given the final output."""

    async def on_handoff(
        self, context: RunContextWrapper[ContextT], from_agent: Any, to_agent: Any
    ) -> None:
        """The run is handed over."""

    async def on_tool_start(
        self, context: RunContextWrapper[ContextT], agent: Any, tool: Any
    ) -> None:
        """A tool is run."""

    async def on_tool_end(
        self, context: RunContextWrapper[ContextT], agent: Any, tool: Any, result: Any
    ) -> None:
        """A tool was run."""

    async def on_llm_start(
        self,
        context: RunContextWrapper[ContextT],
        agent: Any,
        system_prompt: str | None,
        input_items: list[Any],
    ) -> None:
        """The model is asked."""

    async def on_llm_end(
        self, context: RunContextWrapper[ContextT], agent: Any, response: Any
    ) -> None:
        """The model has answered."""


def check_run_hooks(hooks: Any) -> None:
    """Refuse what cannot be told of a run.

    Raises:
        TypeError: They are hooks of an agent, or none at all.
    """
    if hooks is None or isinstance(hooks, RunHooks):
        return
    given = type(hooks).__name__
    if isinstance(hooks, AgentHooks):
        msg = (
            f"{given} is an AgentHooks: give it to its agent, Agent(hooks=...); a run has RunHooks."
        )
        raise TypeError(msg)
    msg = (
        f"hooks={shown(hooks)} ({given}) is no RunHooks. Pass an object of a subclass of RunHooks."
    )
    raise TypeError(msg)


def check_agent_hooks(agent: str, hooks: Any) -> None:
    """Refuse what cannot be told of an agent.

    Raises:
        TypeError: They are hooks of a run, or none at all.
    """
    if hooks is None or isinstance(hooks, AgentHooks):
        return
    msg = f"hooks={shown(hooks)} of agent {agent!r} ({type(hooks).__name__}) is no AgentHooks." + (
        " Hooks of a run go to Runner.run(hooks=...)." if isinstance(hooks, RunHooks) else ""
    )
    raise TypeError(msg)
