"""The instructions of an agent, as text."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from holdfast.errors import WrongTypeError
from holdfast.values.code.user_calls import with_caller

ARGUMENTS = ("context", "agent")


async def system_prompt(
    agent: object, instructions: str | Callable[..., Any] | None, context: object
) -> str | None:
    """Return instructions as text.

    Args:
        agent: The agent that has them.
        instructions: A text, or a function (context, agent), sync or async.
        context: The run's context.

    Raises:
        WrongTypeError: The function does not take two arguments.
    """
    if not callable(instructions):
        return instructions
    names = list(inspect.signature(instructions).parameters)
    if len(names) != len(ARGUMENTS):
        msg = (
            "'instructions' callable must accept exactly 2 arguments (context, agent), but got"
            f" {len(names)}: {', '.join(names) or 'none'}."
        )
        raise WrongTypeError(msg)
    made: Any = instructions(context, agent)
    text: str | None = await with_caller(lambda: made) if inspect.isawaitable(made) else made
    return text
