"""Tracing: OpenTelemetry spans of tasks, steps, model calls and tool calls.

Spans are made as soon as this process has a TracerProvider; nothing else has to be called. Each
task is one trace, whichever processes run it and however often they crash.
"""

from holdfast.values.code.stub_names import late_names

__all__, __dir__, __getattr__ = late_names(__name__, __file__)
