"""The command line. Heavy imports happen inside the commands, so that `--help` is quick."""

from __future__ import annotations

import logging
import os
import sys


def main() -> None:
    """Run the command that the process's arguments name, and end the process.

    The process ends at once, without Python's own shutdown: Temporal's native threads may still
    hold the interpreter then, and would abort it (temporalio/sdk-python issue 300).
    """
    from holdfast.cli import output
    from holdfast.cli.app import app

    output.prepare()
    try:
        app()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    else:
        code = 0
    _export_last_spans()
    logging.shutdown()
    os._exit(output.finish(code))


def _export_last_spans() -> None:
    """Export the spans that are held back, if this process made any."""
    sending = sys.modules.get("holdfast.tracing.export")
    if sending is not None:
        sending.flush_traces()
