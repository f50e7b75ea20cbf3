"""The differences from the Agents SDK that are known and wanted, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Known:
    """A difference.

    Attributes:
        paths: Places in the observation that differ, "*" standing for any index: all of them must.
        reason: Why it is wanted.
    """

    paths: tuple[str, ...]
    reason: str


BUILT: frozenset[str] = frozenset({"loop"})
"""Groups whose features exist; the others are not compared yet."""

STREAMS: frozenset[str] = frozenset()
"""Groups that are compared as streams too."""

KNOWN: dict[str, Known] = {}
"""By group, script and mode: "loop/a_text/plain"; "loop/a_text" for both modes."""
