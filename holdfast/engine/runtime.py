"""The native part of Temporal's SDK in this process: its logging, its metrics, its forks."""

from __future__ import annotations

import atexit
import logging
import os
import time
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

from holdfast.errors import ConnectError


def export_metrics(exporter: OpenTelemetryConfig | PrometheusConfig) -> MetricMeter:
    """Export the metrics of this process, before it makes a client; return what makes more of them.

    Those of a runtime that the program has set before go where it says.

    Raises:
        ValueError: The address is taken, or is not an address.
    """
    _exporters.append(exporter)
    set_runtime()
    return Runtime.default().metric_meter


def set_runtime() -> None:
    """Make the SDK's native part log to the logger `temporalio.core`.

    By default it writes to stdout, which is for the program's own output, such as answers or JSON.
    A runtime that the program has set before, or uses already, stays as it is.

    A thread forwards logs to Python with a short delay, and cannot once the interpreter ends; so
    the end of the process waits for that delay.

    Raises:
        ConnectError: The process was forked from one that had made a runtime.
    """
    if os.getpid() in _used:
        return
    if _used:
        raise forked()
    forwarding = LogForwardingConfig(logger=logging.getLogger("temporalio.core"))
    log = LoggingConfig(filter=LoggingConfig.default.filter, forwarding=forwarding)
    metrics = _exporters[-1] if _exporters else None
    try:
        Runtime.prevent_default()  # type: ignore[no-untyped-call]
    except RuntimeError:
        pass  # there is one; if it is that of a parent process, the SDK says so on its use
    else:
        telemetry = TelemetryConfig(logging=log, metrics=metrics, attach_service_name=False)
        # Workers tell the server their host, process and load as often; the first time is as late.
        runtime = Runtime(telemetry=telemetry, worker_heartbeat_interval=timedelta(seconds=10))
        Runtime.set_default(runtime)
        atexit.register(time.sleep, 0.03)  # the SDK forwards logs every 0.01 s
    _used[os.getpid()] = Runtime.default()


def forked(error: AssertionError | None = None) -> ConnectError:
    """Make the error of a process that was forked from one that had used the native part.

    The native part keeps a table of waiting threads. In a child it points to memory of threads
    that are gone, which the C library gives to others: a new runtime may write there, or crash.

    Args:
        error: What the SDK asserts, if it has found that out.

    Raises:
        AssertionError: It asserts something else.
    """
    if error is not None and "across forks" not in str(error):
        raise error
    return ConnectError(
        "This process was forked from one that had used Temporal's client, and cannot use it.",
        remedy="Make the AgentRunner in each process, after the fork (gunicorn's post_fork), and"
        " none in the parent. Or use no fork: multiprocessing.get_context('spawn').",
    )


_used: dict[int, Runtime] = {}
"""The runtimes by process: this one's, and its parents' by fork, as to free one may hang."""

_exporters: list[OpenTelemetryConfig | PrometheusConfig] = []
"""Where the metrics of this process go, if anywhere."""
