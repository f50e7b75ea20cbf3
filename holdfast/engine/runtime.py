"""The native part of Temporal's SDK in this process: its logging, its metrics, its forks."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import time
from contextlib import suppress
from datetime import timedelta

from temporalio.common import MetricMeter
from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    OpenTelemetryConfig,
    PrometheusConfig,
    Runtime,
    TelemetryConfig,
)

_LOG_SECONDS = 0.03
"""How long the end of the process waits for logs; the SDK forwards them every 0.01 s."""

_SIGN_OF_LIFE = timedelta(seconds=10)
"""How often workers tell the server their host, process and load. The first time is as late."""


def export_metrics(exporter: OpenTelemetryConfig | PrometheusConfig) -> MetricMeter:
    """Export the metrics of this process, before it makes a client; return what makes more of them.

    Those of a runtime that the program has set before go where it says.

    Raises:
        ValueError: The address is taken, or is not an address.
    """
    _exporters.append(exporter)
    set_runtime()
    return Runtime.default().metric_meter


@functools.cache
def set_runtime() -> None:
    """Make the SDK's native part log to the logger `temporalio.core`.

    By default it writes to stdout, which is for the program's own output, such as answers or JSON.
    A runtime that the program has set before, or uses already, stays as it is.

    A thread forwards logs to Python with a short delay, and cannot once the interpreter ends; so
    the end of the process waits for that delay.
    """
    is_parents = bool(_used) and Runtime.default() in _used
    forwarding = LogForwardingConfig(logger=logging.getLogger("temporalio.core"))
    log = LoggingConfig(filter=LoggingConfig.default.filter, forwarding=forwarding)
    metrics = _exporters[-1] if _exporters else None
    with suppress(RuntimeError):  # the process has a runtime already
        telemetry = TelemetryConfig(logging=log, metrics=metrics, attach_service_name=False)
        runtime = Runtime(telemetry=telemetry, worker_heartbeat_interval=_SIGN_OF_LIFE)
        Runtime.set_default(runtime, error_if_already_set=not is_parents)
        atexit.register(time.sleep, _LOG_SECONDS)
    _used.append(Runtime.default())


_used: list[Runtime] = []
"""The runtimes of this process and of its parents by fork: to free one of these may hang."""

_exporters: list[OpenTelemetryConfig | PrometheusConfig] = []
"""Where the metrics of this process go, if anywhere."""


def _forget() -> None:
    _exporters.clear()  # the parent has the port
    set_runtime.cache_clear()


if hasattr(os, "register_at_fork"):  # its threads are not in the child
    os.register_at_fork(after_in_child=_forget)
