"""Check of the limits that workers take, which are whole numbers."""

from __future__ import annotations

from holdfast.errors import InvalidArgumentError
from holdfast.values.text.shown import shown


def at_least(least: int, name: str, value: object) -> int:
    """Return a limit, checked.

    Args:
        least: The smallest that makes sense.
        name: The argument's name, for the error.
        value: What was given.

    Raises:
        InvalidArgumentError: It is not a whole number, or too small.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    msg = f"{name} must be at least {least}, as a whole number; it is {shown(value)}."
    raise InvalidArgumentError(msg)
