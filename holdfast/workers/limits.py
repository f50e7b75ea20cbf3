"""The limits that workers are given: whole numbers, checked where they are given."""

from __future__ import annotations

from holdfast.errors import InvalidArgumentError
from holdfast.shown import shown


def at_least(least: int, name: str, value: object) -> int:
    """Return a limit as the whole number that it must be.

    Args:
        least: The smallest that makes sense.
        name: The argument's name, for the error.
        value: What was given.

    Raises:
        InvalidArgumentError: It is no whole number, or too small.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    msg = f"{name} must be at least {least}, as a whole number; it is {shown(value)}."
    raise InvalidArgumentError(msg)
