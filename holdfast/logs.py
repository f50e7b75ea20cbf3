"""The package's logger: what it says has no secrets in it, whichever handler writes it."""

from __future__ import annotations

import logging

from holdfast.redact import redact


class _Redacting(logging.Filter):
    """Redacts records on the logger itself, before any handler, also one further up, gets them."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace secrets in the text and in the traceback, which is text from then on."""
        record.msg, record.args = redact(record.getMessage()), ()
        if record.exc_info:
            record.exc_text = redact(_formatter.formatException(record.exc_info))
            record.exc_info = None
        return True


_formatter = logging.Formatter()

log = logging.getLogger("holdfast")
log.addFilter(_Redacting())
