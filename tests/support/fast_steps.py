"""What the tests of steps that share an activity have in common."""

from __future__ import annotations

import pytest

from holdfast import tool
from holdfast.activities.steps import further
from holdfast.testing import Reply, call


def count_as_fast(monkeypatch: pytest.MonkeyPatch, *, report_seconds: float = 60.0) -> None:
    """Count every step as fast, on a machine of any speed; report completed ones after a time."""
    monkeypatch.setattr(further, "STEP_SECONDS", 60.0)
    monkeypatch.setattr(further, "BEGIN_SECONDS", 60.0)
    monkeypatch.setattr(further, "REPORT_SECONDS", report_seconds)


@tool(effect="read")
def look(what: str) -> str:
    """Look."""
    return f"saw {what}"


def looks(what: str) -> Reply:
    return call("look", {"what": what})
