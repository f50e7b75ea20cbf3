"""Failures of clients of any library that time can heal."""

from __future__ import annotations

HEALED_BY_TIME = frozenset({408, 409, 425, 429})
"""Statuses below 500 after which a call is repeated."""

_PASSING = frozenset({"APIConnectionError", "APITimeoutError", "ConnectError", "ReadTimeout"})


def is_passing(error: Exception) -> bool:
    """Whether time can heal what a provider's client raised."""
    status = getattr(error, "status_code", None)
    names = {base.__name__ for base in type(error).__mro__}
    heals = isinstance(status, int) and (status in HEALED_BY_TIME or status >= 500)  # noqa: PLR2004
    return heals or bool(names & _PASSING) or isinstance(error, TimeoutError | ConnectionError)
