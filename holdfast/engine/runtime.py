"""The native part of Temporal's SDK in this process: where it logs."""

from __future__ import annotations

import atexit
import functools
import logging
import time
from contextlib import suppress

from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig

_LOG_SECONDS = 0.03
"""The SDK hands logs over each 0.01 s."""


@functools.cache
def set_runtime() -> None:
    """Let the SDK's native part log to the logger `temporalio.core`.

    By default it writes to stdout, which belongs to the program: to its answers, and to its JSON. A
    runtime that the program has set before, or uses already, is left as it is.

    What is logged reaches Python a moment later, from a thread that cannot once Python ends.
    """
    forwarding = LogForwardingConfig(logger=logging.getLogger("temporalio.core"))
    config = LoggingConfig(filter=LoggingConfig.default.filter, forwarding=forwarding)
    with suppress(RuntimeError):  # there is one
        Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=config)))
        atexit.register(time.sleep, _LOG_SECONDS)
