"""Tracing: OpenTelemetry spans of tasks, steps, model calls and tool calls.

Once this process has a TracerProvider, spans flow; there is nothing else to call. Each task is one
trace, whichever processes run it and however often they crash.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from holdfast.tracing.blocks import Trace, gen_trace_id, get_current_trace, trace
from holdfast.tracing.switch import instrument, set_tracing_disabled

if TYPE_CHECKING:
    from holdfast.tracing.export import flush_traces
    from holdfast.tracing.otel import ChosenIds

__all__ = [
    "ChosenIds",
    "Trace",
    "flush_traces",
    "gen_trace_id",
    "get_current_trace",
    "instrument",
    "set_tracing_disabled",
    "trace",
]


_LATE = {"ChosenIds": "holdfast.tracing.otel", "flush_traces": "holdfast.tracing.export"}


def __getattr__(name: str) -> object:
    """Load what needs OpenTelemetry, or more than the light core, at its first use."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LATE[name]), name)
