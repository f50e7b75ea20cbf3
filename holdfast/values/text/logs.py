"""The package's logger: no secrets and no control characters, whichever handler writes it."""

from __future__ import annotations

import logging
import sys

from holdfast.values.text.redact import redact_long
from holdfast.values.text.terminal import printable


class _Redacting(logging.Filter):
    """Redacts records on the logger itself, before any handler, also one further up, gets them."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Clean the text and the traceback, which is text from then on."""
        record.msg, record.args = printable(redact_long(record.getMessage())), ()
        if record.exc_info:
            record.exc_text = printable(redact_long(_formatter.formatException(record.exc_info)))
            record.exc_info = None
        return True


_formatter = logging.Formatter()

log = logging.getLogger("holdfast")
log.addFilter(_Redacting())


def enable_verbose_stdout_logging() -> None:
    """Write all that this package logs to standard output, in this process."""
    log.setLevel(logging.DEBUG)
    log.addHandler(logging.StreamHandler(sys.stdout))
