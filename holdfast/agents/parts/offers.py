"""What an agent offers its model: its tools and handoffs, and what follows when names clash."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from holdfast.agents.handoffs.handoff import Handoff
from holdfast.agents.hosted.mcp import servers_of
from holdfast.agents.hosted.tools import HostedTool
from holdfast.agents.tools.decorator import Tool, to_tool
from holdfast.agents.tools.retriever import ToolRetriever
from holdfast.errors import UserError

Offered = TypeVar("Offered", bound=Tool[..., Any] | HostedTool | Handoff[Any, Any])
HandoffT = TypeVar("HandoffT", bound=Handoff[Any, Any])


def made_tools(
    agent: str, given: list[Any], retriever: ToolRetriever | None
) -> list[Tool | HostedTool]:
    """Make tools of what an agent was given as such, or of its retriever's catalogue.

    Args:
        agent: Name of the agent, for error messages.
        given: Its list of tools, in which functions are replaced by the tools made of them.
        retriever: What chooses its tools, or None.

    Raises:
        UserError: There are both, an object cannot be made into a tool, or a catalogue has a name
            twice.
    """
    if given and retriever is not None:
        msg = (
            f"Cannot specify both `tools` and `tool_retriever`: agent {agent!r} has both."
            " Put the tools into the retriever's catalogue."
        )
        raise UserError(msg)
    found = given if retriever is None else retriever.tools
    made = [tool if isinstance(tool, HostedTool) else to_tool(tool) for tool in found]
    if retriever is not None:
        _check_catalogue(agent, [tool.qualified_name for tool in made if isinstance(tool, Tool)])
    elif made != given:
        given[:] = made  # a function is made into a tool once
    servers_of(made)
    return made


def offered_tools(
    tools: Iterable[Tool | HostedTool], handoffs: Iterable[Handoff[Any, Any]]
) -> tuple[Tool | HostedTool, ...]:
    """Leave out tools whose name a later tool or a handoff has."""
    handed = {each.tool_name for each in handoffs if each.is_enabled is not False}
    return tuple(
        each
        for each in _last_of_name(tools, _tool_key)
        if isinstance(each, HostedTool) or each.qualified_name not in handed
    )


def offered_handoffs(handoffs: Iterable[HandoffT]) -> tuple[HandoffT, ...]:
    """Leave out handoffs whose name a later one has."""
    return tuple(_last_of_name(handoffs, _handoff_name))


def clashing_names(tools: Iterable[Any], handoffs: Iterable[Handoff[Any, Any]]) -> list[str]:
    """List the names that several tools or handoffs have."""
    made = [to_tool(each) for each in tools if not isinstance(each, HostedTool)]
    names = [tool.qualified_name for tool in made if tool.is_enabled is not False]
    names += [each.tool_name for each in handoffs if each.is_enabled is not False]
    return sorted({name for name in names if names.count(name) > 1})


def _tool_key(tool: Tool | HostedTool) -> str | int:
    """Return the name of a function; tools that the provider runs share names."""
    return tool.qualified_name if isinstance(tool, Tool) else id(tool)


def _handoff_name(handoff: Handoff[Any, Any]) -> str:
    return handoff.tool_name


def _last_of_name(
    given: Iterable[Offered], name_of: Callable[[Offered], str | int]
) -> list[Offered]:
    """Leave out what has the name of something later, unless that is never offered."""
    kept: dict[str | int, Offered] = {}
    for each in given:
        name = name_of(each)
        is_on = isinstance(each, HostedTool) or each.is_enabled is not False
        if name not in kept or is_on:
            kept.pop(name, None)
            kept[name] = each
    return list(kept.values())


def _check_catalogue(agent: str, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        msg = (
            f"The tool_retriever of agent {agent!r} has more than one tool named"
            f" {', '.join(map(repr, twice))} in its catalogue. Rename one with @tool(name=...)."
        )
        raise UserError(msg)
