"""Tracing: OpenTelemetry spans of tasks, steps, model calls and tool calls.

Spans are made as soon as this process has a TracerProvider; nothing else has to be called. Each
task is one trace, whichever processes run it and however often they crash.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from holdfast.tracing.spans import Trace, gen_trace_id, get_current_trace, trace
from holdfast.tracing.switch import (
    instrument,
    set_tracing_disabled,
    set_tracing_export_api_key,
)

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
    "set_tracing_export_api_key",
    "trace",
]


_LATE = {"ChosenIds": "holdfast.tracing.otel", "flush_traces": "holdfast.tracing.export"}


def __getattr__(name: str) -> object:
    """Import names at their first use, because they need OpenTelemetry or many modules."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LATE[name]), name)
