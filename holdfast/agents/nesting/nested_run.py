"""The run of an agent that is called as a tool: its options, and the call outside of a task."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, TypedDict

from holdfast.agents.agent_base import users_agent
from holdfast.agents.hooks import check_run_hooks
from holdfast.agents.tools.context import ToolContext
from holdfast.errors import UserError
from holdfast.values.code.user_calls import invoke
from holdfast.values.text.logs import log
from holdfast.values.text.shown import shown


@dataclass(frozen=True)
class AgentToolInvocation:
    """The call of an agent as a tool, as the run that it makes knows it.

    Attributes:
        tool_name: Name of the tool.
        tool_call_id: The model's id of the call.
        tool_arguments: The arguments, as the model wrote them.
    """

    tool_name: str
    tool_call_id: str
    tool_arguments: str


def invocation_of(ctx: ToolContext[Any, Any]) -> AgentToolInvocation:
    """Return what a call of an agent as a tool is to the run that it makes."""
    return AgentToolInvocation(ctx.tool_name, ctx.call_id, ctx.arguments)


class AgentToolStreamEvent(TypedDict):
    """An event of the run of an agent that is called as a tool.

    Attributes:
        event: The event, as `RunResultStreaming.stream_events` yields it.
        agent: The agent that runs then.
        tool_call: The call, as an item of the Responses API.
    """

    event: Any
    agent: Any
    tool_call: Any


OnStream = Callable[[AgentToolStreamEvent], Any]
"""Called with each event of the run; sync or async."""


class RunOptions(TypedDict):
    """How an agent is run that is called as a tool; see `Agent.as_tool`."""

    on_stream: OnStream | None
    on_stream_max_pending_events: int | None
    hooks: Any
    session: Any
    previous_response_id: str | None
    conversation_id: str | None


def check_run_options(given: RunOptions) -> None:
    """Refuse options that cannot be served.

    Raises:
        UserError: One cannot.
        WrongTypeError: The hooks are not RunHooks.
    """
    check_run_hooks(given["hooks"])
    on_stream: object = given["on_stream"]
    if on_stream is not None and not callable(on_stream):
        msg = (
            "on_stream must be callable or None. The settings of the run are run_config=, also by"
            " position."
        )
        raise UserError(msg)
    most: object = given["on_stream_max_pending_events"]
    is_count = isinstance(most, int) and not isinstance(most, bool) and most > 0
    if most is not None and not is_count:
        msg = (
            "on_stream_max_pending_events must be a positive integer or None; it was"
            f" {shown(most)}."
        )
        raise UserError(msg)


async def run_apart(tool: Any, ctx: ToolContext[Any, Any], made: str | list[Any]) -> Any:
    """Run the agent of a tool that is called outside of a task, as `Runner.run` does.

    Args:
        tool: The AgentTool.
        ctx: Context of the call; the run gets its context object.
        made: Input of the run.

    Raises:
        Exception: Whatever the run raises.
    """
    runner = sys.modules["holdfast"].Runner  # of a package above this one, which loads it by name
    options: RunOptions = tool.options
    ctx = ToolContext.from_agent_context(
        ctx,
        ctx.call_id,
        ctx.tool_call,
        tool_name=ctx.tool_name,
        tool_arguments=ctx.arguments,
        tool_namespace=ctx.tool_namespace,
    )
    if tool.run_config is not None:
        ctx.run_config = tool.run_config
    arguments: dict[str, Any] = {
        "context": ctx,
        "max_turns": tool.max_turns,
        "hooks": options["hooks"],
        "run_config": ctx.run_config,
        "previous_response_id": options["previous_response_id"],
        "conversation_id": options["conversation_id"],
        "session": options["session"],
    }
    if options["on_stream"] is None:
        return await runner.run(users_agent(tool.agent), made, **arguments)
    streamed = runner.run_streamed(users_agent(tool.agent), made, **arguments)
    await tell(tool, ctx, streamed.stream_events(), streamed.current_agent)
    return streamed


async def tell(
    tool: Any, ctx: ToolContext[Any, Any], events: AsyncIterator[Any], agent: Any
) -> None:
    """Call `on_stream` with the events of a run, in their order.

    An exception that it raises is logged: the run goes on.
    """
    on_stream: OnStream = tool.options["on_stream"]
    async for event in events:
        agent = getattr(event, "new_agent", agent)
        told = AgentToolStreamEvent(event=event, agent=agent, tool_call=ctx.tool_call)
        try:
            await invoke(on_stream, told)
        except Exception:  # it watches: what it does cannot undo the event
            log.exception("The on_stream function of tool %r failed", tool.name)
