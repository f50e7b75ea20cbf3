"""Tool search of the provider: the tool that searches, and the namespaces that it searches."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from holdfast.agents.hosted.tools import HostedTool, check_fields, given_members
from holdfast.agents.tools.tool import Tool
from holdfast.errors import UserError, WrongTypeError
from holdfast.values.base import Json
from holdfast.values.text.shown import shown


@dataclass
class ToolSearchTool(HostedTool):
    """Lets the model search the agent's deferred tools, and load the ones it needs.

    Deferred are functions with `defer_loading=True`, alone or in a namespace, and a HostedMCPTool
    with `"defer_loading": True`. Tools of a namespace that are not deferred can be called at once.

    Attributes:
        description: What the search is for, for the model.
        execution: Who searches: the provider ("server"), also when it is None. With "client" the
            API leaves it to its caller, and a model that searches ends the run.
        parameters: JSON Schema of the search's arguments, for "client".

    Raises:
        UserError: A field is not data of the API.
    """

    description: str | None = None
    execution: Literal["server", "client"] | None = None
    parameters: object | None = None

    def __post_init__(self) -> None:
        """Check the fields."""
        told = cast("object", self.description)
        if told is not None and not isinstance(told, str):
            msg = f"ToolSearchTool(description=...) is a text or None; it was {shown(told)}."
            raise WrongTypeError(msg)
        if self.execution not in (None, "server", "client"):
            msg = (
                "ToolSearchTool(execution=...) is 'server', 'client' or None; it was"
                f" {shown(self.execution)}."
            )
            raise UserError(msg)
        check_fields(self)

    @property
    def name(self) -> str:
        """Type of the tool."""
        return "tool_search"

    @property
    def definition(self) -> dict[str, Json]:
        """The tool as the Responses API has it."""
        return given_members(
            type=self.name,
            description=self.description,
            execution=self.execution,
            parameters=self.parameters,
        )


def tool_namespace(
    *, name: str, description: str | None, tools: Sequence[Tool[..., Any]]
) -> list[Tool[..., Any]]:
    """Return copies of function tools that form a namespace, which the model knows by its name.

    A task knows them by name and namespace, "crm.lookup" for tool lookup in namespace crm: two
    namespaces may have tools of one name.

    Args:
        name: Name of the namespace.
        description: What its tools are for, for the model.
        tools: The tools. They stay as they are.

    Raises:
        UserError: The name or description says nothing, a tool is not a function tool, or has the
            name of the namespace.
        WrongTypeError: `tools` is not a list.
    """
    for what, given in (("namespace name", name), ("description", description)):
        said: object = given
        if not isinstance(said, str) or not said.strip():
            msg = f"tool_namespace() requires a non-empty {what}; it was {shown(said)}."
            raise UserError(msg)
    listed: object = tools
    if not isinstance(listed, list | tuple):
        msg = f"tool_namespace(tools=...) is a list of function tools; it was {shown(listed)}."
        raise WrongTypeError(msg)
    return [_inside(tool, name.strip(), (description or "").strip()) for tool in tools]


def _inside(tool: Tool[..., Any], namespace: str, description: str) -> Tool[..., Any]:
    given = cast("object", tool)
    if not isinstance(given, Tool) or given.policy().call_kind:
        msg = f"tool_namespace() only supports FunctionTool instances; it was given {shown(given)}."  # pyright: ignore[reportUnknownArgumentType]  anything is shown
        raise UserError(msg, remedy="Make a tool of a function with @tool or function_tool().")
    made = copy.copy(tool)
    made.namespace = namespace
    made.namespace_description = description
    return made


def is_searched(tool: object) -> bool:
    """Whether a tool is a function that only the Responses API can offer."""
    return isinstance(tool, Tool) and bool(tool.namespace or tool.defer_loading)


def check_names_apart(agent: str, tools: Iterable[object]) -> None:
    """Refuse tools of one name that a call could not tell apart, because of a namespace.

    Of several plain tools of one name, the last is offered.

    Args:
        agent: Name of the agent, for the error message.
        tools: Its tools.

    Raises:
        UserError: Two of a namespace have one name, or a deferred tool has that of another tool.
    """
    owners: dict[str, Tool[..., Any]] = {}
    for each in tools:
        if not isinstance(each, Tool) or each.is_enabled is False:
            continue
        tool = cast("Tool[..., Any]", each)
        other = owners.setdefault(tool.qualified_name, tool)
        if other is not tool and (is_searched(tool) or is_searched(other)):
            msg = (
                f"Ambiguous function tool configuration of agent {agent!r}: the qualified name"
                f" `{tool.qualified_name}` is used by multiple tools, and tool search could load"
                " either."
            )
            raise UserError(msg, remedy="Rename one with name=, or put it into a namespace.")
