# The public names, and their modules: `__init__.py` loads each at its first use.

from holdfast.tracing.export import flush_traces as flush_traces
from holdfast.tracing.otel import ChosenIds as ChosenIds
from holdfast.tracing.spans import (
    Trace as Trace,
    gen_trace_id as gen_trace_id,
    get_current_trace as get_current_trace,
    trace as trace,
)
from holdfast.tracing.switch import (
    instrument as instrument,
    set_tracing_disabled as set_tracing_disabled,
    set_tracing_export_api_key as set_tracing_export_api_key,
)
