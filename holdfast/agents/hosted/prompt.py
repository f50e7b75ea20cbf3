"""Prompts that the provider of the Responses API keeps, and functions that choose one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NotRequired, cast

from typing_extensions import TypedDict

from holdfast.agents.agent_base import AgentBase
from holdfast.errors import UserError, WrongTypeError
from holdfast.values.base import Json
from holdfast.values.checks.gate import check_data
from holdfast.values.code.user_calls import invoke
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.values.text.shown import shown


class Prompt(TypedDict):
    """A prompt that the provider keeps.

    Attributes:
        id: The provider's id of it.
        version: Its version; the newest without one.
        variables: What is put in for its variables: texts, or parts of the Responses API.
    """

    id: str
    version: NotRequired[str]
    variables: NotRequired[dict[str, Any]]


@dataclass
class GenerateDynamicPromptData:
    """What a function that chooses a prompt gets.

    Attributes:
        context: The run's context.
        agent: The agent.
    """

    context: RunContextWrapper[Any]
    agent: AgentBase[Any]


DynamicPromptFunction = Callable[[GenerateDynamicPromptData], Prompt | Awaitable[Prompt]]
"""Chooses the prompt of each turn; its choice is recorded."""

_MEMBERS = ("id", "version", "variables")


def check_prompt(agent: str, given: object) -> None:
    """Refuse what is neither a prompt, nor a function, nor None.

    Raises:
        UserError: It is something else.
    """
    if given is None or (callable(given) and not isinstance(given, type)):
        return
    if not isinstance(given, Mapping):
        raise WrongTypeError(
            f"Agent prompt must be a Prompt, a function, or None, got {type(given).__name__}:"
            f" {shown(given)}."
        )
    prompt_data(f"prompt of agent {agent!r}", cast("Mapping[str, Any]", given))


def prompt_data(what: str, given: Mapping[str, Any]) -> dict[str, Json]:
    """Return a prompt as the Responses API has it.

    Args:
        what: What it is, for the error.
        given: The prompt.

    Raises:
        UserError: It has no id, or holds something other than data.
    """
    if not isinstance(given.get("id"), str) or not given["id"]:
        msg = f"The {what} is a dict with the prompt's 'id', a text; it was {shown(given)}."
        raise UserError(msg)
    data = {name: given[name] for name in _MEMBERS if given.get(name) is not None}
    check_data("Prompt", "variables", data.get("variables"))
    return data


def fixed_prompt(
    agent: AgentBase[Any], given: Prompt | DynamicPromptFunction
) -> dict[str, Json] | None:
    """Return an agent's prompt as the Responses API has it; None for a function."""
    if callable(given):
        return None
    return prompt_data(f"prompt of agent {agent.name!r}", given)


async def chosen_prompt(
    agent: AgentBase[Any],
    given: Prompt | DynamicPromptFunction | None,
    context: RunContextWrapper[Any],
) -> dict[str, Json] | None:
    """Return an agent's prompt as the Responses API has it, made for a context; None for none.

    Args:
        agent: The agent.
        given: Its prompt, or the function that chooses it.
        context: The run's context.

    Raises:
        UserError: Its function returned something else than a prompt.
        Exception: Whatever the function raised.
    """
    made: Any = given
    if callable(given):
        made = await invoke(given, GenerateDynamicPromptData(context, agent))
        if not isinstance(made, Mapping):
            raise UserError(
                f"Dynamic prompt function must return a Prompt; that of agent {agent.name!r}"
                f" returned {shown(made)}."
            )
    if made is None:
        return None
    return prompt_data(f"prompt of agent {agent.name!r}", cast("Mapping[str, Any]", made))
