"""Tracing: OpenTelemetry spans of tasks, steps, model calls and tool calls.

Once this process has a TracerProvider, spans flow; there is nothing else to call. Each task is one
trace, whichever processes run it and however often they crash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.tracing.blocks import Trace, gen_trace_id, get_current_trace, trace
from holdfast.tracing.switch import instrument, set_tracing_disabled

if TYPE_CHECKING:
    from holdfast.tracing.otel import ChosenIds

__all__ = [
    "ChosenIds",
    "Trace",
    "gen_trace_id",
    "get_current_trace",
    "instrument",
    "set_tracing_disabled",
    "trace",
]


def __getattr__(name: str) -> object:
    """Import what needs OpenTelemetry when it is first asked for."""
    if name != "ChosenIds":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from holdfast.tracing.otel import ChosenIds

    return ChosenIds
