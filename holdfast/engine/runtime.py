"""The native part of Temporal's SDK in this process: where it logs."""

from __future__ import annotations

import functools
import logging
from contextlib import suppress

from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig


@functools.cache
def set_runtime() -> None:
    """Let the SDK's native part log to the logger `temporalio.core`.

    By default it writes to stdout, which belongs to the program: to its answers, and to its JSON. A
    runtime that the program has set before, or uses already, is left as it is.
    """
    forwarding = LogForwardingConfig(logger=logging.getLogger("temporalio.core"))
    config = LoggingConfig(filter=LoggingConfig.default.filter, forwarding=forwarding)
    with suppress(RuntimeError):  # there is one
        Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=config)))
