"""Logging of the native part of Temporal's SDK in this process."""

from __future__ import annotations

import atexit
import functools
import logging
import time
from contextlib import suppress

from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig

_LOG_SECONDS = 0.03
"""How long the end of the process waits for logs; the SDK forwards them every 0.01 s."""


@functools.cache
def set_runtime() -> None:
    """Make the SDK's native part log to the logger `temporalio.core`.

    By default it writes to stdout, which is for the program's own output, such as answers or JSON.
    A runtime that the program has set before, or uses already, stays as it is.

    A thread forwards logs to Python with a short delay, and cannot once the interpreter ends; so
    the end of the process waits for that delay.
    """
    forwarding = LogForwardingConfig(logger=logging.getLogger("temporalio.core"))
    config = LoggingConfig(filter=LoggingConfig.default.filter, forwarding=forwarding)
    with suppress(RuntimeError):  # the process has a runtime already
        Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=config)))
        atexit.register(time.sleep, _LOG_SECONDS)
