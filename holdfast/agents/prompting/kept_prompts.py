"""Prompts that are kept at the provider: `Agent(prompt=...)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NotRequired, cast

from typing_extensions import TypedDict

from holdfast.errors import UserError
from holdfast.values.base import Json
from holdfast.values.checks.arguments import check_data
from holdfast.values.code.user_calls import invoke
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.values.text.shown import shown

if TYPE_CHECKING:
    from holdfast.agents.agent_base import AgentBase


class Prompt(TypedDict):
    """A prompt that is kept at the provider of the Responses API.

    Attributes:
        id: Its id.
        version: Its version; the newest by default.
        variables: What is put into it.
    """

    id: str
    version: NotRequired[str]
    variables: NotRequired[dict[str, Any]]


@dataclass
class GenerateDynamicPromptData:
    """Argument of a function that chooses a prompt.

    Attributes:
        context: The run's context.
        agent: The agent.
    """

    context: RunContextWrapper[Any]
    agent: AgentBase


DynamicPromptFunction = Callable[[GenerateDynamicPromptData], Any]
"""Returns the Prompt of a model call; sync or async."""


async def prompt_of(
    agent: AgentBase, given: Any, context: RunContextWrapper[Any]
) -> dict[str, Json] | None:
    """Return an agent's prompt for a model call, as the Responses API takes it.

    Args:
        agent: The agent.
        given: Its prompt: a Prompt, a function that chooses one, or None.
        context: The run's context.

    Raises:
        UserError: The function has not returned a Prompt.
        Exception: Whatever it raised.
    """
    if given is None:
        return None
    made = given
    if callable(given):
        made = await invoke(given, GenerateDynamicPromptData(context, agent))
    if not isinstance(made, Mapping) or "id" not in made:
        got = shown(cast("object", made))
        msg = f"The dynamic prompt function must return a Prompt, a dict with id; got {got}."
        raise UserError(msg)
    known = cast("Mapping[str, Any]", made)
    prompt = {name: known.get(name) for name in ("id", "version", "variables")}
    variables = prompt["variables"]
    if isinstance(variables, Mapping):
        prompt["variables"] = {
            key: value.model_dump(exclude_unset=True) if hasattr(value, "model_dump") else value
            for key, value in cast("Mapping[str, Any]", variables).items()
        }
    check_data("A prompt", "variables", prompt["variables"])
    return prompt
