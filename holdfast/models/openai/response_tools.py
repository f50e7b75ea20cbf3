"""Tools in the Responses API: their namespaces, the tool choice, and the names that calls mean.

The rules of tool search are those of the OpenAI Agents SDK: a request that breaks one is refused
before it is sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import ModelRequestError, UserError
from holdfast.models.base import HOSTED_CHOICES, ModelAnswer, ModelRequest, ToolSpec
from holdfast.models.openai.local_items import SPEC_KINDS
from holdfast.values.base import Json
from holdfast.values.messages import ToolCall
from holdfast.values.settings import MCPToolChoice

SEARCH = "tool_search"
"""Type and name of the tool by which the provider searches for others."""

Item = dict[str, Json]


def offered_tools(request: ModelRequest) -> list[Json]:
    """Write the tools of a request; those of a namespace are one entry.

    Raises:
        UserError: They break a rule of tool search, or tools of a namespace describe it
            differently.
    """
    _check_search(request)
    written: list[Json] = []
    groups: dict[str, Item] = {}
    for tool in request.tools:
        if not tool.namespace:
            written.append(_function(tool) if tool.hosted is None else tool.hosted)
            continue
        if tool.namespace not in groups:
            groups[tool.namespace] = {
                "type": "namespace",
                "name": tool.namespace,
                "description": tool.namespace_description,
                "tools": list[Json](),
            }
            written.append(groups[tool.namespace])
        group = groups[tool.namespace]
        if group["description"] != tool.namespace_description:
            msg = (
                f"All tools in namespace {tool.namespace!r} must share the same description; that"
                f" of {tool.name!r} is {tool.namespace_description!r}, an earlier one is"
                f" {group['description']!r}."
            )
            raise UserError(msg, remedy="Make them with one call of tool_namespace().")
        group["tools"].append(_function(tool))
    return written


def _function(tool: ToolSpec) -> Item:
    written: Item = {
        "type": "function",
        "name": tool.bare_name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": tool.strict,
    }
    return {**written, "defer_loading": True} if tool.deferred else written


def _check_search(request: ModelRequest) -> None:
    """Refuse deferred tools that no search finds, and a search that has nothing to find."""
    searches = sum((tool.hosted or {}).get("type") == SEARCH for tool in request.tools)
    deferred = [tool for tool in request.tools if _is_deferred(tool)]
    if searches > 1:
        msg = f"Only one ToolSearchTool() is allowed; the model was to be offered {searches}."
        raise UserError(msg, remedy="Leave one ToolSearchTool() among the tools of the agent.")
    if deferred and not searches:
        names = ", ".join(_shown_name(tool) for tool in deferred)
        msg = (
            f"Deferred-loading tools require ToolSearchTool(): without it the model never sees"
            f" {names}."
        )
        raise UserError(msg, remedy="Add ToolSearchTool() to the agent's tools.")
    has_surface = deferred or any(tool.namespace for tool in request.tools)
    if searches and not has_surface and request.prompt is None:
        msg = "ToolSearchTool() has nothing to search: no tool on offer is deferred or namespaced."
        remedy = (
            "Give the agent tools of tool_namespace(...), a function_tool(..., defer_loading=True)"
            " or HostedMCPTool(tool_config={..., 'defer_loading': True}), or take ToolSearchTool()"
            " out."
        )
        raise UserError(msg, remedy=remedy)


def _is_deferred(tool: ToolSpec) -> bool:
    return tool.deferred or bool((tool.hosted or {}).get("defer_loading"))


def _shown_name(tool: ToolSpec) -> str:
    label = (tool.hosted or {}).get("server_label")
    return f"MCP server {label!r}" if label else repr(tool.name)


def tool_choice(request: ModelRequest) -> Json:
    """Write the tool choice; one that names a tool needs tools of the agent's own.

    Raises:
        ModelRequestError: It names a tool that the API cannot be told to use.
        UserError: It names a namespace, a tool that has to be searched for, or the search itself.
    """
    choice = request.tool_choice
    if choice in ("none", "required"):
        return choice
    if choice == "auto" or not request.tools:
        return None
    server = MCPToolChoice.of(choice)
    if server is not None:
        named: Item = {"type": "mcp", "server_label": server.server_label}
        return {**named, "name": server.name} if server.name else named
    is_function = any(tool.name == choice for tool in request.functions)
    is_hosted = any(tool.name == choice and tool.hosted is not None for tool in request.tools)
    own = (tool.hosted for tool in request.tools if tool.hosted and tool.name == choice)
    of_type = (
        tool.hosted
        for tool in request.tools
        if choice in SPEC_KINDS and not is_function and (tool.hosted or {}).get("type") == choice
    )
    kind = (next(own, None) or next(of_type, None) or {}).get("type")
    if kind == "local_shell":
        msg = f"Model {request.model!r} cannot be told to use local_shell: the API has no such"
        remedy = 'Use tool_choice "required" or "auto", or ShellTool in place of LocalShellTool.'
        raise ModelRequestError(f"{msg} tool_choice.", remedy=remedy)
    if kind == "custom":
        return {"type": "custom", "name": choice}
    if kind in SPEC_KINDS:
        return {"type": kind}
    if choice in HOSTED_CHOICES and (is_hosted or not is_function):
        return {"type": choice}
    _check_named(choice, request.functions)
    return {"type": "function", "name": choice}


def _check_named(choice: str, functions: tuple[ToolSpec, ...]) -> None:
    """Refuse a choice of what the API cannot be told to call."""
    direct = {tool.name for tool in functions if not (tool.namespace or tool.deferred)}
    if choice in direct:
        return
    inside = {tool.namespace for tool in functions} | {
        tool.bare_name for tool in functions if tool.namespace
    }
    deferred = {tool.name for tool in functions if tool.deferred and not tool.namespace}
    why = ""
    if choice in inside - {""}:
        why = "is a namespace, or the name of a tool without its namespace"
    elif choice in deferred:
        why = "is a deferred-loading tool, which the model must search for first"
    elif choice == SEARCH:
        why = "is not a function: the model alone decides when it searches"
    if why:
        msg = f"tool_choice={choice!r} must target a callable tool, but it {why}."
        raise UserError(
            msg, remedy='Use "auto", "required", "none" or the name of a tool on offer.'
        )


def named(answer: ModelAnswer, tools: Sequence[ToolSpec]) -> ModelAnswer:
    """Give calls the names that the agent's tools have.

    A shell or patch tool is called without one. Some models write `functions.pay` for `pay`.
    """
    known = {tool.name for tool in tools}
    if all(not call.kind and call.name in known for call in answer.message.calls):
        return answer
    names = {SPEC_KINDS.get(str((tool.hosted or {}).get("type")), ""): tool.name for tool in tools}
    calls = tuple(_named(call, names, known) for call in answer.message.calls)
    message = answer.message.model_copy(update={"calls": calls})
    return answer.model_copy(update={"message": message})


def _named(call: ToolCall, names: dict[str, str], known: set[str]) -> ToolCall:
    if call.kind:
        name = names.get(call.kind, "")
    else:
        meant = call.name.strip().removeprefix("functions.")
        name = "" if call.namespace or call.name in known or meant not in known else meant
    return call.model_copy(update={"name": name}) if name else call
