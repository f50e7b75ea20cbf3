"""The final output of an agent as a value of its `output_type`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from holdfast.values import Json, canonical

if TYPE_CHECKING:
    from holdfast.agent import Agent


def typed_output(agent: Agent, output: Json) -> Any:
    """Return a recorded final output as guardrails, hooks and callers get it.

    One that is not of the agent's `output_type`, as a tool's result can be, is returned as it is.
    """
    if agent.output_type is None:
        return output
    try:
        return TypeAdapter(agent.output_type).validate_json(canonical(output))
    except (ValidationError, PydanticUserError):
        return output
