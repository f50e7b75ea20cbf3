"""Checks of an agent's fields, on construction and on assignment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from holdfast.agents.guardrails import InputGuardrail, OutputGuardrail, check_guardrails
from holdfast.agents.hooks import check_agent_hooks
from holdfast.agents.hosted.prompt import check_prompt
from holdfast.agents.hosted.tools import HostedTool
from holdfast.agents.tools.decorator import Tool, to_tool
from holdfast.agents.tools.foreign.llama_index import ForeignToolRetriever, is_foreign_retriever
from holdfast.agents.tools.foreign.servers import MCPConfig
from holdfast.errors import InvalidArgumentError, WrongTypeError, message_of, remedy_of
from holdfast.models.base import check_model
from holdfast.models.libraries.llama_index import as_model
from holdfast.models.resolve import check_prefix
from holdfast.values.checks.ids import check_name
from holdfast.values.checks.json_shapes import is_array
from holdfast.values.settings import as_model_settings
from holdfast.values.text.shown import shown
from holdfast.workers.tool_use import behavior_code


def checked(agent: str, field: str, given: Any) -> Any:
    """Return the value that a field of an agent gets.

    Args:
        agent: Name of the agent, for error messages.
        field: Name of the field.
        given: The value that was assigned.

    Raises:
        UserError: It cannot be used.
        InvalidArgumentError: One of the tools is neither a tool nor a function.
    """
    check = _CHECKS.get(field)
    return given if check is None else check(agent, field, given)


def wrong_type(field: str, wanted: str, given: object) -> WrongTypeError:
    """Make the error for a value of a wrong type."""
    return WrongTypeError(
        f"Agent {field} must be {wanted}, got {type(given).__name__}: {shown(given)}."
    )


def _name(_agent: str, field: str, given: Any) -> Any:
    if not isinstance(given, str):
        raise wrong_type(field, "a string", given)
    try:
        return check_name("The name of an agent", given)
    except InvalidArgumentError as error:
        raise WrongTypeError(message_of(error), remedy=remedy_of(error)) from None


def _text(_agent: str, field: str, given: Any) -> Any:
    if given is not None and not isinstance(given, str):
        raise wrong_type(field, "a string or None", given)
    return given


def _instructions(_agent: str, field: str, given: Any) -> Any:
    if given is not None and not isinstance(given, str) and not callable(given):
        raise wrong_type(field, "a string, callable, or None", given)
    return given


def _prompt(agent: str, _field: str, given: Any) -> Any:
    check_prompt(agent, given)
    return given


def _bool(_agent: str, field: str, given: Any) -> Any:
    if not isinstance(given, bool):
        raise wrong_type(field, "True or False", given)
    return given


def _model(_agent: str, _field: str, given: Any) -> Any:
    made = as_model(given)
    check_model(made)
    check_prefix(made)
    return made


def _settings(_agent: str, _field: str, given: Any) -> Any:
    return as_model_settings(given, "Agent model_settings")


def _tools(_agent: str, field: str, given: Any) -> Any:
    """Return a list of tools itself, and a new list of anything else that can be made into one."""
    _check_list(field, given, "tools or functions")
    if is_array(given) and all(isinstance(each, Tool | HostedTool) for each in given):
        return given
    return [each if isinstance(each, HostedTool) else to_tool(each) for each in given]


def _handoffs(_agent: str, field: str, given: Any) -> Any:
    _check_list(field, given, "agents or handoffs")
    return given if is_array(given) else list(given)


def _check_list(name: str, given: Any, of: str) -> None:
    if not isinstance(given, Iterable) or isinstance(
        given, Tool | HostedTool | str | bytes | Mapping
    ):
        wanted = f"a list of {of}, also for a single one: {name}=[...]"
        raise wrong_type(name, wanted, given)  # pyright: ignore[reportUnknownArgumentType]  anything is shown


def _retriever(_agent: str, _field: str, given: Any) -> Any:
    if given is None:
        return None
    retriever = ForeignToolRetriever(given) if is_foreign_retriever(given) else given
    can = callable(getattr(retriever, "retrieve", None)) and hasattr(retriever, "tools")
    if isinstance(retriever, type) or not can:
        msg = (
            f"tool_retriever={shown(retriever)} ({type(retriever).__name__}) cannot choose tools."
            " Pass an object with `tools` and `retrieve(query)`, as KeywordToolRetriever([...])."
        )
        raise WrongTypeError(msg)
    return retriever


def _servers(_agent: str, field: str, given: Any) -> Any:
    _check_list(field, given, "MCP servers")
    servers = given if is_array(given) else list(given)
    wrong = [each for each in servers if not callable(getattr(each, "offered", None))]
    if wrong:
        msg = (
            f"{shown(wrong[0])} ({type(wrong[0]).__name__}) in mcp_servers is not an MCP server of"
            " Holdfast's. Pass servers of holdfast.mcp, such as MCPServerStdio."
        )
        raise WrongTypeError(msg)
    return servers


def _server_settings(_agent: str, field: str, given: Any) -> Any:
    if not isinstance(given, dict):
        raise wrong_type(field, "a dict", given)
    config = cast("dict[str, Any]", given)
    unknown = sorted(str(name) for name in config if name not in MCPConfig.__annotations__)
    if unknown:
        known = ", ".join(MCPConfig.__annotations__)
        msg = f"Agent mcp_config has no {', '.join(unknown)}. It may hold: {known}."
        raise WrongTypeError(msg)
    return config


def _guardrails(kind: type[Any]) -> Callable[[str, str, Any], Any]:
    def check(agent: str, field: str, given: Any) -> Any:
        check_guardrails(f"agent {agent!r}", field, given, kind)
        return given if is_array(given) else list(given)

    return check


def _hooks(agent: str, _field: str, given: Any) -> Any:
    check_agent_hooks(agent, given)
    return given


def _behavior(_agent: str, _field: str, given: Any) -> Any:
    behavior_code(given)
    return given


_CHECKS: dict[str, Callable[[str, str, Any], Any]] = {
    "name": _name,
    "handoff_description": _text,
    "instructions": _instructions,
    "prompt": _prompt,
    "model": _model,
    "model_settings": _settings,
    "tools": _tools,
    "tool_retriever": _retriever,
    "mcp_servers": _servers,
    "mcp_config": _server_settings,
    "handoffs": _handoffs,
    "input_guardrails": _guardrails(InputGuardrail),
    "output_guardrails": _guardrails(OutputGuardrail),
    "hooks": _hooks,
    "tool_use_behavior": _behavior,
    "reset_tool_choice": _bool,
}
